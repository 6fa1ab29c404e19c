"""Campaigns from their acceptance to their end: a leader and the status road over one log, without Redis.

Nobody fans out or sends unless the test does; what is let go counts as fanned out at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from schemas import codec, keys
from schemas.gaps import Gap
from schemas.messages import CampaignState, Channel, ReleasedPage, StatusBatch, StatusEvent
from schemas.policies import Policies
from schemas.records import Outgoing, Tails
from schemas.stores import StatusReads
from schemas.trips import Epoch, Script, Trip
from streams.backlog import Backlog
from streams.burials import Burials
from streams.campaigns import Campaigns
from streams.digest_marks import DigestMarks
from streams.digests import Digests, Entries
from streams.dispatch import Dispatch
from streams.grants import Grants
from streams.held_release import HeldRelease
from streams.holds import Holds
from streams.lanes import Window
from streams.letting_go import LettingGo
from streams.page_reader import PageReader, ReadAhead
from streams.release import Releases
from streams.ticks import Ticks
from tests.doubles.drops import Dropped
from tests.doubles.memory_redis import MemoryRedis
from tests.doubles.memory_trips import RUN_ID
from tests.doubles.status_road import IDS, TOPICS, StatusRoad, park
from tests.doubles.stores import MemoryReads

RATE = 1_000.0
"""Of every provider; bulk may have 700 of it, so a lane takes 14 pages of 250."""
ALL = frozenset(Channel)
WHOLE_PAGES = Window(piece_s=600)
EPOCH = "0a1b2c3d"
"""Of both entry topics."""
MEMORY = Epoch()
MEMORY.run_id = RUN_ID


class CampaignRoad(StatusRoad):
    """rates: what the usable providers of each channel let through, 0 while there is none. window: of the next leader.
    fans_out: whether what is let go counts as fanned out at once. rows: whom the next leader asks for rows; gap: what
    it is told. redis: where digests are marked; dropped: what operators dropped, as claims are told.
    """

    def __init__(self, folder: Path, policies: Policies, served: Collection[Channel] = ALL) -> None:
        super().__init__(folder, partition_count=2)
        self.rates = dict.fromkeys(Channel, RATE)
        self.policies = policies
        self.served = served
        self.window = WHOLE_PAGES
        self.fans_out = True
        self.rows: StatusReads = MemoryReads()
        self.redis = MemoryRedis(self.clock, is_strict=True)
        self.dropped = Dropped()
        self.gap: Gap | None = None

    async def leader(self, epoch: int = 1, tails: Tails | None = None) -> Dispatch:
        """A new one, which knows what is in the log; with tails of its own it knows nothing before it runs."""
        campaigns = Campaigns(TOPICS, self.policies)
        pages = PageReader(self.log, self.log, park, TOPICS)
        ahead = ReadAhead(pages)
        letting_go = LettingGo(Holds(TOPICS), self.log, pages, TOPICS, self.rows)
        trips = QuietTrips(lambda: self.fans_out)
        backlog = Backlog(self.log, trips, dict.fromkeys(TOPICS.lanes(), 2), self.clock)
        grants = Grants(trips)
        releases = Releases(
            self.policies,
            ahead,
            backlog,
            grants,
            self._rate,
            TOPICS,
            {},
            self.clock,
            letting_go,
            self.window,
            self.served,
        )
        held = HeldRelease(campaigns, letting_go, self.dropped, self.log, TOPICS, self.clock)
        marks = DigestMarks(StoredTrips(self.redis), MEMORY)
        entries = Entries(dict.fromkeys((TOPICS.requests("default"), TOPICS.requests_bulk("default")), EPOCH), IDS)
        digests = Digests(campaigns, letting_go, marks, entries, self.policies, self.log, TOPICS, self.clock, self.gap)
        ticks = Ticks(self.log, TOPICS, self.log.partition_count, self.clock)
        if tails is None:
            await self.log.follow(campaigns.topics, campaigns.on_record)
            await self.log.follow(held.holds.topics, held.holds.on_record)
            await self.log.follow(held.orders.topics, held.orders.on_record)
        leads, tails = Leads(epoch), tails or self.log
        burials = Burials(campaigns, held.holds, self.log, leads, self.log, TOPICS, self.clock)
        of_the_log = (tails, self.log, TOPICS, self.clock)
        return Dispatch(campaigns, releases, ahead, grants, leads, *of_the_log, ticks, held, digests, burials)

    async def settle(self, leader: Dispatch, epoch: int = 1) -> None:
        """Looks several times, with everything counted in between."""
        for _ in range(3):
            await leader.look(epoch)
            await self.read()
            await self.flow.publish_progress()
        await leader.look(epoch)

    async def fill(self, lane: str, deliveries: int) -> None:
        """So many lie in the lane, unfinished."""
        await self.log.publish([Outgoing(lane, None, b"", partition=0)] * deliveries)

    async def _rate(self, channel: Channel) -> float:
        return self.rates[channel]

    def pages(self) -> list[ReleasedPage]:
        return [codec.decode(record.value, ReleasedPage) for record in self.log.records(TOPICS.pages)]

    def campaign(self, campaign_id: str) -> CampaignState:
        """What the public is told of it last."""
        states = [codec.decode(record.value, CampaignState) for record in self.log.records(TOPICS.campaign_state)]
        mine = [state for state in states if state.campaign_id == campaign_id]
        return max(mine, key=lambda state: (state.epoch, state.version))

    def ends(self) -> dict[int, list[StatusEvent]]:
        """Page -> what its recipients are told."""
        found: dict[int, list[StatusEvent]] = {}
        for record in self.log.records(TOPICS.status):
            told = codec.decode(record.value, StatusBatch)
            if keys.is_campaign_row(told.row):
                found.setdefault(keys.campaign_of_row(told.row)[1], []).extend(told.events)
        return found


class StoredTrips:
    """Trips to a Redis in memory."""

    def __init__(self, redis: MemoryRedis) -> None:
        self._redis = redis

    def begin(self) -> Trip:
        return _StoredTrip(self._redis)


class _StoredTrip:
    def __init__(self, redis: MemoryRedis) -> None:
        self._redis = redis
        self._replies: list[Any] = []

    def execute_command(self, *args: Any) -> None:
        self._replies.append(self._redis.reply(*args))

    def run(self, script: Script, touched: Sequence[str | bytes], *args: Any) -> None:
        self._replies.append(self._redis.run(script, touched, *args))

    async def execute(self) -> list[Any]:
        return self._replies


class Leads:
    """Leadership that never ends."""

    def __init__(self, epoch: int) -> None:
        self.epoch: int | None = epoch

    async def acquired(self) -> int:
        assert self.epoch is not None
        return self.epoch


class QuietTrips:
    """Redis where nobody wishes or tells anything, but for what was fanned out."""

    def __init__(self, fans_out: Callable[[], bool] = lambda: True) -> None:
        self._fans_out = fans_out

    def begin(self) -> Trip:
        return _QuietTrip(self._fans_out())


class _QuietTrip:
    def __init__(self, fans_out: bool) -> None:
        self._fans_out = fans_out
        self._replies: list[Any] = []

    def execute_command(self, *args: Any) -> None:
        quiet: dict[str, Any] = {"TIME": (b"1796000000", b"0"), "HGETALL": {}, "EXISTS": int(self._fans_out)}
        self._replies.append(quiet[args[0]])

    def run(self, script: Script, touched: Sequence[str | bytes], *args: Any) -> None:
        raise NotImplementedError("dispatch runs no script")

    async def execute(self) -> list[Any]:
        return self._replies
