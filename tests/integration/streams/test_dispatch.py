"""Campaigns are let go fairly and at the pace of the lanes, on real Redis; the log is the one in memory."""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from deploy import redis_client
from deploy.redis_trips import RedisTrips
from schemas import codec, keys
from schemas.errors import Transient
from schemas.messages import (
    CampaignControl,
    CampaignCursor,
    CampaignOrder,
    CampaignProgress,
    CampaignState,
    CampaignStatus,
    Channel,
    EventKind,
    ReleasedPage,
    StatusBatch,
)
from schemas.policies import MessageClass, TemplatePolicy
from schemas.records import Outgoing, Record
from schemas.topics import Topics
from schemas.trips import Epoch
from streams.backlog import Backlog
from streams.burials import Burials
from streams.campaigns import Campaigns
from streams.digest_marks import DigestMarks
from streams.digests import Digests, Entries
from streams.dispatch import Dispatch
from streams.grants import Grants, Purse
from streams.held_release import HeldRelease
from streams.holds import Holds
from streams.letting_go import LettingGo
from streams.page_reader import PageReader, ReadAhead
from streams.release import Releases
from streams.ticks import Ticks
from tests.doubles import campaigns as accepted
from tests.doubles.campaign_road import WHOLE_PAGES
from tests.doubles.drops import Dropped
from tests.doubles.manual_clock import START_MS, ManualClock
from tests.doubles.memory_log import MemoryLog
from tests.doubles.status_road import IDS
from tests.doubles.stores import MemoryReads

TOPICS = Topics()
LANE = TOPICS.lane(Channel.PUSH, "bulk")
RATE = 1_000.0
"""Of the provider; bulk may have 700 of it."""
POLICIES = {
    "offer": TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH,)),
    "alarm": TemplatePolicy("alarm", MessageClass.TRANSACTIONAL, (Channel.PUSH,)),
}


class Leads:
    """Leadership that never ends."""

    def __init__(self, epoch: int) -> None:
        self.epoch: int | None = epoch

    async def acquired(self) -> int:
        assert self.epoch is not None
        return self.epoch


class World:
    def __init__(self, redis: Redis) -> None:
        self.redis, self.trips = redis, RedisTrips(redis, "dispatch")
        self.clock = ManualClock()
        self.log = MemoryLog(2, self.clock.now_ms)
        self.rates = dict.fromkeys(Channel, RATE)

    async def leader(self, epoch: int = 1) -> Dispatch:
        campaigns = Campaigns(TOPICS, POLICIES)
        pages = PageReader(self.log, self.log, park, TOPICS)
        ahead = ReadAhead(pages)
        letting_go = LettingGo(Holds(TOPICS), self.log, pages, TOPICS, MemoryReads())
        backlog = Backlog(self.log, self.trips, dict.fromkeys(TOPICS.lanes(), 2), self.clock)
        grants = Grants(self.trips)
        releases = Releases(
            POLICIES, ahead, backlog, grants, self.rate, TOPICS, {}, self.clock, letting_go, WHOLE_PAGES
        )
        await self.log.follow(campaigns.topics, campaigns.on_record)
        ticks = Ticks(self.log, TOPICS, 2, self.clock)
        held = HeldRelease(campaigns, letting_go, Dropped(), self.log, TOPICS, self.clock)
        await self.log.follow(held.holds.topics, held.holds.on_record)
        marks, entries = DigestMarks(self.trips, Epoch()), Entries({}, IDS)
        digests = Digests(campaigns, letting_go, marks, entries, POLICIES, self.log, TOPICS, self.clock)
        leads = Leads(epoch)
        burials = Burials(campaigns, held.holds, self.log, leads, self.log, TOPICS, self.clock)
        of_the_log = (self.log, self.log, TOPICS, self.clock)
        return Dispatch(campaigns, releases, ahead, grants, leads, *of_the_log, ticks, held, digests, burials)

    async def rate(self, channel: Channel) -> float:
        return self.rates[channel]

    async def fan_out(self) -> None:
        """Brings every released page to the lane."""
        for page in self.pages():
            first = min(page.slots, default=0)
            await self.redis.set(keys.redis_fanned("default", page.campaign_id, page.page, page.hop, first), b"")

    async def work(self, lying: int) -> None:
        """Workers have finished all but so many."""
        await self.log.publish([Outgoing(LANE, None, b"", partition=0)] * lying)
        await self.redis.delete(keys.redis_progress(LANE))

    def pages(self) -> list[ReleasedPage]:
        return [codec.decode(record.value, ReleasedPage) for record in self.log.records(TOPICS.pages)]

    def by_campaign(self) -> Counter[str]:
        return Counter(page.campaign_id for page in self.pages())

    def state(self, campaign_id: str) -> CampaignState:
        states = [codec.decode(record.value, CampaignState) for record in self.log.records(TOPICS.campaign_state)]
        mine = [state for state in states if state.campaign_id == campaign_id]
        return max(mine, key=lambda state: (state.epoch, state.version))

    async def progress(self, campaign_id: str, finished: int, version: int = 1, **outcomes: int) -> None:
        vector = CampaignProgress(
            "default", campaign_id, 0, version, finished, finished, 0, 0, outcomes, {}, possible_duplicates=0
        )
        await self.write(TOPICS.progress, keys.progress_key("default", campaign_id, 0), codec.encode(vector))

    async def order(self, campaign_id: str, order: CampaignOrder) -> None:
        cancel = order is CampaignOrder.CANCELLED
        key = keys.cancel_key("default", campaign_id) if cancel else keys.campaign_key("default", campaign_id)
        control = CampaignControl("default", campaign_id, order, 0, START_MS)
        await self.write(TOPICS.campaign_control, key, codec.encode(control))

    async def write(self, topic: str, key: str, value: bytes) -> None:
        await self.log.publish([Outgoing(topic, key.encode(), value)])


def park(record: Record, reason: str, text: str) -> Outgoing:
    return Outgoing(TOPICS.internal_dlq, record.key, record.value, (("tid-error-class", reason.encode()),))


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    redis = redis_client.connect(redis_url, Epoch())
    await redis.flushdb()
    yield World(redis)
    await redis.flushdb()
    await redis.aclose()


async def test_a_lane_gets_five_seconds_of_its_rate_and_no_more(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "long", 100_000)
    leader = await world.leader()
    await leader.look(1)
    assert len(world.pages()) == 14, "3,500 recipients are 5 s of 700/s"
    await leader.look(1)
    assert len(world.pages()) == 14, "none of them has reached the lane yet"


async def test_the_lane_is_topped_up_as_workers_finish(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "long", 100_000)
    leader = await world.leader()
    await leader.look(1)
    await world.fan_out()
    await world.work(lying=2_000)
    await leader.look(1)
    assert len(world.pages()) == 14 + 6, "3,500 less the 2,000 that still lie there"


async def test_nothing_goes_to_a_lane_without_a_usable_provider(world: World) -> None:
    world.rates[Channel.PUSH] = 0
    await accepted.accept(world.log, TOPICS, "long", 1_000)
    leader = await world.leader()
    await leader.look(1)
    assert world.pages() == []
    assert world.state("long").status is CampaignStatus.RUNNING


async def test_two_campaigns_share_the_pace_by_weight(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "heavy", 100_000, weight=3)
    await accepted.accept(world.log, TOPICS, "light", 100_000)
    leader = await world.leader()
    for _ in range(8):
        await leader.look(1)
        await world.fan_out()
    shares = world.by_campaign()
    assert shares["heavy"] + shares["light"] == 8 * 14
    assert shares["heavy"] == pytest.approx(3 * shares["light"], rel=0.1)


async def test_a_small_campaign_does_not_wait_behind_a_long_one(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "long", 1_000_000 // 10)
    leader = await world.leader()
    await leader.look(1)
    await world.fan_out()
    await accepted.accept(world.log, TOPICS, "small", 200)
    await leader.look(1)
    assert world.by_campaign()["small"] == 1


async def test_a_slow_channel_in_one_campaign_does_not_hold_up_another(world: World) -> None:
    world.rates[Channel.SMS] = 10
    await accepted.accept(world.log, TOPICS, "texts", 10_000, channels=(Channel.SMS, Channel.PUSH))
    await accepted.accept(world.log, TOPICS, "pushes", 10_000)
    leader = await world.leader()
    await leader.look(1)
    assert world.by_campaign() == {"texts": 1, "pushes": 12}, "room for the next page of texts is kept"


async def test_pages_of_other_uploads_are_passed_over(world: World) -> None:
    first = await accepted.accept(world.log, TOPICS, "spring", 250)
    await world.log.publish(
        [accepted.page_record(TOPICS, "spring", "abandoned", 1, ["eve"], partition=first.partition)]
    )
    await accepted.accept(world.log, TOPICS, "spring", ["mallory"], upload_id="second")
    later = accepted.page_record(TOPICS, "spring", "upload-1", 1, ["ann"], partition=first.partition)
    (placed,) = await world.log.publish([later])
    again = replace(first, campaign_id="summer", pages=2, recipients=251, last_offset=placed.offset)
    await world.write(TOPICS.campaign_requests, "default/summer", codec.encode(again))
    leader = await world.leader()
    await leader.look(1)
    summer = {page.page: page.recipients for page in world.pages() if page.campaign_id == "summer"}
    assert len(summer[0]) == 250
    assert [recipient.user_id for recipient in summer[1]] == ["ann"]


async def test_the_first_request_of_an_id_wins(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "spring", ["ann"])
    await accepted.accept(world.log, TOPICS, "spring", ["bob"], upload_id="other")
    await (await world.leader()).look(1)
    assert [r.user_id for page in world.pages() for r in page.recipients] == ["ann"]


async def test_an_unreadable_page_is_parked_and_the_others_go_on(world: World) -> None:
    first = await accepted.accept(world.log, TOPICS, "spring", 250)
    await world.log.publish([Outgoing(TOPICS.audience, b"x", b"garbage", partition=first.partition)])
    later = accepted.page_record(TOPICS, "spring", "upload-1", 1, ["ann"], partition=first.partition)
    (placed,) = await world.log.publish([later])
    longer = replace(first, campaign_id="summer", pages=2, recipients=251, last_offset=placed.offset)
    await world.write(TOPICS.campaign_requests, "default/summer", codec.encode(longer))
    await (await world.leader()).look(1)
    assert world.by_campaign()["summer"] == 2
    assert [record.value for record in world.log.records(TOPICS.internal_dlq)] == [b"garbage"]


async def test_a_new_leader_goes_on_where_the_cursor_stands(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "long", 100_000)
    await (await world.leader()).look(1)
    await world.fan_out()
    await (await world.leader(epoch=2)).look(2)
    numbers = [page.page for page in sorted(world.pages(), key=lambda page: page.page)]
    assert numbers == list(range(28))


async def test_a_release_whose_ack_was_lost_is_repeated_with_the_same_ids(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "long", 100_000)
    leader = await world.leader()
    await leader.look(1)
    first = len(world.pages())
    await world.fan_out()
    world.log.lose_ack, world.log.only = True, frozenset({TOPICS.pages})
    with pytest.raises(Transient):
        await leader.look(1)
    world.log.lose_ack = False
    for _ in range(2):
        await (await world.leader(epoch=2)).look(2)
    numbers = Counter(page.page for page in world.pages())
    assert set(numbers) == set(range(len(numbers))), "no page is missing"
    assert {page for page, times in numbers.items() if times == 2} == set(range(first, 2 * first))


async def test_a_page_that_the_log_refused_is_let_go_by_the_next_leader(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "long", 100_000)
    world.log.fail, world.log.only = True, frozenset({TOPICS.pages})
    with pytest.raises(Transient):
        await (await world.leader()).look(1)
    world.log.fail = False
    await (await world.leader(epoch=2)).look(2)
    assert sorted(page.page for page in world.pages()) == list(range(14))


async def test_a_cursor_overwritten_by_a_former_leader_is_written_again(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "long", 100_000)
    leader = await world.leader(epoch=5)
    await leader.look(5)
    stale = CampaignCursor("default", "long", 4, 1, 1, 250, START_MS)
    await world.write(TOPICS.cursor, "default/long", codec.encode(stale))
    await leader.look(5)
    last = codec.decode(world.log.records(TOPICS.cursor)[-1].value, CampaignCursor)
    assert (last.epoch, last.next_page) == (5, 14)


async def test_before_anything_is_counted_the_campaign_is_running(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "spring", 500)
    await (await world.leader()).look(1)
    state = world.state("spring")
    assert (state.status, state.expected, state.finished) == (CampaignStatus.RUNNING, 500, 0)


async def test_a_campaign_is_complete_when_every_recipient_is_and_stays_so(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "spring", 500)
    leader = await world.leader()
    await leader.look(1)
    await world.progress("spring", 499, 1, sent=499)
    await leader.look(1)
    assert world.state("spring").finished_at is None
    await world.progress("spring", 500, 2, sent=500)
    await leader.look(1)
    done = world.state("spring")
    assert (done.status, done.outcomes) == (CampaignStatus.PROCESSED, {"sent": 500})
    world.clock.advance(60_000)
    await world.progress("spring", 500, 3, sent=400, failed=100)
    await leader.look(1)
    later = world.state("spring")
    assert (later.status, later.finished_at) == (CampaignStatus.PROCESSED, done.finished_at)
    assert later.outcomes == {"sent": 400, "failed": 100}, "counts still change"


async def test_a_campaign_with_failures_is_partially_processed(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "spring", 500)
    leader = await world.leader()
    await leader.look(1)
    await world.progress("spring", 500, sent=499, failed=1)
    await leader.look(1)
    assert world.state("spring").status is CampaignStatus.PARTIALLY_PROCESSED


async def test_an_older_count_does_not_turn_back_a_newer_one(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "spring", 500)
    leader = await world.leader()
    await world.progress("spring", 300, 7, sent=300)
    await world.progress("spring", 200, 6, sent=200)
    await leader.look(1)
    assert world.state("spring").finished == 300


async def test_pages_not_let_go_before_the_expiry_end_as_expired(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "late", 5_000, expires_at_ms=START_MS + 1_000)
    leader = await world.leader()
    await leader.look(1)
    assert len(world.pages()) == 14
    world.clock.advance(2_000)
    await leader.look(1)
    assert ended(world, EventKind.EXPIRED) == set(range(3_500, 5_000))
    assert world.state("late").status is CampaignStatus.EXPIRED
    await world.progress("late", 5_000, sent=3_500, expired=1_500)
    await leader.look(1)
    assert world.state("late").status is CampaignStatus.EXPIRED
    assert world.state("late").finished_at is not None


async def test_a_paused_campaign_lets_nothing_go_until_it_is_resumed(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "spring", 500)
    await world.order("spring", CampaignOrder.PAUSED)
    leader = await world.leader()
    await leader.look(1)
    assert world.pages() == []
    assert world.state("spring").status is CampaignStatus.PAUSED
    await world.order("spring", CampaignOrder.RUNNING)
    await leader.look(1)
    assert len(world.pages()) == 2


async def test_of_a_cancelled_campaign_every_unreleased_recipient_ends_as_cancelled(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "spring", 20_000)
    leader = await world.leader()
    await leader.look(1)
    await world.order("spring", CampaignOrder.CANCELLED)
    await world.order("spring", CampaignOrder.RUNNING)
    for _ in range(2):
        await leader.look(1)
    assert len(world.pages()) == 14
    assert ended(world, EventKind.CANCELLED) == set(range(3_500, 20_000))
    assert world.state("spring").status is CampaignStatus.CANCELLED


async def test_before_its_time_a_campaign_is_scheduled(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "spring", 500, send_at_ms=START_MS + 60_000)
    leader = await world.leader()
    await leader.look(1)
    assert world.pages() == []
    assert world.state("spring").status is CampaignStatus.SCHEDULED
    world.clock.advance(60_000)
    await leader.look(1)
    assert len(world.pages()) == 2


async def test_a_campaign_keeps_its_own_pace(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "slow", 50_000, pace_per_s=500)
    leader = await world.leader()
    for _ in range(40):
        await leader.look(1)
        await world.fan_out()
        world.clock.advance(250)
    assert sum(len(page.recipients) for page in world.pages()) == pytest.approx(5_000, abs=500)


async def test_a_transactional_campaign_gets_half_of_the_reserved_slice(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "recall", 50_000, template="alarm")
    leader = await world.leader()
    for _ in range(41):
        await leader.look(1)
        await world.fan_out()
        world.clock.advance(250)
    assert {page.priority for page in world.pages()} == {"transactional"}
    assert sum(len(page.recipients) for page in world.pages()) == pytest.approx(1_500, abs=300)


async def test_bulk_singles_share_the_lane_with_campaigns(world: World) -> None:
    await accepted.accept(world.log, TOPICS, "long", 100_000)
    purse = Purse(world.trips, "route-1")
    await purse.fill({("default", LANE): 10_000})
    assert not purse.spend([("default", LANE)]), "nothing was granted yet"
    await (await world.leader()).look(1)
    await purse.fill({("default", LANE): 10_000})
    granted = 0
    while purse.spend([("default", LANE)]):
        granted += 1
    assert granted == pytest.approx(1_750, rel=0.1)
    assert len(world.pages()) == pytest.approx(7, abs=1)


def ended(world: World, kind: EventKind) -> set[int]:
    """Positions in the whole audience of recipients that ended so."""
    return {
        keys.campaign_of_row(batch.row)[1] * accepted.PAGE + event.slot
        for record in world.log.records(TOPICS.status)
        for batch in [codec.decode(record.value, StatusBatch)]
        for event in batch.events
        if event.kind is kind and keys.is_campaign_row(batch.row)
    }
