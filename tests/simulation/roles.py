"""The processes: the product's own parts, composed as `deploy` does, on the run's log, Redis and providers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from consumers.breaker import Breaker, BreakerOptions, Gate
from consumers.controls import Controls
from consumers.engine import EngineOptions
from consumers.judging import OutcomeJudge
from consumers.lane_worker import LaneWorker, Rules
from consumers.limits import LimitOptions, Pocket
from consumers.loop.handout import HandoutOptions
from consumers.loop.options import KafkaOptions
from consumers.loop.outbox import OutboxOptions, Park
from consumers.progress import ProgressWriter
from consumers.sending import Seat, Stores, WorkerOptions
from consumers.settling import SettleOptions
from consumers.throttles import Throttle
from deploy.engines import GATHER_EVENTS_S
from producers import requests
from producers.callbacks import http_provider
from retry_topics import forwarder
from retry_topics.budget import RetryBudget
from retry_topics.dead_letters import DeadLetters
from schemas import codec, keys
from schemas.errors import Poison, StoreDown
from schemas.messages import Channel, NotificationRequested, Priority, ReleasedPage
from schemas.records import Handler, LogReader, Record
from schemas.trips import Epoch, Trip, asked
from streams.backlog import Backlog
from streams.burials import Burials
from streams.callbacks import CallbackOptions, RouteCallbacks
from streams.campaigns import Campaigns
from streams.digest_marks import DigestMarks
from streams.digests import Digests, Entries
from streams.dispatch import Dispatch, DispatchOptions
from streams.fan_out import FanOut
from streams.grants import Grants, Purse
from streams.held_release import HeldRelease
from streams.holds import Holds
from streams.intake import Doors, Entry
from streams.lanes import Window
from streams.letting_go import LettingGo
from streams.page_reader import PageReader, ReadAhead
from streams.release import Releases
from streams.route import Route, RouteOptions
from streams.singles_queue import SinglesQueue
from streams.status_flow import FlowOptions, StatusFlow
from streams.status_rivals import Fence, Rivals
from streams.status_table import StatusTable
from streams.ticks import Ticks
from tests.doubles.drops import Dropped
from tests.doubles.memory_engine import MemoryEngine, MemorySide
from tests.doubles.memory_groups import Membership
from tests.doubles.memory_trips import RUN_ID
from tests.doubles.sender_bench import MemoryProfiles
from tests.doubles.stores import MemoryReads
from tests.simulation.loop import Killed, Process
from tests.simulation.network import Lines, Producer, Reader, Views
from tests.simulation.site import (
    DEADLINE_S,
    IDS,
    LADDER,
    LEASE_S,
    MARGIN_S,
    PARTITIONS,
    POLICIES,
    PROVIDERS,
    SESSION_S,
    TIERS,
    TOPICS,
    Site,
)
from tests.simulation.standins import GroupLeadership, Pages, StatusMember
from tests.simulation.vendor import Client

SERVED = frozenset(PROVIDERS)
ENTRY_EPOCHS = {
    topic: keys.log_epoch("here", topic) for topic in (TOPICS.requests("default"), TOPICS.requests_bulk("default"))
}
PROGRESS_S, LOOK_S = 0.5, 0.5
WINDOW = Window(least_s=1.0, most_s=2.5, piece_s=0.3)
"""Rates are low here: pieces of a customer's share of a second would be one recipient each, never a part of a page."""
Role = Callable[["Ground"], Coroutine[Any, Any, None]]


@dataclass
class Ground:
    """What one process stands on. dies_in: (gap, how often it is passed first) at which it dies. stops_in: the gap in
    which `stop` is called, once: it finishes its step, and stands still.
    """

    site: Site
    process: Process
    rng: random.Random
    dies_in: tuple[str, int] | None = None
    stops_in: str = ""
    stop: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        network = self.site.network
        self.clock = self.site.clock
        self.producer = Producer(network, self.process)
        self.reader = Reader(network)
        self.views = Views(network)
        self.trips = Lines(network, self.process)
        self.epoch = Epoch()
        self.epoch.run_id = RUN_ID
        self.letters = DeadLetters(TOPICS, self.clock)
        self.profiles = MemoryProfiles(self.site.people)
        self.suppressions = Barred(self.site)

    def gap(self, name: str) -> None:
        """A place where a crash matters."""
        if self.stops_in == name:
            self.stops_in = ""
            self.stop()
        if self.dies_in is None or self.dies_in[0] != name:
            return
        self.dies_in = (name, self.dies_in[1] - 1)
        if self.dies_in[1] < 0:
            self.process.die()
            raise Killed

    async def passing(self, name: str) -> None:
        self.gap(name)

    def joined(self, member: Membership) -> None:
        self.site.sessions[self.process].append(member)

    def engine(
        self,
        role: str,
        handler: Handler,
        *,
        gather_s: float,
        park: Park | None = None,
        handout: HandoutOptions | None = None,
        reader: LogReader | None = None,
    ) -> MemoryEngine:
        group = TOPICS.group(role)
        kafka = KafkaOptions(group, TOPICS.groups()[group], session_timeout_s=SESSION_S, drain_s=3.0)
        options = EngineOptions(
            kafka,
            outbox=OutboxOptions(TOPICS.status, gather_s, max(gather_s, GATHER_EVENTS_S), retry_most_s=2.0),
            handout=handout or HandoutOptions(),
            backoff_max_s=2.0,
        )
        return MemoryEngine(
            handler,
            self.producer,
            options,
            park or self.letters.parked,
            self._side,
            rng=self.rng,
            clock=self.clock,
            reader=reader,
            gap=self.gap,
        )

    def _side(self, options: KafkaOptions) -> MemorySide:
        network, rng = self.site.network, self.rng
        return MemorySide(
            self.site.log,
            self.site.groups,
            options,
            self.clock,
            self.gap,
            pause=network.pause,
            fetched=lambda there: there if there < 2 or rng.random() < 0.7 else rng.randint(1, there),
            joined=self.joined,
        )


async def route_requests(ground: Ground) -> None:
    await _route(ground, "route requests", Priority.TRANSACTIONAL, None)


async def route_bulk(ground: Ground) -> None:
    purse = Purse(ground.trips, ground.process.name)
    await _route(ground, "route bulk", Priority.BULK, SinglesQueue(purse, ground.clock, ground.rng))


async def route_callbacks(ground: Ground) -> None:
    handler = RouteCallbacks(
        dict.fromkeys(PROVIDERS.values(), http_provider.read),
        IDS,
        ground.trips,
        Barred(ground.site),
        ground.producer,
        TOPICS,
        ground.clock,
        CallbackOptions(orphan_after_ms=20_000, try_again_ms=3_000),
    )
    await ground.engine("route callbacks", handler, gather_s=0.1).run()


async def forward(ground: Ground) -> None:
    handler = forwarder.Forwarder(TOPICS, ground.clock, TIERS)
    handout = HandoutOptions(read_behind_ms=forwarder.read_behind_ms(TOPICS, TIERS))
    loop = ground.engine("forward", handler, gather_s=0.002, handout=handout, reader=ground.reader)
    await _first_to_fail(loop.run(), _tell_progress(ground, loop))


async def fan_out(ground: Ground) -> None:
    controls = Controls()
    await controls.load(ground.views, TOPICS)
    expander = FanOut(
        POLICIES,
        ground.profiles,
        ground.trips,
        ground.epoch,
        ground.producer,
        TOPICS,
        ground.clock,
        MemoryReads(),
        ground.site.quiet,
        controls.order,
        SERVED,
        ground.gap,
    )

    async def work(record: Record) -> None:
        try:
            page = codec.decode(record.value, ReleasedPage)
        except Poison as error:
            await ground.producer.publish([ground.letters.letter(record, error.reason, error.text)])
            return
        await expander.expand(page, record.headers)

    network = ground.site.network
    group = TOPICS.group("fan_out")
    await Pages(ground.site.log, ground.site.groups, group, TOPICS.pages, work, network.pause, ground.joined).run()


async def status(ground: Ground) -> None:
    site, fence_s = ground.site, SESSION_S * 0.75
    table = StatusTable(TOPICS, IDS, ground.letters.letter)
    flow = StatusFlow(table, ground.producer, TOPICS, ground.clock, FlowOptions(fence_s=fence_s), ground.gap)
    rows = flow.store = site.disks[ground.process.name]
    rivals, fence = Rivals(flow, ground.reader, TOPICS, ground.clock), Fence(ground.clock, fence_s)
    name, pause = ground.process.name, site.network.pause
    await StatusMember(site.log, site.groups, TOPICS, flow, rows, rivals, fence, name, pause, ground.joined).run()


async def dispatch(ground: Ground) -> None:
    site, producer, clock = ground.site, ground.producer, ground.clock
    pages = PageReader(ground.reader, producer, ground.letters.letter, TOPICS)
    ahead, letting_go = ReadAhead(pages), LettingGo(Holds(TOPICS), ground.reader, pages, TOPICS, MemoryReads())
    grants, campaigns = Grants(ground.trips), Campaigns(TOPICS, POLICIES)
    counts = {spec.name: site.log.partitions_of(spec.name) for spec in TOPICS.specs()}
    backlog = Backlog(ground.reader, ground.trips, counts, clock, TOPICS.tiers_of_lanes())
    marks = DigestMarks(ground.trips, ground.epoch)
    rate = partial(_usable, ground)
    releases = Releases(
        POLICIES, ahead, backlog, grants, rate, TOPICS, {}, clock, letting_go, window=WINDOW, served=SERVED
    )
    leadership = GroupLeadership(site.log, site.groups, TOPICS, ground.process.name, producer, clock, ground.joined)
    await leadership.start()
    work = Dispatch(
        campaigns,
        releases,
        ahead,
        grants,
        leadership,
        ground.views,
        producer,
        TOPICS,
        clock,
        Ticks(producer, TOPICS, PARTITIONS, clock),
        HeldRelease(campaigns, letting_go, Dropped(), producer, TOPICS, clock, ground.gap),
        Digests(
            campaigns, letting_go, marks, Entries(ENTRY_EPOCHS, IDS), POLICIES, producer, TOPICS, clock, ground.gap
        ),
        Burials(campaigns, letting_go.holds, ground.reader, leadership, producer, TOPICS, clock),
        DispatchOptions(look_every_s=LOOK_S),
        gap=ground.gap,
    )
    await work.run()


async def work(ground: Ground, channel: Channel, priority: Priority) -> None:
    bulk = priority is Priority.BULK
    controls = Controls()
    await controls.load(ground.views, TOPICS)
    worker = _worker(ground, channel, priority, controls)
    loop = ground.engine(
        f"work {channel}.{priority}",
        worker,
        gather_s=0.2 if bulk else 0.002,
        park=ground.letters.parked_delivery,
        handout=HandoutOptions(batch=50, in_flight=300),
    )
    await _first_to_fail(loop.run(), _tell_progress(ground, loop), worker.watched())


def _worker(ground: Ground, channel: Channel, priority: Priority, controls: Controls) -> LaneWorker:
    site, vendor, bulk = ground.site, ground.site.vendors[channel], priority is Priority.BULK
    name, rate = ground.process.name, vendor.rate
    pocket = Pocket(ground.trips, ground.clock, vendor.name, rate, priority, name, LIMITS, channel)
    profiles, barred = ground.profiles, ground.suppressions
    stores = Stores(ground.trips, ground.epoch, site.claims, profiles, barred, site.fallbacks, site.caps, site.marks)
    judge = OutcomeJudge(ground.clock, ground.rng, RetryBudget(), LADDER)
    options = WorkerOptions(
        in_flight=100,
        lease_s=LEASE_S,
        deadline_s=DEADLINE_S,
        lease_margin_s=MARGIN_S,
        leave_lane_ms=1_500,
        gather_s=0.02 if bulk else 0.004,
        ladder=LADDER,
    )
    return LaneWorker(
        [Seat(Client(vendor), Breaker(vendor.name, BREAKER), Throttle(vendor.name), pocket, 20)],
        stores,
        Rules(POLICIES, site.renderer, controls.order, judge.judge, site.quiet, site.cap_rules),
        IDS,
        TOPICS,
        ground.letters,
        ground.clock,
        options,
        SettleOptions(every_s=0.025 if bulk else 0.003),
        ground.passing,
    )


LIMITS = LimitOptions(report_s=0.02)
"""A worker that waits for tokens turns as often: with these rates that is most of the time."""
BREAKER = BreakerOptions(first_period_s=2.0, longest_period_s=8.0, hold_period_s=8.0, probe_round_s=3.0)
LANES: Mapping[str, Role] = {
    f"work {channel}.{priority}": partial(work, channel=channel, priority=priority)
    for channel in PROVIDERS
    for priority in Priority
}
ROLES: Mapping[str, Role] = {
    "route requests": route_requests,
    "route bulk": route_bulk,
    "route callbacks": route_callbacks,
    "forward": forward,
    "fan_out": fan_out,
    "status": status,
    "dispatch": dispatch,
    **LANES,
}


class Barred:
    """Suppressions and SuppressionWrites ports: an address is blocked for every sender."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def ask(self, trip: Trip, tenant: str, channel: str, address: str) -> None:
        barred = self._site.barred
        trip.execute_command(lambda: barred.get((channel, keys.address_hash(channel, address)), ""))

    def read(self, reply: Any) -> str:
        return str(reply)

    async def apply(self, tenant: str, channel: str, hashed: str, offset: int, cause: str) -> None:
        await self._site.network.pause()
        self._site.barred[channel, hashed] = cause

    async def load(self, tenant: str, channel: str, hashed: str) -> str:
        return self._site.barred.get((channel, hashed), "")


async def _route(ground: Ground, role: str, priority: Priority, queue: SinglesQueue | None) -> None:
    topic = TOPICS.requests("default") if priority is Priority.TRANSACTIONAL else TOPICS.requests_bulk("default")
    entries = {topic: Entry("default", keys.log_epoch("here", topic), priority)}
    limits = requests.Limits()

    def check_event(event: NotificationRequested, now_ms: int) -> NotificationRequested:
        return requests.check_event(event, POLICIES, now_ms, limits)

    doors = Doors(check_event, ground.letters.parked, ground.profiles, MemoryReads(), SERVED)
    handler = Route(
        entries,
        POLICIES,
        doors,
        ground.trips,
        ground.epoch,
        TOPICS,
        IDS,
        ground.clock,
        queue,
        RouteOptions(hold_above_ms=1_000),
        ground.gap,
    )
    gather_s = 0.2 if priority is Priority.BULK else 0.002
    loop = ground.engine(role, handler, gather_s=gather_s)
    await _first_to_fail(loop.run(), *([queue.run()] if queue is not None else []))


async def _usable(ground: Ground, channel: Channel) -> float:
    """As `deploy.provider_rates.ProviderRates`: what the channel's provider lets through; 0 while it is open."""
    if channel not in PROVIDERS:
        return 0.0
    vendor = ground.site.vendors[channel]
    seat = Breaker(vendor.name, BREAKER)
    (reply,) = await asked(ground.trips, seat.ask)
    is_open = seat.read(reply, ground.clock.now_ms()).gate is Gate.OPEN
    return 0.0 if is_open else vendor.rate.per_s


async def _tell_progress(ground: Ground, loop: MemoryEngine) -> None:
    """As the writer's own loop, less often, and only what is new."""
    writer = ProgressWriter(ground.trips, loop.progress, ground.clock)
    told: dict[tuple[str, int], tuple[int, int]] = {}
    while True:
        if (reached := loop.progress()) != told:
            with contextlib.suppress(StoreDown):
                await writer.write()
                told = reached
        await asyncio.sleep(PROGRESS_S)


async def _first_to_fail(*parts: Awaitable[None]) -> None:
    tasks = [asyncio.ensure_future(part) for part in parts]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
