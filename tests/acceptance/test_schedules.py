"""Single notifications that are wanted later: sent once at their time, never before, and not at all once cancelled."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from schemas import codec, messages
from tests.acceptance import people
from tests.acceptance.broker import ToWrite, Written
from tests.acceptance.world import PUSH, World

AHEAD_S = 10
"""Far enough to be held, and to do something meanwhile on a slow machine."""
RESTARTED_WITHIN_S = 120
"""A role that dies again and again is started after pauses of up to 15 s, and the old leader's session must end."""


async def test_a_schedule_is_kept_once_and_not_before_whatever_is_written_again_and_a_cancelled_one_never(
    world: World,
) -> None:
    start = _start()
    kept, gone = [await _notify(world, word, send_at=start.isoformat()) for word in ("kept", "gone")]
    published = await _publish(world, "published", start)
    for sent in (kept, gone, published):
        [waiting] = (await world.until_status(sent, "scheduled"))["deliveries"]
        assert (waiting["waits_for"], waiting["calls"]) == ("scheduled", 0)
        assert datetime.fromisoformat(waiting["waits_until"]) == start
    await _again(world, world.topics.requests(people.TENANT), b"kept")
    [held] = await _again(world, world.topics.hold, b"kept")

    for sent in (gone, published):
        told = await world.must("DELETE", f"/v1/notifications/{sent}")
        assert (told["status"], [one["channel"] for one in told["cancelled"]]) == ("cancelled", ["push"])
        await world.until_status(sent, "cancelled")
    listed = json.loads(await world.holds("list", "--reason", "scheduled", "--json", "--limit", "1000"))
    assert {kept, gone, published}.intersection(one["notification_id"] for one in listed["held"]) == {kept}

    told = await world.until_status(kept, "delivered")
    assert datetime.fromisoformat(told["deliveries"][0]["sent_at"]) >= start
    await _until_let_go(world)
    await world.write(world.topics.hold, _copy(held))
    await _until_let_go(world)
    await world.until_read("work push.transactional")
    assert await _calls(world, "kept", "gone", "published") == [(1, 1), (0, 0), (0, 0)]
    for sent in (gone, published):
        assert (await world.status(sent))["status"] == "cancelled"


async def test_what_is_cancelled_before_it_has_a_plan_is_never_sent(world: World) -> None:
    async with world.stopped("route-requests"):
        soon, later = await _notify(world, "soon"), await _notify(world, "later", send_at=_start().isoformat())
        for sent in (soon, later):
            told = await world.must("DELETE", f"/v1/notifications/{sent}")
            assert (told["status"], told["sent"], told["sending"]) == ("cancelled", [], [])
    await world.until_read("route requests")
    for sent in (soon, later):
        [delivery] = (await world.until_status(sent, "cancelled"))["deliveries"]
        assert (delivery["reason"], delivery["calls"]) == ("cancelled_by_caller", 0)
    await world.until_read("work push.transactional")
    assert await _calls(world, "soon", "later") == [(0, 0)] * 2


@pytest.mark.long
async def test_who_dies_while_a_schedule_waits_makes_it_neither_late_nor_twice(world: World) -> None:
    """Routing and the leader are killed while it is held, the leader again when it is due."""
    start = _start()
    words = [f"patient{number}" for number in range(20)]
    sent = [await _notify(world, word, send_at=start.isoformat()) for word in words]
    for one in sent:
        await world.until_status(one, "scheduled")
    for role in ("route-requests", "dispatch"):
        await world.running(role, world.kill(role))
    await world.until_status(sent[0], "delivered", within_s=RESTARTED_WITHIN_S)
    await world.running("dispatch", world.kill("dispatch"))
    for one in sent:
        await world.until_status(one, "delivered", within_s=RESTARTED_WITHIN_S)
    await _until_let_go(world)
    await world.until_read("work push.transactional")
    assert await _calls(world, *words) == [(1, 1)] * len(words)


@pytest.mark.long
async def test_a_time_of_day_comes_by_the_clock_of_the_user(world: World) -> None:
    """The next full minute but one, by the clock of Kathmandu, five hours and 45 minutes ahead."""
    soon = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=2)
    user = world.name("sherpa")
    await world.user(user, devices=people.devices(user), time_zone="Asia/Kathmandu")
    local = soon.astimezone(ZoneInfo("Asia/Kathmandu"))
    wanted = {"local": f"{local:%H:%M}", "date": f"{local:%Y-%m-%d}"}
    sent = await world.notify(user, "alert", key=user, params={"text": "x"}, send_at=wanted)
    [waiting] = (await world.until_status(sent, "scheduled"))["deliveries"]
    assert datetime.fromisoformat(waiting["waits_until"]) == soon
    told = await world.until_status(sent, "delivered", within_s=180)
    assert datetime.fromisoformat(told["deliveries"][0]["sent_at"]) >= soon


def _start() -> datetime:
    """In whole milliseconds, as it travels."""
    at = datetime.now(UTC) + timedelta(seconds=AHEAD_S)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


async def _notify(world: World, word: str, **wish: Any) -> str:
    user = world.name(word)
    return await world.notify(user, "alert", key=user, params={"text": "x"}, to=people.to_device(user), **wish)


async def _publish(world: World, word: str, start: datetime) -> str:
    """As an upstream team writes to the topic itself, without a tenant; the id, as the public topic names it."""
    user = world.name(word)
    to = messages.Contact(devices=(messages.Device(people.DEVICE, f"token-{user}", "ios"),))
    start_ms = round(start.timestamp() * 1000)
    event = messages.NotificationRequested("", user, user, "alert", '{"text": "x"}', to=to, send_at_ms=start_ms)
    await world.write(world.topics.requests(people.TENANT), ToWrite(codec.encode(event), user.encode()))

    async def ids() -> set[str]:
        values = [record.value for record in await world.records(world.topics.state) if record.value]
        states = [codec.decode(value, messages.DeliveryState) for value in values if user.encode() in value]
        return {state.notification_id for state in states}

    [found] = await world.until(ids, bool, f"{user} is planned")
    return found


async def _again(world: World, topic: str, word: bytes) -> list[Written]:
    """Writes again what lies in the topic of this test's own; gives it."""
    own = [
        record
        for record in await world.records(topic)
        if record.value and world.token.encode() in record.value and word in record.value
    ]
    await world.write(topic, *map(_copy, own))
    return own


def _copy(record: Written) -> ToWrite:
    return ToWrite(record.value, record.key, record.headers, record.partition)


async def _until_let_go(world: World) -> None:
    """Until a tombstone is the last word about everything in hold of this test."""

    async def lying() -> list[bytes]:
        last = {record.key: record.value for record in await world.records(world.topics.hold)}
        return [key for key, value in last.items() if key and value and world.token.encode() in value]

    await world.until(lying, lambda seen: not seen, "hold is empty")


async def _calls(world: World, *words: str) -> list[tuple[int, int]]:
    found = await world.calls(PUSH, [people.push_key(world.name(word)) for word in words])
    return list(found.values())
