"""Whatever kept the leader from its work: what was held over that time goes out once, promptly, and nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest

from retry_topics import hold
from schemas import codec, keys
from schemas.messages import Channel, Delivery, Held, Priority
from schemas.policies import MessageClass, TemplatePolicy
from streams.dispatch import Dispatch
from tests.doubles.campaign_road import CampaignRoad
from tests.doubles.deliveries import single
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_road import TOPICS

POLICIES = {"offer": TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH,))}
LANE = TOPICS.lane(Channel.PUSH, Priority.BULK)
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
MIDNIGHT_MS = (START_MS // DAY_MS + 1) * DAY_MS


@pytest.fixture
async def road(tmp_path: Path) -> CampaignRoad:
    road = CampaignRoad(tmp_path, POLICIES)
    await road.restart()
    return road


async def schedule(road: CampaignRoad, number: int, due_ms: int) -> bytes:
    """Puts one delivery into hold; its hold id."""
    address = keys.single_address("0a1b2c3d", 0, number)
    made = single(f"customer-{number}", f"order-{number}", number, channel=Channel.PUSH, priority=Priority.BULK, hop=1)
    made = replace(made, row=address.row, slot=address.slot, expires_at_ms=due_ms + 3 * DAY_MS)
    record = hold.delivery_record(TOPICS, Held("default", due_ms, "scheduled", 1, START_MS, delivery=made))
    await road.log.publish([record])
    return record.key or b""


def sent(road: CampaignRoad) -> list[int]:
    """The numbers of those that came out, in order."""
    found = [codec.decode(record.value, Delivery) for record in road.log.records(LANE)]
    return [int(delivery.user_id.removeprefix("customer-")) for delivery in found]


async def look(leader: Dispatch, times: int = 3, epoch: int = 1) -> None:
    for _ in range(times):
        await leader.look(epoch)


async def test_what_fell_due_while_nobody_led_goes_out_at_once_and_once(road: CampaignRoad) -> None:
    """K35: due during an outage, due long ago when it was put in, and before and after midnight."""
    times = (START_MS + HOUR_MS, START_MS - DAY_MS, MIDNIGHT_MS - 1, MIDNIGHT_MS, MIDNIGHT_MS + 1)
    for number, due_ms in enumerate(times):
        await schedule(road, number, due_ms)
    road.clock.advance(MIDNIGHT_MS + HOUR_MS - START_MS)
    await look(await road.leader())
    assert sorted(sent(road)) == [0, 1, 2, 3, 4]
    road.clock.advance(DAY_MS)
    await look(await road.leader(epoch=2), epoch=2)
    assert len(sent(road)) == 5, "nothing goes again at the next midnight"


async def test_five_hundred_of_a_thousand_are_cancelled_and_the_next_leader_lets_only_the_others_go(
    road: CampaignRoad,
) -> None:
    """K36."""
    ids = [await schedule(road, number, START_MS + HOUR_MS) for number in range(1_000)]
    await look(await road.leader())
    await road.log.publish([hold.tombstone(TOPICS, hold_id) for hold_id in ids[::2]])
    following = await road.leader(epoch=2)
    road.clock.advance(HOUR_MS)
    await look(following, epoch=2)
    assert sorted(sent(road)) == list(range(1, 1_000, 2))


async def test_a_time_three_hours_ahead_is_kept_to_the_look(road: CampaignRoad) -> None:
    """K39: the record's own time is when it was written; the broker has nothing to refuse."""
    await schedule(road, 7, START_MS + 3 * HOUR_MS)
    leader = await road.leader()
    (record,) = road.log.records(TOPICS.hold)
    assert record.timestamp_ms == START_MS
    road.clock.advance(3 * HOUR_MS - 250)
    await look(leader)
    assert sent(road) == []
    road.clock.advance(250)
    await look(leader, times=1)
    assert sent(road) == [7]
