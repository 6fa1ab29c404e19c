"""Of messages that look alike one is sent and the others wait for a person, whoever dies while it is decided."""

from __future__ import annotations

import asyncio

import pytest

from tests.acceptance import people
from tests.acceptance.world import PUSH, World
from tests.kills.flow import until_sprung
from tests.kills.traps import Trap, Traps

pytestmark = pytest.mark.long
USERS, ALIKE = 40, 3
WORK = "work-push.bulk"


@pytest.mark.parametrize("gap", ["after_claim", "after_send", "after_settle"])
async def test_one_of_three_that_look_alike_is_sent_and_two_are_held_though_a_sender_dies_over_them(
    world: World, traps: Traps, gap: str
) -> None:
    """Two senders; the one that dies has marked its message as the first of its kind, and nobody knows of the call."""
    users = [world.name(f"reader{number}") for number in range(USERS)]
    await world.faults(PUSH, answer_ms=50)
    traps.set(WORK, Trap(gap, passing=2 if gap == "after_settle" else 10))
    asked = await asyncio.gather(*(_ask(world, user, number) for user in users for number in range(ALIKE)))
    ids = dict(zip(((user, number) for user in users for number in range(ALIKE)), asked, strict=True))
    await until_sprung(world, traps, WORK)
    for role in ("route bulk", "work push.bulk", "status"):
        await world.until_read(role)
    for user in users:
        told = [await world.until_status(ids[user, number], "held", "sent", "delivered") for number in range(ALIKE)]
        held = [one["deliveries"][0] for one in told if one["status"] == "held"]
        assert [one["waits_for"] for one in held] == ["lookalike"] * (ALIKE - 1), f"{user}: {told}"
        sends = await world.calls(PUSH, [people.push_key(_key(user, number)) for number in range(ALIKE)])
        [calls] = [count for _, count in sends.values() if count]
        [sent] = [one["deliveries"][0] for one in told if one["status"] != "held"]
        assert calls - 1 <= bool(sent.get("possible_duplicate")), "again, without a word"


async def _ask(world: World, user: str, number: int) -> str:
    wish = {"params": {"text": "try it"}, "to": people.to_device(user)}
    return await world.notify(user, "tips", key=_key(user, number), **wish)


def _key(user: str, number: int) -> str:
    return f"{user}-{number}"
