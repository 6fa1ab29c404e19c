"""A sender dies with calls open: the next one takes them over, and each is told as a possible duplicate."""

from __future__ import annotations

import pytest

from tests.acceptance import people
from tests.acceptance.world import PUSH, World
from tests.kills.deployment import LEASE_S
from tests.kills.flow import Flow, caught, until_sprung
from tests.kills.middle import kill_in_the_middle
from tests.kills.traps import Trap, Traps

LANE = "work-push.transactional"
ONE_CALL = {
    "after_claim": (1, 2),
    "before_send": (1, 2),
    "after_send": (2, 2),
    "after_settle": (1, 1),
    "before_publish": (1, 1),
    "after_publish": (1, 1),
    "before_commit": (1, 1),
}
"""Gap -> calls of one delivery that its provider gets, and calls that are told; those told more are in doubt."""


@pytest.mark.long
@pytest.mark.parametrize("gap", ONE_CALL)
async def test_calls_open_when_a_sender_dies_are_made_once_more_and_no_others(
    world: World, traps: Traps, gap: str
) -> None:
    """In the middle of a campaign, with many calls open at the same time."""
    passing = 60 if gap in ("after_claim", "before_send", "after_send") else 2
    flow, dead = await caught(world, traps, "work-push.bulk", Trap(gap, passing=passing))
    ended = await flow.ended()
    assert dead not in (await world.running("work-push.bulk"), await world.running("work-push.bulk-2"))
    made, told = ONE_CALL[gap]
    assert ended.doubted >= told - 1 and ended.repeats >= made - 1
    assert ended.repeats + ended.never_made == ended.doubted, "each call in doubt was made once more, or never before"


@pytest.mark.parametrize(
    "gap", [pytest.param(one, marks=() if one == "after_send" else pytest.mark.long) for one in ONE_CALL]
)
async def test_one_call_in_doubt_is_one_possible_duplicate(world: World, traps: Traps, gap: str) -> None:
    """N19: the dead worker's lease ends by itself; nobody has to clear anything by hand."""
    await world.faults(PUSH, silent=1)
    traps.set(LANE, Trap(gap))
    key, user = world.name("single"), world.name("ann")
    sent = await world.notify(user, "alert", key=key, params={"text": "x"}, to=people.to_device(user))
    await until_sprung(world, traps, LANE)
    [delivery] = (await world.until_status(sent, "sent"))["deliveries"]
    made, told = ONE_CALL[gap]
    assert (delivery["calls"], bool(delivery.get("possible_duplicate"))) == (told, told > 1)
    await world.until_read("work push.transactional")
    assert await world.calls(PUSH, [people.push_key(key)]) == {people.push_key(key): (made, made)}


@pytest.mark.long
async def test_a_delivery_at_which_every_sender_dies_is_given_up_and_the_lane_goes_on(
    world: World, traps: Traps
) -> None:
    key, user = world.name("deadly"), world.name("ann")
    traps.set(LANE, Trap("after_claim"))
    sent = await world.notify(user, "alert", key=key, params={"text": "x"}, to=people.to_device(user))
    deaths = []

    async def look() -> str:
        if (dead := traps.sprung_by(LANE)) is not None:
            deaths.append(dead)
            traps.set(LANE, Trap("after_claim"))
        return str((await world.status(sent))["status"])

    await world.until(look, lambda status: status == "failed", "it is given up")
    assert len(deaths) <= 3
    told = await world.status(sent)
    assert [delivery["reason"] for delivery in told["deliveries"]] == ["crashes_worker"]
    assert await world.calls(PUSH, [people.push_key(key)]) == {people.push_key(key): (0, 0)}
    traps.clear()
    flow = Flow(world, recipients=10)
    await flow.begin()
    assert (await flow.ended()).repeats == 0


@pytest.mark.long
async def test_a_campaign_goes_on_where_it_was_when_its_sender_is_killed(world: World) -> None:
    """N01: 10,000 recipients, kill -9 at 3,500."""
    cost = await kill_in_the_middle(world, 10_000, 3_500, LEASE_S)
    assert cost.lost == 0
    assert cost.repeats <= cost.told <= cost.in_flight
