"""Promise 1: 202 is answered only once the log has the request; a crash afterwards loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from schemas import codec
from schemas.messages import NotificationRequested
from tests.acceptance import people
from tests.acceptance.world import PUSH, World

USERS = 60
CALLERS = 6
KILL_AFTER = 15


async def test_what_was_answered_202_lies_in_the_log_already(world: World) -> None:
    key, user = world.name("kept"), world.name("ann")
    await world.notify(user, "alert", key=key, params={"text": "x"}, to=people.to_device(user))
    records = await world.records(world.topics.requests(people.TENANT))
    mine = [record.value for record in records if record.value and key.encode() in record.value]
    assert [codec.decode(value, NotificationRequested).user_id for value in mine] == [user]


@pytest.mark.parametrize("victim", ["route-requests", "work-push.transactional"])
async def test_nothing_accepted_is_lost_when_a_process_is_killed(world: World, victim: str) -> None:
    repeats, doubtful = await _send_and_kill(world, victim)
    assert repeats <= (doubtful if victim.startswith("work") else 0), "only a sender that dies may leave a doubt"


@pytest.mark.long
async def test_callers_who_got_no_answer_ask_again_under_their_keys_and_nothing_is_sent_twice(world: World) -> None:
    """The API dies between the log and its answer; for 35 s it then takes the first request for still running."""
    repeats, _ = await _send_and_kill(world, "api")
    assert repeats == 0


async def _send_and_kill(world: World, victim: str) -> tuple[int, int]:
    """Sends to many while the victim dies; (repeats at the provider, deliveries told as possible duplicates)."""
    await world.faults(PUSH, answer_ms=30)
    users = [world.name(f"user{number}") for number in range(USERS)]
    accepted: dict[str, str] = {}

    async def call(mine: Iterator[str]) -> None:
        for user in mine:
            wish = {"params": {"text": "x"}, "to": people.to_device(user)}
            accepted[user] = await world.notify(user, "alert", key=user, **wish)

    waiting = iter(users)
    callers = [asyncio.create_task(call(waiting)) for _ in range(CALLERS)]
    await world.until(lambda: _count(accepted), lambda seen: seen >= KILL_AFTER, "some are accepted")
    world.kill(victim)
    await asyncio.gather(*callers)

    for user in users:
        await world.until_status(accepted[user], "sent", "delivered")
    await world.until_read("work push.transactional")  # a repeat may follow the first call's report
    await world.until_read("status")
    told = [await world.status(accepted[user]) for user in users]
    sends = [sends for _, sends in (await world.calls(PUSH, map(people.push_key, users))).values()]
    assert min(sends) == 1, "somebody got nothing"
    doubtful = [one for one in told if any(delivery.get("possible_duplicate") for delivery in one["deliveries"])]
    return sum(sends) - USERS, len(doubtful)


async def _count(accepted: dict[str, str]) -> int:
    return len(accepted)
