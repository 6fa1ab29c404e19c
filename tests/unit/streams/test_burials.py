"""What a campaign leaves in the log goes long after its end; its id is free again then, and not a moment before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.controls import Controls
from producers.campaign import UNKNOWN
from producers.campaign_view import CampaignView, Options
from schemas import codec, keys
from schemas.errors import Transient
from schemas.forgetting import QUIET_MS
from schemas.messages import (
    CampaignControl,
    CampaignCursor,
    CampaignOrder,
    CampaignProgress,
    CampaignState,
    CampaignStatus,
    Channel,
    EventKind,
    Held,
    HeldPage,
    Message,
    StatusEvent,
)
from schemas.policies import MessageClass, TemplatePolicy
from schemas.records import Outgoing, Record
from streams.burials import AT_ONCE, Burials
from streams.campaigns import Campaigns
from streams.dispatch import Dispatch
from streams.holds import Holds
from streams.status_sweep import Sweep
from tests.doubles import campaigns as accepted
from tests.doubles.campaign_road import CampaignRoad, Leads
from tests.doubles.manual_clock import START_MS, ManualClock
from tests.doubles.memory_log import MemoryView
from tests.doubles.status_road import TOPICS, batch

POLICIES = {"offer": TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH,))}
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
KEY = keys.campaign_key("default", "spring")
COMPACTED = (TOPICS.cursor, TOPICS.progress, TOPICS.campaign_control, TOPICS.campaign_state)


class Months(CampaignRoad):
    """Its status process reads each record once, and deletes old rows when it is told to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, POLICIES)
        self._seen: set[tuple[int, int]] = set()

    async def read_on(self) -> None:
        fresh = [record for record in self.records() if (record.partition, record.offset) not in self._seen]
        self._seen |= {(record.partition, record.offset) for record in fresh}
        await self.read(fresh)
        await Sweep(self.flow, self.clock).run_due()
        await self.flow.publish_progress()


@pytest.fixture
async def road(tmp_path: Path) -> Months:
    road = Months(tmp_path)
    await road.restart()
    return road


async def order(road: Months, wanted: CampaignOrder) -> None:
    control = CampaignControl("default", "spring", wanted, 0, road.clock.now_ms())
    key = keys.control_key("default", "spring", wanted).encode()
    await road.log.publish([Outgoing(TOPICS.campaign_control, key, codec.encode(control))])


async def send(road: Months, users: list[str]) -> None:
    """The page of these users is planned and sent."""
    row = keys.recipient_address("spring", 0, 0).row
    for slot, user in enumerate(users):
        planned = StatusEvent(slot, EventKind.PLANNED, START_MS, plan=("push",), source_offset=1, user_id=user)
        sent = StatusEvent(slot, EventKind.SENT, START_MS, delivery="push", call=1)
        await road.write(batch(planned, row=row), batch(sent, row=row))
    await road.read_on()


async def ended(road: Months) -> Dispatch:
    """A campaign to three that was paused, resumed, slowed down and has ended; its leader."""
    await accepted.accept(road.log, TOPICS, "spring", ["a", "b", "c"])
    leader = await road.leader()
    for wanted in (CampaignOrder.PAUSED, CampaignOrder.RUNNING, CampaignOrder.PACE):
        await order(road, wanted)
    await leader.look(1)
    await send(road, ["a", "b", "c"])
    await leader.look(1)
    assert road.campaign("spring").finished_at is not None
    return leader


def expire(road: Months) -> None:
    """The log holds no requests any more. States it may hold for years: compaction puts old ones beside new ones."""
    topic = TOPICS.campaign_requests
    for partition in range(road.log.partition_count):
        road.log.expire(topic, partition, road.log.ends(topic, partition)[1])


async def days_later(road: Months, leader: Dispatch, days: int, epoch: int = 1) -> None:
    """The leader looks every day, and rows go as it says. The log keeps requests for up to 31 days."""
    for day in range(1, days + 1):
        road.clock.advance(DAY_MS)
        if day == 31:
            expire(road)
        await leader.look(epoch)
        await road.read_on()


def left(road: Months) -> set[tuple[str, bytes | None]]:
    """(topic, key) of what compaction keeps of the campaign."""
    newest = {(record.topic, record.key): record.value for record in road.log.records(*COMPACTED)}
    return {place for place, value in newest.items() if value is not None}


async def view_of(road: Months) -> CampaignView:
    view = CampaignView(TOPICS, road.clock)
    await view.open(road.log)
    return view


async def test_forty_days_after_a_campaign_was_last_heard_of_nothing_of_it_is_left(road: Months) -> None:
    leader = await ended(road)
    standby = Campaigns(TOPICS, POLICIES)
    await road.log.follow(standby.topics, standby.on_record)
    await days_later(road, leader, 39)
    assert len(left(road)) == 5, "state, cursor, counts, the resume and the pace"
    assert standby.find(KEY) is not None
    await days_later(road, leader, 2)
    assert not left(road)
    assert standby.find(KEY) is None
    written = len(road.log.records(*COMPACTED))
    await days_later(road, leader, 2)
    assert len(road.log.records(*COMPACTED)) == written, "once each"


async def test_a_new_campaign_of_a_free_id_goes_to_everybody_and_is_counted_from_zero(road: Months) -> None:
    leader, view = await ended(road), await view_of(road)
    await days_later(road, leader, 39)
    assert (await view.first("default", "spring")) is not None
    await days_later(road, leader, 2)
    assert await view.first("default", "spring") is None
    assert await (await view_of(road)).first("default", "spring") is None
    now_ms = road.clock.now_ms()
    times = {"accepted_at_ms": now_ms, "expires_at_ms": now_ms + DAY_MS}
    await accepted.accept(road.log, TOPICS, "spring", ["d", "e"], "upload-2", **times)
    for _ in range(2):
        await leader.look(1)
    assert [[one.user_id for one in page.recipients] for page in road.pages()] == [["a", "b", "c"], ["d", "e"]]
    told = view.find("default", "spring")
    assert told is not None and (told.expected, told.counts().finished) == (2, 0)
    await send(road, ["d", "e"])
    await leader.look(1)
    assert told.state is not None and (told.state.finished, told.finished_at_ms) == (2, road.clock.now_ms())


async def test_nothing_goes_while_the_log_holds_the_request(road: Months) -> None:
    """A deployment may keep requests for longer. Who starts then would run the campaign again."""
    leader = await ended(road)
    road.clock.advance(2 * QUIET_MS)
    await leader.look(1)
    assert len(left(road)) == 5
    expire(road)
    road.clock.advance(HOUR_MS)
    await leader.look(1)
    assert not left(road)


async def test_nothing_goes_while_something_of_it_is_held(road: Months) -> None:
    """A part that lies in hold would be taken for one of the next campaign. Who never ended may have one for long."""
    cursor = CampaignCursor("default", "spring", 1, 1, 3, 3, START_MS)
    await road.log.publish([Outgoing(TOPICS.cursor, KEY.encode(), codec.encode(cursor))])
    hold_id = keys.held_page_id("default", "spring", 7, (1,), 1).encode()
    held = Held("default", START_MS, "quiet_hours", 1, START_MS, HeldPage("spring", 7, 7, (1,)))
    leader = await road.leader()
    await road.log.publish([Outgoing(TOPICS.hold, hold_id, codec.encode(held))])
    road.clock.advance(2 * QUIET_MS)
    await leader.look(1)
    assert left(road) == {(TOPICS.cursor, KEY.encode())}
    await road.log.publish([Outgoing(TOPICS.hold, hold_id, None)])
    road.clock.advance(HOUR_MS)
    await leader.look(1)
    assert not left(road)


async def test_a_new_leader_removes_nothing_in_its_first_hour(road: Months) -> None:
    """What the one before still had under way is in the log by then."""
    await ended(road)
    expire(road)
    road.clock.advance(2 * QUIET_MS)
    later = await road.leader(epoch=2)
    await later.look(2)
    assert len(left(road)) == 5
    road.clock.advance(HOUR_MS)
    await later.look(2)
    assert not left(road)


async def test_an_id_is_used_until_the_last_tombstone_is_in_the_log_though_the_leader_dies_before_it(
    road: Months,
) -> None:
    leader, view = await ended(road), await view_of(road)
    expire(road)
    road.clock.advance(2 * QUIET_MS)
    road.log.fail, road.log.only = True, frozenset({TOPICS.cursor})
    with pytest.raises(Transient):
        await leader.look(1)
    road.log.fail = False
    assert left(road) == {(TOPICS.cursor, KEY.encode())}
    assert await view.first("default", "spring") is not None
    assert await (await view_of(road)).first("default", "spring") is UNKNOWN
    later = await road.leader(epoch=2)
    road.clock.advance(HOUR_MS)
    await later.look(2)
    assert not left(road)
    assert await view.first("default", "spring") is None


@pytest.mark.parametrize("written", [{TOPICS.progress}, {TOPICS.progress, TOPICS.campaign_control}, set(COMPACTED)])
async def test_a_standby_of_weeks_that_takes_over_halfway_says_nothing_of_the_campaign_and_removes_the_rest(
    road: Months, written: set[str]
) -> None:
    """It still knows the request. Told without its counts, a campaign would have ended with nobody sent to."""
    await ended(road)
    standby = await road.leader(epoch=2)
    expire(road)
    road.clock.advance(QUIET_MS)
    told = len(road.log.records(TOPICS.campaign_state))
    for topic, key in sorted(left(road)):
        if topic in written - {TOPICS.cursor}:
            await road.log.publish([Outgoing(topic, key, None)])
    await standby.look(2)
    assert not [state for state in road.log.records(TOPICS.campaign_state)[told:] if state.value is not None]
    road.clock.advance(HOUR_MS)
    await standby.look(2)
    assert not left(road)


@pytest.mark.parametrize("order", [*permutations((TOPICS.progress, TOPICS.campaign_control, TOPICS.campaign_state))])
async def test_until_its_id_is_free_who_asks_for_an_ended_campaign_is_told_the_truth_or_that_it_is_not_kept(
    road: Months, order: tuple[str, ...]
) -> None:
    """Topics are read side by side, and dispatch may die before the last tombstone. One API has run for weeks."""
    await ended(road)
    weeks = await view_of(road)
    expire(road)
    views = [weeks, await view_of(road)]
    road.clock.advance(QUIET_MS)
    buried = [place for place in left(road) if place[0] in order]
    for topic, key in sorted(buried, key=lambda place: order.index(place[0])):
        await road.log.publish([Outgoing(topic, key, None)])
        for view in views:
            told = view.find("default", "spring")
            assert told is None or (told.status(START_MS), told.counts().finished) == (CampaignStatus.PROCESSED, 3)
            assert await view.first("default", "spring") is not None
    assert not any(view.find("default", "spring") for view in views)


async def test_a_leader_that_is_deposed_meanwhile_leaves_the_last_tombstone_to_the_next(road: Months) -> None:
    await ended(road)
    expire(road)
    campaigns, leads = Campaigns(TOPICS, POLICIES), Leads(1)
    await road.log.follow(campaigns.topics, campaigns.on_record)
    burials = Burials(campaigns, Holds(TOPICS), road.log, leads, road.log, TOPICS, road.clock)
    road.log.listen(TOPICS.progress, lambda _: setattr(leads, "epoch", None))
    road.clock.advance(2 * QUIET_MS)
    await burials.run_due(1, MemoryView().caught_up)
    assert left(road) == {(TOPICS.cursor, KEY.encode())}


async def test_a_late_report_keeps_an_id_used_for_another_forty_days(road: Months) -> None:
    leader = await ended(road)
    await days_later(road, leader, 41)
    view = await view_of(road)
    await send(road, ["a"])
    assert await view.first("default", "spring") is UNKNOWN
    await days_later(road, leader, 39)
    assert await view.first("default", "spring") is UNKNOWN
    await days_later(road, leader, 2)
    assert await view.first("default", "spring") is None
    assert not left(road)


async def test_what_a_deposed_leader_removes_late_is_not_what_a_new_campaign_of_that_id_has(
    road: Months,
) -> None:
    """It was frozen for hours before its last write: nobody is sent to twice, and a cancel holds."""
    await accepted.accept(road.log, TOPICS, "spring", ["a", "b", "c"])
    leader, view, sender = await road.leader(), await view_of(road), Controls()
    await sender.load(road.log, TOPICS)
    await leader.look(1)
    await send(road, ["a"])
    await order(road, CampaignOrder.CANCELLED)
    road.clock.advance(HOUR_MS)
    for topic, key in sorted(left(road)):
        await road.log.publish([Outgoing(topic, key, None)])
    assert sender.order("default", "spring") is CampaignOrder.CANCELLED
    told = view.find("default", "spring")
    assert told is not None and told.is_cancelled and told.counts().finished == 1
    await leader.look(1)
    assert {(TOPICS.cursor, KEY.encode()), (TOPICS.campaign_state, KEY.encode())} <= left(road), "written again"
    assert len(road.pages()) == 1


@pytest.mark.parametrize("tombstones_first", [True, False])
async def test_who_still_knows_the_old_campaign_takes_the_new_one_though_tombstones_are_read_later(
    road: Months, tombstones_first: bool
) -> None:
    """Topics are read side by side: a standby of dispatch, another API that has dropped it, one that keeps it."""
    await ended(road)
    keeps, drops = await view_of(road), CampaignView(TOPICS, road.clock, Options(most=0))
    await drops.open(road.log)
    standby = Campaigns(TOPICS, POLICIES)
    await road.log.follow(standby.topics, standby.on_record)
    road.clock.advance(QUIET_MS)
    buried = [Outgoing(topic, key, None) for topic, key in sorted(left(road))]
    now_ms = road.clock.now_ms()
    wanted = accepted.request(upload_id="upload-2", accepted_at_ms=now_ms, expires_at_ms=now_ms + DAY_MS)
    asked = [accepted.request_record(TOPICS, wanted)]
    for record in (*buried, *asked) if tombstones_first else (*asked, *buried):
        await road.log.publish([record])
    [(campaign, request)] = standby.unfinished()
    assert (request.upload_id, campaign.next_page, campaign.counts().finished) == ("upload-2", 0, 0)
    for view in (keeps, drops):
        told = view.find("default", "spring")
        assert told is not None and told.first is not None and told.first.upload_id == "upload-2"
        assert (told.finished_at_ms, told.counts().finished) == (0, 0)


async def test_ten_thousands_of_old_campaigns_are_gone_within_a_day_some_every_minute(road: Months) -> None:
    """As where this comes to a deployment that has kept all there ever were; running campaigns do not wait for it."""
    cursors = [CampaignCursor("default", f"news-{number}", 1, 1, 1, 1, START_MS) for number in range(2 * AT_ONCE + 1)]
    await road.log.publish(
        [
            Outgoing(TOPICS.cursor, keys.campaign_key("default", one.campaign_id).encode(), codec.encode(one))
            for one in cursors
        ]
    )
    leader = await road.leader()
    road.clock.advance(2 * QUIET_MS)
    for rest in (AT_ONCE + 1, 1, 0):
        await leader.look(1)
        await leader.look(1)
        assert len(left(road)) == rest
        road.clock.advance(60_000)


async def test_a_sender_forgets_a_cancel_with_its_campaign(road: Months) -> None:
    """Else the messages of the next campaign of that id would end as cancelled."""
    sender = Controls()
    await sender.load(road.log, TOPICS)
    for wanted in (CampaignOrder.PAUSED, CampaignOrder.CANCELLED):
        await order(road, wanted)
    road.clock.advance(QUIET_MS)
    await road.log.publish([Outgoing(TOPICS.campaign_control, keys.cancel_key("default", "spring").encode(), None)])
    assert sender.order("default", "spring") is CampaignOrder.PAUSED
    await road.log.publish([Outgoing(TOPICS.campaign_control, KEY.encode(), None)])
    assert sender.order("default", "spring") is CampaignOrder.RUNNING


def lives() -> dict[str, list[Record]]:
    """Topic -> what the log holds of a campaign of long ago and of the next one of its id, in its order."""
    later_ms = START_MS + 2 * QUIET_MS
    end_ms = START_MS + QUIET_MS + DAY_MS
    request = accepted.request(upload_id="upload-2", accepted_at_ms=later_ms, pages=9)

    def cursor(epoch: int, page: int, at_ms: int) -> CampaignCursor:
        return CampaignCursor("default", "spring", epoch, page, page, page, at_ms)

    def progress(version: int, finished: int) -> CampaignProgress:
        return CampaignProgress("default", "spring", 0, version, finished, finished, 0, 0, {"sent": finished}, {}, 0)

    state = CampaignState(
        "default", "spring", "offer", CampaignStatus.PROCESSED, 250, 250, 250, 250, 0, {}, {}, 0, 7, 5, 1, 1, START_MS
    )
    cancel = CampaignControl("default", "spring", CampaignOrder.CANCELLED, 0, START_MS)
    pause = CampaignControl("default", "spring", CampaignOrder.PAUSED, 0, later_ms)
    named: dict[str, tuple[str, list[Message | None]]] = {
        TOPICS.cursor: (KEY, [cursor(7, 99, START_MS), None, cursor(7, 1, later_ms)]),
        TOPICS.progress: (keys.progress_key("default", "spring", 0), [progress(5, 250), None]),
        TOPICS.campaign_state: (KEY, [state, None]),
        TOPICS.campaign_control: (keys.cancel_key("default", "spring"), [cancel, None]),
        TOPICS.campaign_requests: (KEY, [request]),
    }
    found: dict[str, list[Record]] = {}
    for topic, (key, values) in named.items():
        times = [later_ms] if len(values) == 1 else [START_MS, end_ms, later_ms]
        found[topic] = [record(topic, key, value, at_ms) for value, at_ms in zip(values, times, strict=False)]
    found[TOPICS.campaign_control].append(record(TOPICS.campaign_control, KEY, pause, later_ms))
    return found


def record(topic: str, key: str, value: Message | None, at_ms: int) -> Record:
    return Record(topic, 0, 0, key.encode(), None if value is None else codec.encode(value), (), at_ms)


def merged(found: dict[str, list[Record]], turns: list[str]) -> Iterator[Record]:
    """The topics side by side: each in its order, one record a turn; the rest at the end."""
    waiting = {topic: iter(records) for topic, records in found.items()}
    for topic in (*turns, *(topic for topic in found for _ in range(9))):
        if (one := next(waiting[topic], None)) is not None:
            yield one


class InTurn:
    """Tails of a log that is read in this order: by dispatch and a sender, and by whoever follows it."""

    def __init__(self, records: Iterator[Record], known: Campaigns, sender: Controls) -> None:
        self._records = records
        self._known = known
        self._sender = sender

    async def follow(self, topics: Sequence[str], on_record: Callable[[Record], None]) -> MemoryView:
        for record in self._records:
            self._known.on_record(record)
            on_record(record)
            if record.topic == TOPICS.campaign_control:
                self._sender.see(record)
        return MemoryView()


@given(st.lists(st.sampled_from(sorted(lives())), max_size=12))
def test_whatever_order_topics_are_read_in_a_new_campaign_has_nothing_of_the_old_one(turns: list[str]) -> None:
    known, sender, view = Campaigns(TOPICS, POLICIES), Controls(), CampaignView(TOPICS, ManualClock())
    asyncio.run(view.open(InTurn(merged(lives(), turns), known, sender)))
    told = view.find("default", "spring")
    [(campaign, request)] = known.unfinished()
    assert told is not None and told.requested == request and request.upload_id == "upload-2"
    assert told.cursor == campaign.cursor and campaign.next_page == 1
    assert not (told.progress or campaign.progress or told.state or campaign.state)
    assert (told.is_cancelled, campaign.is_cancelled, campaign.is_paused) == (False, False, True)
    assert sender.order("default", "spring") is CampaignOrder.PAUSED
