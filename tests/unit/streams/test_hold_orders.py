"""Goal: what an operator says about one delivery in hold happens to it once, whatever becomes of the leader."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from retry_topics import hold
from schemas import codec, keys
from schemas.errors import Transient
from schemas.messages import (
    Channel,
    Delivery,
    EventKind,
    Held,
    HoldOrder,
    HoldOrdered,
    Priority,
    StatusBatch,
    StatusEvent,
)
from schemas.policies import MessageClass, TemplatePolicy
from schemas.reasons import Reason
from schemas.records import Outgoing
from tests.doubles.campaign_road import CampaignRoad
from tests.doubles.deliveries import single
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_road import TOPICS

POLICIES = {"offer": TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH,))}
LANE = TOPICS.lane(Channel.PUSH, Priority.BULK)
HOUR_MS = 3_600_000


@pytest.fixture
async def road(tmp_path: Path) -> CampaignRoad:
    road = CampaignRoad(tmp_path, POLICIES)
    await road.restart()
    return road


async def put(road: CampaignRoad, number: int, reason: str = Reason.LOOKALIKE, due_ms: int = 0) -> bytes:
    """A delivery in hold; its hold id."""
    record = held(number, reason, due_ms)
    await road.log.publish([record])
    return record.key or b""


def held(number: int, reason: str = Reason.LOOKALIKE, due_ms: int = 0, hop: int = 1) -> Outgoing:
    address = keys.single_address("0a1b2c3d", 0, number)
    delivery = single(f"user-{number}", f"order-{number}", channel=Channel.PUSH, priority=Priority.BULK, hop=hop)
    delivery = replace(delivery, row=address.row, slot=address.slot)
    return hold.delivery_record(TOPICS, Held("default", due_ms, reason, hop, START_MS, delivery=delivery))


async def order(road: CampaignRoad, hold_id: bytes, wanted: HoldOrder) -> None:
    message = HoldOrdered("default", hold_id.decode(), wanted, road.clock.now_ms())
    await road.log.publish([Outgoing(TOPICS.hold_control, hold_id, codec.encode(message))])


def in_lane(road: CampaignRoad) -> list[Delivery]:
    return [codec.decode(record.value, Delivery) for record in road.log.records(LANE) if record.value]


def ends(road: CampaignRoad) -> list[StatusEvent]:
    told = [codec.decode(record.value, StatusBatch) for record in road.log.records(TOPICS.status)]
    return [event for batch in told for event in batch.events if event.kind is EventKind.CANCELLED]


def open_orders(road: CampaignRoad) -> set[bytes | None]:
    newest = {record.key: record.value for record in road.log.records(TOPICS.hold_control)}
    return {hold_id for hold_id, value in newest.items() if value is not None}


async def test_a_lookalike_waits_for_an_order_and_goes_by_it_past_the_check(road: CampaignRoad) -> None:
    hold_id, _ = await put(road, 1), await put(road, 2)
    leader = await road.leader()
    road.clock.advance(HOUR_MS)
    await road.settle(leader)
    assert in_lane(road) == []
    await order(road, hold_id, HoldOrder.RELEASE)
    await road.settle(leader)
    (released,) = in_lane(road)
    assert (released.user_id, released.force, released.hop) == ("user-1", True, 1)


async def test_what_waits_for_another_reason_goes_early_and_is_not_forced(road: CampaignRoad) -> None:
    hold_id = await put(road, 1, Reason.SCHEDULED, START_MS + 9 * HOUR_MS)
    leader = await road.leader()
    await order(road, hold_id, HoldOrder.RELEASE)
    await road.settle(leader)
    assert [one.force for one in in_lane(road)] == [False]


async def test_what_is_dropped_ends_cancelled_naming_the_operator_and_never_comes_out(road: CampaignRoad) -> None:
    hold_id = await put(road, 1)
    leader = await road.leader()
    await order(road, hold_id, HoldOrder.DROP)
    await road.settle(leader)
    (end,) = ends(road)
    assert (end.kind, end.reason, end.detail) == ("cancelled", "dropped_by_operator", "was held: lookalike")
    assert (end.delivery, end.slot) == (keys.delivery_suffix(Channel.PUSH), 1)
    road.clock.advance(48 * HOUR_MS)
    await road.settle(leader)
    assert in_lane(road) == [] and len(ends(road)) == 1


async def test_while_claims_cannot_be_told_what_is_dropped_waits_and_nothing_else_does(
    road: CampaignRoad,
) -> None:
    hold_id, other = await put(road, 1), await put(road, 2)
    leader = await road.leader()
    road.dropped.down = True
    await order(road, hold_id, HoldOrder.DROP)
    await order(road, other, HoldOrder.RELEASE)
    await road.settle(leader)
    assert ends(road) == [] and [one.user_id for one in in_lane(road)] == ["user-2"]
    road.dropped.down = False
    await road.settle(leader)
    assert len(ends(road)) == 1 and [one.user_id for one in road.dropped.deliveries] == ["user-1"]


async def test_an_order_that_was_obeyed_is_taken_off_the_log(road: CampaignRoad) -> None:
    ids = [await put(road, number) for number in (1, 2)]
    leader = await road.leader()
    await order(road, ids[0], HoldOrder.RELEASE)
    await order(road, ids[1], HoldOrder.DROP)
    await road.settle(leader)
    assert open_orders(road) == set(ids), "dispatch may yet have to do it again"
    road.clock.advance(60_001)
    await road.settle(leader)
    assert open_orders(road) == set()


async def test_an_order_of_which_the_last_leader_died_is_obeyed_by_the_next(road: CampaignRoad) -> None:
    ids = [await put(road, number) for number in (1, 2)]
    leader = await road.leader()
    for hold_id, wanted in zip(ids, HoldOrder, strict=True):
        await order(road, hold_id, wanted)
    road.log.fail, road.log.only = True, frozenset({TOPICS.hold, LANE})
    with pytest.raises(Transient):
        await leader.look(1)
    road.log.fail = False
    await road.settle(await road.leader(epoch=2), 2)
    assert [one.user_id for one in in_lane(road)] == ["user-1"]
    assert {end.slot for end in ends(road)} == {2}


async def test_an_order_read_before_its_delivery_is_obeyed_when_that_comes(road: CampaignRoad) -> None:
    hold_id = held(1).key or b""
    await order(road, hold_id, HoldOrder.RELEASE)
    leader = await road.leader()
    await road.settle(leader)
    assert await put(road, 1) == hold_id
    await road.settle(leader)
    assert [one.user_id for one in in_lane(road)] == ["user-1"]


async def test_an_order_speaks_of_one_hop_and_not_of_what_waits_later(road: CampaignRoad) -> None:
    hold_id = await put(road, 1)
    leader = await road.leader()
    await order(road, hold_id, HoldOrder.DROP)
    await road.settle(leader)
    await road.log.publish([held(1, hop=2)])
    await road.settle(leader)
    assert len(ends(road)) == 1


async def test_an_order_that_nobody_can_read_harms_nobody(road: CampaignRoad) -> None:
    hold_id = await put(road, 1)
    await road.log.publish([Outgoing(TOPICS.hold_control, hold_id, b"?")])
    leader = await road.leader()
    await road.settle(leader)
    await order(road, hold_id, HoldOrder.RELEASE)
    await road.settle(leader)
    assert len(in_lane(road)) == 1
