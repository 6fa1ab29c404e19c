"""A process stands still for longer than its lease, another goes on in its place, and then it wakes up in mid-step.

Meanwhile two of them own the same work for a moment: what the one that was deposed still writes changes nothing.
"""

from __future__ import annotations

import pytest

from schemas import codec
from schemas.messages import CampaignCursor, Channel, Delivery, Priority
from tests.acceptance import people
from tests.acceptance.world import PUSH, World
from tests.kills.flow import caught, until_sprung
from tests.kills.standing import log_of, second, standing_still, until_logged
from tests.kills.traps import Fate, Trap, Traps

LONG = pytest.mark.long
WORK, FAN_OUT, DISPATCH = "work-push.bulk", "streams-fan_out", "dispatch"


@pytest.mark.parametrize(
    "gap", ["before_send", *(pytest.param(gap, marks=LONG) for gap in ("after_claim", "after_send"))]
)
async def test_a_sender_that_wakes_after_its_lease_makes_no_call_that_is_not_told(
    world: World, traps: Traps, gap: str
) -> None:
    flow, sleeper = await caught(world, traps, WORK, Trap(gap, Fate.STOPPED, passing=60))
    log = log_of(world, sleeper)
    told = log.stat().st_size
    with standing_still(sleeper):
        await world.until_finished(flow.campaign)
        before = (await world.ledger(PUSH))["repeats"]
    if gap == "before_send":
        await world.until(lambda: world.ledger(PUSH), lambda seen: seen["repeats"] > before, "it makes its call")
    await until_logged(world, log, "partitions.lost", behind=told)
    ended = await flow.ended()
    assert ended.repeats + (gap == "after_claim") <= ended.doubted


@LONG
async def test_two_that_fan_out_the_same_page_reach_everybody_once(world: World, traps: Traps) -> None:
    """N15: the first stands still with its plans made, the second takes its pages, and the first wakes up."""
    flow, sleeper = await caught(world, traps, FAN_OUT, Trap("after_page_plan", Fate.STOPPED))

    async def planned() -> int:
        return await _in_lane(world, flow.campaign)

    with second(world, "streams", "fan_out"):
        with standing_still(sleeper):
            await world.until_finished(flow.campaign)
            await world.until_read("fan_out")
            before = await planned()
        # Not a trap behind its write: Faust may drop the page first, while the log has not answered yet.
        await world.until(planned, lambda seen: seen > before, "it writes its page, too late")
        ended = await flow.ended()
    assert (ended.repeats, ended.doubted) == (0, 0)
    await world.until_finished(await world.campaign("news", people.readers([world.name("later")])))
    await world.until_read("fan_out")  # who is no member any more may read, but not commit


@LONG
async def test_a_leader_deposed_in_mid_release_lets_no_page_go_twice_in_effect(world: World, traps: Traps) -> None:
    flow, sleeper = await caught(world, traps, DISPATCH, Trap("before_release", Fate.STOPPED))
    with second(world, "dispatch"):
        with standing_still(sleeper):
            await world.until_finished(flow.campaign)
            reign = (await _cursors(world, flow.campaign))[-1]
            traps.set(DISPATCH, Trap("after_release", Fate.NOTED))
        assert await until_sprung(world, traps, DISPATCH) == sleeper, "it writes its pages, too late"

        async def look() -> list[CampaignCursor]:
            return await _cursors(world, flow.campaign)

        seen = await world.until(
            look,
            lambda seen: any(one.epoch < reign.epoch for one in seen) and seen[-1].epoch >= reign.epoch,
            "the cursor it wrote over is written again",
        )
        assert seen[-1].next_page == reign.next_page
        ended = await flow.ended()
    assert (ended.repeats, ended.doubted) == (0, 0)


async def _in_lane(world: World, campaign: str) -> int:
    """How many deliveries fan-out has written for this campaign, each as often as it did."""
    written = await world.records(world.topics.lane(Channel.PUSH, Priority.BULK))
    found = [codec.decode(record.value, Delivery) for record in written if campaign.encode() in (record.value or b"")]
    return sum(delivery.hop == 0 for delivery in found)


async def _cursors(world: World, campaign: str) -> list[CampaignCursor]:
    """Of this campaign, in the order of the log."""
    written = await world.records(world.topics.cursor)
    found = [codec.decode(record.value, CampaignCursor) for record in written if record.value]
    return [cursor for cursor in found if cursor.campaign_id == campaign]
