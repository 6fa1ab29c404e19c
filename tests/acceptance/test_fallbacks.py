"""Who cannot be reached on one channel is reached on the next, once, while workers are killed; and the counts agree."""

from __future__ import annotations

import asyncio
import time

import pytest

from schemas import keys
from schemas.messages import Channel
from tests.acceptance import people
from tests.acceptance.world import MAIL, PUSH, SMS, World

pytestmark = pytest.mark.long
SIZE = 1_200
DEAD = 0.08
"""So few that nobody doubts whether their devices are dead."""
CODES = 40
FALLBACK_AFTER_S = 5.0
WITHIN_S = 45.0
"""A worker that is killed is missed after a session of 6 s; its calls are waited for until their leases of 6 s end."""


async def test_a_campaign_to_dead_devices_goes_on_by_email_and_its_counts_are_exact(world: World) -> None:
    users = [world.name(f"reader{number}") for number in range(SIZE)]
    await world.new_ledger()
    await world.faults(PUSH, refusals={"dead_address": DEAD}, answer_ms=20)
    lines = [
        {"user_id": user, "params": {"name": user}, "to": {**people.to_device(user), "email": f"{user}@example.org"}}
        for user in users
    ]
    campaign = await world.campaign("reach", lines)
    await world.until_told(campaign, lambda told: told["progress"]["sent"] > 0.2 * SIZE, "has begun")
    world.kill("work-push.bulk")
    await world.until_told(campaign, lambda told: told["progress"]["sent"] > 0.5 * SIZE, "is half done")
    world.kill("work-email.bulk")
    told = await world.until_finished(campaign)
    for role in ("work push.bulk", "work email.bulk", "status"):
        await world.until_read(role)
    told = await world.told(campaign)
    pushes = [sends for _, sends in (await world.calls(PUSH, people.reader_keys(campaign, users))).values()]
    mails = [sends for _, sends in (await world.calls(MAIL, _mail_keys(campaign, users))).values()]
    assert all(push or mail for push, mail in zip(pushes, mails, strict=True)), "somebody got nothing"
    assert DEAD / 2 * SIZE < sum(map(bool, mails)) < DEAD * 2 * SIZE
    await world.until_repeats_are_told(campaign, sum(pushes) + sum(mails) - SIZE)
    assert told["status"] == "processed" and told["progress"]["sent"] == SIZE
    assert sum(told["outcomes"].values()) == SIZE and set(told["outcomes"]) <= {"sent", "delivered"}


async def test_a_code_whose_provider_is_back_in_time_stays_on_its_channel(world: World) -> None:
    user = world.name("visitor")
    await world.faults(PUSH, errors={"503": 1}, calls=1)
    told = await world.until_status(await _ask(world, user), "sent", "delivered")
    assert {delivery["channel"] for delivery in told["deliveries"]} == {"push"}
    assert await world.calls(SMS, [people.sms_key(user)]) == {people.sms_key(user): (0, 0)}


async def test_login_codes_go_by_sms_once_their_push_provider_has_been_away_for_some_seconds(world: World) -> None:
    users = [world.name(f"visitor{number}") for number in range(CODES)]
    await world.new_ledger()
    await world.faults(PUSH, errors={"503": 1})
    began_s = time.monotonic()
    sent = await asyncio.gather(*(_ask(world, user) for user in users))
    await asyncio.sleep(FALLBACK_AFTER_S / 2)
    world.kill("work-push.transactional")
    told = [await world.until_status(one, "failed", "suppressed", "sent", "delivered") for one in sent]
    assert time.monotonic() - began_s < WITHIN_S
    for one in told:
        shown = {delivery["channel"]: delivery["state"] for delivery in one["deliveries"]}
        assert shown["sms"] in ("sent", "delivered") and one["status"] in ("sent", "delivered")
        reasons = {delivery["reason"] for delivery in one["deliveries"] if delivery["channel"] == "push"}
        assert "provider_unavailable" in reasons and reasons <= {"provider_unavailable", "fell_back"}

    await world.all_is_well()
    for role in ("forward", "work push.transactional", "work sms.transactional"):
        await world.until_read(role)
    texts = await world.calls(SMS, map(people.sms_key, users))
    assert {sends for _, sends in texts.values()} == {1}
    assert (await world.ledger(PUSH))["sends"] == 0, "nobody is called on the first channel any more"
    again = await world.notify(world.name("next"), "alert", params={"text": "x"}, to=people.to_device("next"))
    await world.until_status(again, "sent", "delivered", within_s=2 * WITHIN_S)  # once its breaker has closed


async def _ask(world: World, user: str) -> str:
    """A login code to somebody with two devices and a telephone."""
    devices = [{"id": name, "token": f"{name}-{user}", "platform": "ios"} for name in ("phone", "tablet")]
    to = {"devices": devices, **people.to_phone(user)}
    return await world.notify(user, "signin", key=user, params={"code": "123456"}, to=to)


def _mail_keys(campaign: str, users: list[str]) -> list[str]:
    intents = [keys.recipient_intent(people.TENANT, campaign, user) for user in users]
    return [keys.delivery_key(intent, Channel.EMAIL) for intent in intents]
