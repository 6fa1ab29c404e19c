"""Promise 7: a status only moves forward, whatever the order, delay or repetition of reports; and what reports stop."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from deploy.simulators.callbacks import signature
from tests.acceptance import deployment, people, webhooks
from tests.acceptance.world import PUSH, SMS, World


async def sent_sms(world: World, user: str) -> tuple[str, str]:
    """(notification id, reference) of an SMS whose provider says nothing by itself."""
    await world.faults(SMS, silent=1)
    sent = await world.notify(user, "code", params={"code": "1"}, to=people.to_phone(user))
    await world.until_status(sent, "sent")
    [message] = await world.messages(people.phone(user))
    return sent, str(message["reference"])


async def report(world: World, *types: str, reference: str, **fields: Any) -> int:
    """The status of the answer to one signed post with these reports."""
    body = json.dumps([{"type": kind, "reference": reference, **fields} for kind in types]).encode()
    headers = signature(deployment.SECRET, world.name(f"msg{time.time_ns()}"), int(time.time()), body)
    answer = await world.ask("POST", f"{world.deployment.callbacks}/v1/callbacks/texter", data=body, headers=headers)
    return answer.status


async def state(world: World, notification_id: str) -> str:
    await world.until_read("route callbacks")
    await world.until_read("status")
    return str((await world.status(notification_id))["status"])


async def test_a_late_or_repeated_report_never_turns_a_status_back(world: World) -> None:
    """N45"""
    sent, reference = await sent_sms(world, world.name("ann"))
    for types, shown in (
        (("delivered",), "delivered"),
        (("undelivered",), "delivered"),
        (("delivered", "delivered"), "delivered"),
        (("bounced",), "bounced"),
        (("delivered",), "bounced"),
        (("complained",), "complained"),
        (("bounced", "delivered"), "complained"),
    ):
        assert await report(world, *types, reference=reference) == 204
        assert await state(world, sent) == shown, types


async def test_a_delivery_told_after_a_permanent_failure_changes_nothing(world: World) -> None:
    """N45"""
    sent, reference = await sent_sms(world, world.name("ann"))
    for types in (("undelivered",), ("delivered",), ("undelivered", "delivered")):
        assert await report(world, *types, reference=reference) == 204
        assert await state(world, sent) == "undelivered", types


async def test_reports_of_a_providers_own_kinds_stay_in_the_log_and_turn_nothing_back(world: World) -> None:
    """P24"""
    sent, reference = await sent_sms(world, world.name("ann"))
    for kind in ("delivered", "sent", "sending", "delivered"):
        assert await report(world, kind, reference=reference) == 204
        assert await state(world, sent) == "delivered", kind
    raw = [record.value or b"" for record in await world.records(world.topics.callbacks)]
    assert sum(reference.encode() in value for value in raw) == 4


@pytest.mark.long
async def test_reports_that_race_with_each_other_and_with_our_own_mark_leave_everyone_delivered(world: World) -> None:
    """P25: two webhooks for each of 500, posted at once while the calls themselves are still open."""
    size, seen = 500, set[str]()
    await world.faults(PUSH, silent=1, answer_ms=400)
    await world.new_ledger()
    users = [world.name(f"reader{number}") for number in range(size)]
    campaign = await world.campaign("news", people.readers(users), pace_per_s=100)

    async def report_new() -> int:
        for reference in await _references(world) - seen:
            seen.add(reference)
            for kind in ("sent", "delivered"):
                posts.create_task(_posted(world, kind, reference))
        return len(seen)

    async with asyncio.TaskGroup() as posts:
        await world.until(report_new, lambda count: count == size, "all are called")
    told = await world.until_told(campaign, lambda told: told["outcomes"] == {"delivered": size}, "is delivered")
    assert told["progress"]["sent"] == size


async def _references(world: World) -> set[str]:
    """Of the newest calls of push, open ones included."""
    newest = await world.must("GET", f"{world.deployment.outside}/messages?service={PUSH}")
    return {one["message"]["reference"] for one in newest}


async def _posted(world: World, kind: str, reference: str) -> None:
    answer = await webhooks.post(world, webhooks.GATEWAY, {"type": kind, "reference": reference})
    assert answer.status == 204


async def test_reports_late_twice_and_out_of_order_leave_a_campaign_with_the_right_counts(world: World) -> None:
    await world.faults(SMS, twice=0.5, out_of_order=0.5, late=0.3, late_ms=2_000, bounced=0.2, seed=7)
    users = [world.name(f"guest{number}") for number in range(80)]
    lines = [{"user_id": user, "params": {"name": user}, "to": people.to_phone(user)} for user in users]
    campaign = await world.campaign("offer", lines)
    told = await world.until_told(
        campaign, lambda seen: not seen["outcomes"].get("sent") and sum(seen["outcomes"].values()) == 80, "is reported"
    )
    assert set(told["outcomes"]) == {"delivered", "bounced"}
    assert told["progress"]["sent"] == 80


async def test_whom_a_report_says_is_unreachable_is_not_called_again(world: World) -> None:
    user = world.name("gone")
    _, reference = await sent_sms(world, user)
    assert await report(world, "bounced", reference=reference) == 204
    await world.until_read("route callbacks")
    again = await world.notify(user, "code", params={"code": "2"}, to=people.to_phone(user))
    [delivery] = (await world.until_status(again, "suppressed"))["deliveries"]
    assert (delivery["reason"], delivery["calls"]) == ("suppressed_address", 0)
    assert len(await world.messages(people.phone(user))) == 1


async def test_a_forged_report_is_refused_and_changes_nothing(world: World) -> None:
    sent, reference = await sent_sms(world, world.name("ann"))
    body = json.dumps({"type": "bounced", "reference": reference}).encode()
    url = f"{world.deployment.callbacks}/v1/callbacks/texter"
    other_secret = "whsec_b3RoZXIgb3RoZXIgb3RoZXIgb3RoZXIgb3RoZXI="
    for headers in (
        {},
        signature(other_secret, "msg_1", int(time.time()), body),
        signature(deployment.SECRET, "msg_1", int(time.time()) - 3_600, body),
        signature(deployment.SECRET, "msg_1", int(time.time()), body + b" "),
    ):
        assert (await world.ask("POST", url, data=body, headers=headers)).status == 401
    forged = ("b" if reference[0] == "a" else "a") + reference[1:]
    assert await report(world, "bounced", reference=forged) == 204
    assert await state(world, sent) == "sent"
