"""Dispatch's pace on a virtual clock: the real `Releases` among lanes that workers drain at the providers' pace.

Everything around it is arithmetic: pages come from nowhere, fan-out brings them to the lanes after a while, workers
take from the partitions of a lane in turn, and tell how far they are four times a second. Same seed, same run.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from schemas import keys
from schemas.messages import AudiencePage, CampaignRequested, Channel, Priority, Recipient
from schemas.policies import MessageClass, TemplatePolicy
from schemas.records import LogReader
from schemas.topics import Topics
from schemas.trips import Script, Trip
from streams import cursors
from streams.backlog import Backlog
from streams.campaigns import Campaign
from streams.grants import Grants
from streams.holds import Holds
from streams.lanes import Window
from streams.letting_go import LettingGo
from streams.page_reader import PageAt, PageReader, ReadAhead
from streams.release import Candidate, Releases
from tests.doubles.campaigns import request
from tests.doubles.manual_clock import ManualClock
from tests.doubles.stores import MemoryReads

PARTITIONS = 4
TICK_S = 0.05
LOOK_TICKS = 5
ROUTE_TICKS = 4
ROUTE_BATCH = 1_000
BULK_SHARE = Window().share
_EVERYONE = tuple(Recipient(str(n)) for n in range(250))


@dataclass(slots=True)
class FakeLane:
    """A lane as workers see it: who lies in each partition, how much was ever written and finished there."""

    name: str
    queues: list[deque[list[Any]]] = field(default_factory=lambda: [deque() for _ in range(PARTITIONS)])
    ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    done: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    told: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    stuck: set[int] = field(default_factory=set)
    in_tiers: int = 0
    credit: float = 0.0
    _taken: list[int] = field(default_factory=lambda: [0] * PARTITIONS)

    @property
    def lying(self) -> int:
        return sum(self.ends) - sum(self.done)

    def put(self, who: str, count: int, partition: int) -> None:
        self.queues[partition].append([who, count])
        self.ends[partition] += count

    def drain(self, allowed: float) -> Counter[str]:
        """Workers take from the partitions in turn. What is not used is lost, but for a part of one."""
        self.credit += allowed
        sent = Counter[str]()
        while self.credit >= 1:
            busy = [n for n in range(PARTITIONS) if self.queues[n] and n not in self.stuck]
            if not busy:
                self.credit = 0.0
                break
            self._take(min(busy, key=lambda number: self._taken[number]), sent)
        return sent

    def _take(self, number: int, sent: Counter[str]) -> None:
        queue = self.queues[number]
        who, count = queue[0]
        taken = min(5, int(self.credit), count)
        sent[who] += taken
        queue[0][1] -= taken
        self.done[number] += taken
        self._taken[number] = max(self._taken) + 1
        self.credit -= taken
        if not queue[0][1]:
            queue.popleft()


class PaceWorld:
    """rates: what the usable providers of each channel let through. sent: by second and lane, who was sent how many.

    backlogs: by tick and lane what lies there and what is on its way. let_go: recipients by campaign. singles: tenants
    of which more bulk singles wait than can go, and the lane they want.
    """

    def __init__(self, seed: int, rates: Mapping[Channel, float], tenants: Mapping[str, float] | None = None) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.rates = {channel: rates.get(channel, 0.0) for channel in Channel}
        self.topics = Topics(tenants=tuple(tenants or {"default": 1.0}))
        self.lanes = {name: FakeLane(name) for name in self.topics.lanes()}
        self.campaigns: dict[str, Candidate] = {}
        self.sent: dict[str, list[Counter[str]]] = {name: [] for name in self.lanes}
        self.backlogs: dict[str, list[float]] = {name: [] for name in self.lanes}
        self.let_go = Counter[str]()
        self.fan_out_s: Callable[[], float] = lambda: self.rng.uniform(0.05, 0.3)
        self.marks: set[str] = set()
        self.singles: dict[str, str] = {}
        self.grants: dict[str, dict[bytes, bytes]] = defaultdict(dict)
        self.policies: dict[str, TemplatePolicy] = {}
        self._sizes: dict[str, list[int]] = {}
        self._coming: list[tuple[float, str, str, int, tuple[str, ...]]] = []
        self._fanned_s = [0.0] * PARTITIONS
        self._ticks = 0
        trips = _Trips(self)
        partitions = dict.fromkeys([*self.topics.lanes(), *self.topics.tiers()], PARTITIONS)
        reader, pages = cast(LogReader, _Offsets(self)), cast(PageReader, _Pages(self._sizes))
        backlog = Backlog(reader, trips, partitions, self.clock, self.topics.tiers_of_lanes())
        self.releases = Releases(
            self.policies,
            ReadAhead(pages),
            backlog,
            Grants(trips),
            self._rate,
            self.topics,
            dict(tenants or {}),
            self.clock,
            LettingGo(Holds(self.topics), reader, pages, self.topics, MemoryReads()),
        )

    @property
    def now_s(self) -> float:
        return self._ticks * TICK_S

    def bulk_rate(self, channel: Channel) -> float:
        return BULK_SHARE * self.rates[channel]

    def lane(self, channel: Channel, priority: Priority = Priority.BULK) -> str:
        return self.topics.lane(channel, priority)

    def accept(
        self,
        name: str,
        sizes: Sequence[int],
        channels: Sequence[Channel] = (Channel.PUSH,),
        is_urgent: bool = False,
        fallback: Sequence[Channel] = (),
        **changes: Any,
    ) -> None:
        """A campaign with pages of these sizes."""
        self._sizes[name] = list(sizes)
        message_class = MessageClass.TRANSACTIONAL if is_urgent else MessageClass.MARKETING
        self.policies[name] = TemplatePolicy(name, message_class, tuple(channels), tuple(fallback))
        asked = request(
            campaign_id=name,
            template=name,
            pages=len(sizes),
            recipients=sum(sizes),
            last_offset=len(sizes) - 1,
            upload_id=name,
            **changes,
        )
        campaign = Campaign(f"{asked.tenant}/{name}", request=asked)
        found = self.releases.candidate(campaign, asked)
        assert isinstance(found, Candidate)
        self.campaigns[name] = found

    async def run(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            if self._ticks % LOOK_TICKS == 0:
                await self._look()
            if self._ticks % ROUTE_TICKS == 0:
                self._route_bulk()
            self._fan_out()
            self._work()
            self._ticks += 1
            self.clock.advance(TICK_S * 1_000)

    async def _look(self) -> None:
        for lane in self.lanes.values():
            lane.told = list(lane.done)
        released = await self.releases.next(list(self.campaigns.values()), {})
        for candidate, page in released.pages:
            campaign, asked = candidate.campaign, candidate.request
            campaign.cursor = cursors.moved(campaign.cursor, asked, page)
            self.let_go[asked.campaign_id] += page.size
            mark = keys.redis_fanned(asked.tenant, asked.campaign_id, page.page.page, 0, page.first)
            fills = candidate.use.filled(self.rates)
            self._coming.append((self._fanned_out_s(), mark, asked.campaign_id, page.size, fills))
        for (tenant, granted), tokens in released.tokens.items():
            key = keys.redis_grant(granted, tenant)
            held = int(self.grants[key].get(b"tokens", b"0"))
            self.grants[key][b"tokens"] = b"%d" % (held + tokens)

    def _fanned_out_s(self) -> float:
        """Pages of one partition reach the lanes in order."""
        partition = self.rng.randrange(PARTITIONS)
        self._fanned_s[partition] = max(self._fanned_s[partition], self.now_s + self.fan_out_s())
        return self._fanned_s[partition]

    def _route_bulk(self) -> None:
        """Takes what was granted, and wishes for more."""
        for tenant, wished in self.singles.items():
            grant = self.grants[keys.redis_grant(wished, tenant)]
            taken = min(ROUTE_BATCH, int(grant.get(b"tokens", b"0")))
            grant[b"tokens"] = b"%d" % (int(grant.get(b"tokens", b"0")) - taken)
            grant[b"wish:route"] = b"%d %d" % (ROUTE_BATCH - taken, self.clock.now_ms())
            self._put(wished, f"singles of {tenant}", taken)

    def _fan_out(self) -> None:
        """Recipients fall to partitions by chance, as users' keys do."""
        due = [one for one in self._coming if one[0] <= self.now_s]
        self._coming = [one for one in self._coming if one[0] > self.now_s]
        for _, mark, name, size, fills in due:
            self.marks.add(mark)
            for lane in fills:
                self._put(lane, name, size)

    def _put(self, lane: str, who: str, count: int) -> None:
        for partition, share in Counter(self.rng.choices(range(PARTITIONS), k=count)).items():
            self.lanes[lane].put(who, share, partition)

    def _work(self) -> None:
        for channel in Channel:
            for priority in Priority:
                lane = self.lanes[self.topics.lane(channel, priority)]
                share = BULK_SHARE if priority is Priority.BULK else 1.0
                sent = lane.drain(share * self.rates[channel] * TICK_S)
                seconds = self.sent[lane.name]
                if self._ticks % round(1 / TICK_S) == 0:
                    seconds.append(Counter())
                seconds[-1] += sent
                coming = sum(size for _, _, _, size, fills in self._coming if lane.name in fills)
                self.backlogs[lane.name].append(lane.lying + coming)

    async def _rate(self, channel: Channel) -> float:
        return self.rates[channel]


class _Offsets:
    """Ends of lanes and tiers; nothing is ever removed."""

    def __init__(self, world: PaceWorld) -> None:
        self._world = world
        self._lanes = {tier: lane for lane, tiers in world.topics.tiers_of_lanes().items() for tier in tiers}

    async def offsets_of(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        return {place: (0, self._end(*place)) for place in places}

    def _end(self, topic: str, partition: int) -> int:
        if topic in self._lanes:
            is_first = partition == 0 and topic.endswith(".10s")
            return self._world.lanes[self._lanes[topic]].in_tiers if is_first else 0
        return self._world.lanes[topic].ends[partition]


class _Pages:
    """Pages of the sizes that a campaign was accepted with, at offsets from 0."""

    def __init__(self, sizes: Mapping[str, Sequence[int]]) -> None:
        self._sizes = sizes

    async def read(
        self, asked: CampaignRequested, next_page: int, next_offset: int, most_bytes: int
    ) -> tuple[list[PageAt], int]:
        sizes = self._sizes[asked.upload_id]
        last = min(next_offset + 31, len(sizes) - 1)
        pages = [
            PageAt(n, AudiencePage(asked.tenant, asked.campaign_id, asked.upload_id, n, _EVERYONE[: sizes[n]]))
            for n in range(next_offset, last + 1)
        ]
        return pages, last + 1


class _Trips:
    """Redis as dispatch asks it."""

    def __init__(self, world: PaceWorld) -> None:
        self._world = world

    def begin(self) -> Trip:
        return _Trip(self._world)


class _Trip:
    def __init__(self, world: PaceWorld) -> None:
        self._world = world
        self._replies: list[Any] = []

    def execute_command(self, *args: Any) -> None:
        world = self._world
        match args:
            case ("TIME",):
                self._replies.append((world.clock.now_ms() // 1_000, 0))
            case ("EXISTS", mark):
                self._replies.append(int(mark in world.marks))
            case ("HGETALL", key) if key in world.grants:
                self._replies.append(dict(world.grants[key]))
            case ("HGETALL", key):
                self._replies.append(dict(self._progress(key)))

    def run(self, script: Script, touched: Sequence[str | bytes], *args: Any) -> None:
        raise NotImplementedError("dispatch runs no script")

    async def execute(self) -> list[Any]:
        return self._replies

    def _progress(self, key: str) -> Iterator[tuple[bytes, bytes]]:
        for lane in self._world.lanes.values():
            if key == keys.redis_progress(lane.name):
                for number, done in enumerate(lane.told):
                    yield b"%d" % number, b"%d 0 0" % done
