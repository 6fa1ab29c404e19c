"""Goal: what waits in hold goes when it is due, once, at the pace of the lanes, or ends; and the counts close."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from retry_topics import hold
from schemas import codec, keys
from schemas.errors import Transient
from schemas.messages import (
    AudiencePage,
    CampaignControl,
    CampaignOrder,
    CampaignStatus,
    Channel,
    Delivery,
    EventKind,
    Held,
    HeldPage,
    Priority,
    Recipient,
    StatusEvent,
)
from schemas.policies import MessageClass, TemplatePolicy
from schemas.reasons import Reason
from schemas.records import Outgoing, Placed, Record, TopicView
from streams.dispatch import Dispatch
from streams.lanes import Window
from tests.doubles import campaigns as accepted
from tests.doubles.campaign_road import CampaignRoad
from tests.doubles.deliveries import single
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_road import TOPICS, batch

POLICIES = {"offer": TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH,))}
LANE = TOPICS.lane(Channel.PUSH, Priority.BULK)
HOUR_MS = 3_600_000
DUE_MS = START_MS + HOUR_MS


@pytest.fixture
async def road(tmp_path: Path) -> CampaignRoad:
    road = CampaignRoad(tmp_path, POLICIES)
    await road.restart()
    return road


async def held_campaign(
    road: CampaignRoad, pages: int = 2, due_ms: int = DUE_MS, reason: str = Reason.QUIET_HOURS
) -> Dispatch:
    """The leader of a campaign all of whose recipients wait, as fan-out put them into hold."""
    request = await accepted.accept(road.log, TOPICS, "spring", 250 * pages)
    leader = await road.leader()
    await road.settle(leader)
    for page in road.pages():
        await put_off(road, page.page, page.source_offset, tuple(range(250)), due_ms, reason)
    assert sorted(page.page for page in road.pages()) == list(range(pages))
    assert request.recipients == 250 * pages
    return leader


async def put_off(
    road: CampaignRoad, page: int, offset: int, slots: Sequence[int], due_ms: int, reason: str, hop: int = 1
) -> None:
    held = Held(
        "default", due_ms, reason, hop, road.clock.now_ms(), page=HeldPage("spring", page, offset, tuple(slots))
    )
    row = keys.recipient_address("spring", page, 0).row
    waits = [
        StatusEvent(slot, EventKind.HELD, START_MS, hop=hop, reason=reason, until_ms=due_ms, user_id=f"u{slot}")
        for slot in slots
    ]
    await road.write(batch(*waits, row=row))
    await road.log.publish([hold.page_record(TOPICS, held)])


async def put_single(
    road: CampaignRoad, number: int, due_ms: int = DUE_MS, reason: str = "scheduled", **changes: object
) -> None:
    address = keys.single_address("0a1b2c3d", 0, number)
    delivery = single(
        f"customer-{number}", f"order-{number}", number, channel=Channel.PUSH, priority=Priority.BULK, hop=1
    )
    delivery = replace(delivery, row=address.row, slot=address.slot, **changes)  # type: ignore[arg-type]
    await road.log.publish(
        [hold.delivery_record(TOPICS, Held("default", due_ms, reason, 1, START_MS, delivery=delivery), (("a", b"b"),))]
    )


async def order(road: CampaignRoad, wanted: CampaignOrder) -> None:
    control = CampaignControl("default", "spring", wanted, 0, START_MS)
    key = keys.control_key("default", "spring", wanted).encode()
    await road.log.publish([Outgoing(TOPICS.campaign_control, key, codec.encode(control))])


class Lagging:
    """Tails whose view of hold has met all but the tombstones when it is first asked whether it has caught up."""

    def __init__(self, road: CampaignRoad) -> None:
        self._road = road
        self._later: list[Callable[[], None]] = []
        self._is_read = asyncio.Event()
        self.asked = asyncio.Event()

    async def follow(self, topics: Sequence[str], on_record: Callable[[Record], None]) -> TopicView:
        if TOPICS.hold not in topics:
            return await self._road.log.follow(topics, on_record)
        for record in self._road.log.records(*topics):
            if record.value is None:
                self._later.append(partial(on_record, record))
            else:
                on_record(record)
        return self

    async def caught_up(self) -> None:
        self.asked.set()
        await self._is_read.wait()

    async def seen(self, topic: str, placed: Placed) -> None:
        await self._is_read.wait()

    def read_on(self) -> None:
        for deliver in self._later:
            deliver()
        self._is_read.set()


def let_go(road: CampaignRoad, hop: int = 1) -> list[tuple[int, tuple[int, ...]]]:
    """(page, slots) of what came out of hold."""
    return [(page.page, page.slots) for page in road.pages() if page.hop == hop]


def reached(road: CampaignRoad) -> list[tuple[int, int]]:
    """(page, slot) of each recipient that came out of hold, sorted."""
    return sorted((page, slot) for page, slots in let_go(road) for slot in slots)


def everybody(pages: int) -> list[tuple[int, int]]:
    return [(page, slot) for page in range(pages) for slot in range(250)]


def buried(road: CampaignRoad) -> int:
    return sum(record.value is None for record in road.log.records(TOPICS.hold))


def in_lane(road: CampaignRoad) -> list[Delivery]:
    return [codec.decode(record.value, Delivery) for record in road.log.records(LANE) if record.value]


async def test_a_part_goes_out_when_it_is_due_and_not_before(road: CampaignRoad) -> None:
    leader = await held_campaign(road)
    road.clock.advance(HOUR_MS - 1)
    await road.settle(leader)
    assert let_go(road) == []
    road.clock.advance(1)
    await road.settle(leader)
    assert reached(road) == everybody(2)
    assert buried(road) == 2
    released = next(page for page in road.pages() if (page.page, page.hop) == (0, 1))
    assert released.recipients[3].user_id == "spring-3"
    assert released.released_at_ms == road.clock.now_ms()


async def test_only_the_slots_that_wait_come_out_and_each_person_travels_once(road: CampaignRoad) -> None:
    await accepted.accept(road.log, TOPICS, "spring", 250)
    leader = await road.leader()
    await leader.look(1)
    await put_off(road, 0, road.pages()[0].source_offset, (3, 9), DUE_MS, "quiet_hours")
    road.clock.advance(HOUR_MS)
    await leader.look(1)
    (page,) = [page for page in road.pages() if page.hop == 1]
    assert page.slots == (3, 9)
    assert {slot for slot, one in enumerate(page.recipients) if one.user_id} == {3, 9}


async def test_what_is_due_fills_a_lane_like_fresh_pages_and_no_further(road: CampaignRoad) -> None:
    leader = await held_campaign(road, pages=20, due_ms=DUE_MS)
    road.clock.advance(HOUR_MS)
    road.fans_out = False
    await leader.look(1)
    await leader.look(1)
    assert sum(len(slots) for _, slots in let_go(road)) == 3_500, "5 s of 700 a second"


async def test_a_slow_lane_gets_a_part_in_pieces_and_its_tombstone_after_the_last(road: CampaignRoad) -> None:
    await held_campaign(road, pages=1)
    road.window, road.rates[Channel.PUSH] = Window(piece_s=0.1), 20.0
    leader = await road.leader(epoch=2)
    road.clock.advance(HOUR_MS)
    road.fans_out = False
    await leader.look(2)
    some = reached(road)
    assert 0 < len(some) < 250
    assert buried(road) == 0
    for _ in range(20):
        road.fans_out = True
        await leader.look(2)
    assert reached(road) == everybody(1), "each once"
    assert buried(road) == 1


async def test_a_paused_campaigns_parts_wait_and_go_when_it_is_resumed(road: CampaignRoad) -> None:
    leader = await held_campaign(road, due_ms=0, reason=Reason.CAMPAIGN_PAUSED)
    await order(road, CampaignOrder.PAUSED)
    road.clock.advance(2 * HOUR_MS)
    await road.settle(leader)
    assert let_go(road) == []
    await order(road, CampaignOrder.RUNNING)
    await road.settle(leader)
    assert reached(road) == everybody(2)


async def test_a_cancel_ends_whoever_is_held_and_the_sum_closes(road: CampaignRoad) -> None:
    leader = await held_campaign(road)
    await order(road, CampaignOrder.CANCELLED)
    await road.settle(leader)
    state = road.campaign("spring")
    assert (state.status, state.outcomes) == (CampaignStatus.CANCELLED, {"cancelled": 500})
    assert state.finished_at is not None
    assert let_go(road) == []
    assert buried(road) == 2


async def test_an_expiry_ends_whoever_is_held_even_when_all_pages_went(road: CampaignRoad) -> None:
    leader = await held_campaign(road, due_ms=0, reason=Reason.CAMPAIGN_PAUSED)
    await order(road, CampaignOrder.PAUSED)
    road.clock.advance(72 * HOUR_MS)
    await road.settle(leader)
    state = road.campaign("spring")
    assert (state.status, state.outcomes) == (CampaignStatus.EXPIRED, {"expired": 500})
    assert state.finished_at is not None


async def test_a_part_whose_page_the_log_lost_ends_and_the_sum_closes(road: CampaignRoad) -> None:
    leader = await held_campaign(road)
    lost = next(page for page in road.pages() if page.page == 0)
    partition = next(record.partition for record in road.log.records(TOPICS.audience))
    road.log.expire(TOPICS.audience, partition, lost.source_offset + 1)
    road.clock.advance(HOUR_MS)
    await road.settle(leader)
    assert reached(road) == [(1, slot) for slot in range(250)]
    state = road.campaign("spring")
    assert (state.outcomes, state.reasons) == ({"failed": 250}, {"audience_lost": 250})
    assert buried(road) == 2


async def test_a_part_with_very_long_values_comes_out_in_several_records(road: CampaignRoad) -> None:
    wanted = await accepted.accept(road.log, TOPICS, "other", 1)
    values = '{"x":"' + "y" * 600_000 + '"}'
    own = tuple(Recipient(f"u{n}", "z" * 500_000 if n == 7 else "z" * 3_000) for n in range(60))
    page = AudiencePage("default", "spring", "upload-1", 0, own)
    await road.log.publish([Outgoing(TOPICS.audience, b"x", codec.encode(page), partition=wanted.partition)])
    spring = replace(wanted, campaign_id="spring", recipients=60, params=values, first_offset=1, last_offset=1)
    await road.log.publish([accepted.request_record(TOPICS, spring)])
    await put_off(road, 0, 1, tuple(range(50)), DUE_MS, Reason.QUIET_HOURS)
    leader = await road.leader()
    road.clock.advance(HOUR_MS)
    await road.settle(leader)
    assert sorted(slot for _, slots in let_go(road) for slot in slots) == [n for n in range(50) if n != 7]
    assert buried(road) == 1
    assert [(event.slot, event.reason) for event in road.ends()[0] if event.kind is EventKind.FAILED][-1] == (
        7,
        "too_large",
    )


async def test_a_campaign_is_not_complete_while_somebody_is_held(road: CampaignRoad) -> None:
    leader = await held_campaign(road)
    await leader.look(1)
    road.clock.advance(60_000)
    await road.settle(leader)
    state = road.campaign("spring")
    assert (state.status, state.finished, state.finished_at) == (CampaignStatus.RUNNING, 0, None)
    assert state.waits_for == "hold"


async def test_a_campaign_that_slept_is_not_called_stalled_when_it_wakes_up(
    road: CampaignRoad, caplog: pytest.LogCaptureFixture
) -> None:
    leader = await held_campaign(road)
    road.clock.advance(HOUR_MS)
    await road.settle(leader)
    assert "campaign.stalled" not in caplog.text


async def test_a_leader_that_died_before_the_tombstone_is_followed_by_one_that_lets_it_go_again(
    road: CampaignRoad,
) -> None:
    leader = await held_campaign(road, pages=1)
    road.clock.advance(HOUR_MS)
    road.log.fail, road.log.only = True, frozenset({TOPICS.hold})
    with pytest.raises(Transient):
        await leader.look(1)
    road.log.fail = False
    await (await road.leader(epoch=2)).look(2)
    assert let_go(road) == [(0, tuple(range(250)))] * 2, "the same slots with the same hop"
    assert buried(road) == 1


async def test_what_the_log_refused_stays_in_hold(road: CampaignRoad) -> None:
    leader = await held_campaign(road, pages=1)
    road.clock.advance(HOUR_MS)
    road.log.fail, road.log.only = True, frozenset({TOPICS.pages})
    with pytest.raises(Transient):
        await leader.look(1)
    road.log.fail = False
    assert buried(road) == 0
    await leader.look(1)
    assert reached(road) == everybody(1)


async def test_what_was_let_go_does_not_come_again_with_the_next_leader(road: CampaignRoad) -> None:
    leader = await held_campaign(road, pages=1)
    road.clock.advance(HOUR_MS)
    await leader.look(1)
    await (await road.leader(epoch=2)).look(2)
    assert len(let_go(road)) == 1


async def test_a_leader_lets_nothing_go_before_it_has_read_all_of_hold(road: CampaignRoad) -> None:
    leader = await held_campaign(road, pages=1)
    road.clock.advance(HOUR_MS)
    await leader.look(1)
    tails = Lagging(road)
    successor = await road.leader(epoch=2, tails=tails)
    running = asyncio.create_task(successor.run())
    async with asyncio.timeout(10):
        await tails.asked.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    tails.read_on()
    await successor.followed.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    successor.stop()
    await running
    assert len(let_go(road)) == 1, "what was let go before it led has a tombstone"


async def test_put_off_again_it_goes_once_more_under_its_next_hop(road: CampaignRoad) -> None:
    leader = await held_campaign(road, pages=1)
    road.clock.advance(HOUR_MS)
    await leader.look(1)
    await put_off(road, 0, road.pages()[0].source_offset, (5,), DUE_MS + HOUR_MS, "scheduled", hop=2)
    road.clock.advance(HOUR_MS)
    await leader.look(1)
    assert let_go(road, hop=2) == [(0, (5,))]


async def test_a_part_that_may_have_gone_yesterday_makes_fan_out_ask_its_row(road: CampaignRoad) -> None:
    leader = await held_campaign(road, pages=1)
    road.clock.advance(25 * HOUR_MS)
    await leader.look(1)
    (page,) = [page for page in road.pages() if page.hop == 1]
    assert road.clock.now_ms() - page.released_at_ms > 22 * HOUR_MS


async def test_a_held_single_goes_into_its_lane_when_it_is_due_with_its_headers(road: CampaignRoad) -> None:
    leader = await road.leader()
    await put_single(road, 1)
    await put_single(road, 2, due_ms=DUE_MS + 1)
    await leader.look(1)
    assert in_lane(road) == []
    road.clock.advance(HOUR_MS)
    await leader.look(1)
    (delivery,) = in_lane(road)
    assert (delivery.user_id, delivery.hop, delivery.released_at_ms) == ("customer-1", 1, DUE_MS)
    assert road.log.records(LANE)[0].headers == (("a", b"b"),)
    assert road.log.records(LANE)[0].key == b"default/customer-1"
    assert buried(road) == 1


async def test_held_singles_keep_to_the_window_of_their_lane(road: CampaignRoad) -> None:
    road.window, road.rates[Channel.PUSH] = Window(piece_s=0.1), 20.0
    leader = await road.leader()
    for number in range(100):
        await put_single(road, number)
    road.clock.advance(HOUR_MS)
    for _ in range(3):
        await leader.look(1)
    assert 60 <= len(in_lane(road)) <= 71, "5 s of 14 a second"
    assert buried(road) == len(in_lane(road))


async def test_deliveries_of_a_paused_campaign_wait_and_those_of_a_cancelled_one_go_to_end_in_the_lane(
    road: CampaignRoad,
) -> None:
    leader = await held_campaign(road)
    await put_single(road, 1, 0, Reason.CAMPAIGN_PAUSED, campaign_id="spring")
    await put_single(road, 2, DUE_MS, Reason.QUIET_HOURS, campaign_id="spring")
    await order(road, CampaignOrder.PAUSED)
    await leader.look(1)
    assert in_lane(road) == []
    await order(road, CampaignOrder.CANCELLED)
    await leader.look(1)
    assert {delivery.user_id for delivery in in_lane(road)} == {"customer-1", "customer-2"}


async def test_where_no_provider_is_usable_only_what_has_expired_goes(road: CampaignRoad) -> None:
    road.rates[Channel.PUSH] = 0.0
    leader = await road.leader()
    await put_single(road, 1)
    await put_single(road, 2, expires_at_ms=START_MS + HOUR_MS - 1)
    road.clock.advance(HOUR_MS)
    await leader.look(1)
    assert [delivery.user_id for delivery in in_lane(road)] == ["customer-2"]


async def test_what_is_held_of_a_cancelled_campaign_ends_though_its_provider_is_away(road: CampaignRoad) -> None:
    leader = await held_campaign(road)
    await put_single(road, 1, DUE_MS, Reason.QUIET_HOURS, campaign_id="spring")
    await put_single(road, 2, DUE_MS, Reason.QUIET_HOURS)
    road.rates[Channel.PUSH] = 0.0
    await order(road, CampaignOrder.CANCELLED)
    await leader.look(1)
    assert [delivery.user_id for delivery in in_lane(road)] == ["customer-1"]


async def test_leftovers_of_a_campaign_that_is_complete_are_cleared_away(road: CampaignRoad) -> None:
    leader = await held_campaign(road, pages=1)
    sent = [
        StatusEvent(slot, EventKind.CANCELLED, START_MS, reason="campaign_cancelled", user_id=f"u{slot}")
        for slot in range(250)
    ]
    await road.write(batch(*sent, row=keys.recipient_address("spring", 0, 0).row))
    await road.settle(leader)
    assert road.campaign("spring").finished_at is not None
    await leader.look(1)
    assert buried(road) == 1
    assert let_go(road) == []
