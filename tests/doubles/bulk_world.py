"""`route bulk` on its engine in virtual seconds: bulk singles come, a dispatch of a few lines grants tokens.

The product's own are the engine, Route, the queue, the purse and what dispatch reads of wishes; log and Redis are in
memory. A test runs as one story: `BulkWorld().run(story)`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from consumers.engine import EngineOptions
from consumers.loop.options import KafkaOptions
from consumers.loop.outbox import OutboxOptions
from retry_topics.dead_letters import DeadLetters
from schemas import codec, keys
from schemas.errors import StoreDown
from schemas.messages import Channel, Contact, Delivery, Device, EventKind, NotificationRequested, Priority, StatusBatch
from schemas.policies import MessageClass, TemplatePolicy
from schemas.records import AnswerTo, Outgoing, Record
from schemas.topics import Topics
from schemas.trips import Epoch, Script, Trip
from streams.grants import Flow, Grants, Purse
from streams.intake import Doors, Entry
from streams.route import Route
from streams.singles_queue import SinglesQueue
from tests.doubles.manual_clock import START_MS
from tests.doubles.memory_claims import MemoryClaims
from tests.doubles.memory_engine import MemoryEngine, MemorySide
from tests.doubles.memory_groups import MemoryGroups
from tests.doubles.memory_log import MemoryLog
from tests.doubles.memory_redis import MemoryRedis
from tests.doubles.memory_trips import RUN_ID
from tests.doubles.sender_bench import MemoryPeople, MemoryProfiles
from tests.doubles.stores import MemoryReads
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import WorldClock

TENANTS = ("acme", "bolt")
TOPICS = Topics(tenants=TENANTS)
EMAIL, SMS, PUSH = (TOPICS.lane(channel, Priority.BULK) for channel in (Channel.EMAIL, Channel.SMS, Channel.PUSH))
POLICIES = {
    name: TemplatePolicy(name, MessageClass.MARKETING, channels)
    for name, channels in {
        "mail": (Channel.EMAIL,),
        "both": (Channel.EMAIL, Channel.SMS),
        "app": (Channel.PUSH,),
    }.items()
}
LOOK_S = 0.25
LATER_MS = START_MS + 86_400_000


class CountedTrips:
    """Trips to Redis in memory. commands: how many were asked; is_down: nobody answers."""

    def __init__(self, redis: MemoryRedis) -> None:
        self.redis = redis
        self.commands = 0
        self.is_down = False

    def begin(self) -> Trip:
        return _CountedTrip(self)


class _CountedTrip:
    def __init__(self, trips: CountedTrips) -> None:
        self._trips = trips
        self._calls: list[Callable[[], Any]] = []

    def execute_command(self, *args: Any) -> None:
        self._calls.append(lambda: self._trips.redis.reply(*args))

    def run(self, script: Script, touched: Sequence[str | bytes], *args: Any) -> None:
        self._calls.append(lambda: self._trips.redis.run(script, touched, *args))

    async def execute(self) -> list[Any]:
        await asyncio.sleep(0.001)
        if self._trips.is_down:
            raise StoreDown("told to be away")
        self._trips.commands += len(self._calls)
        return [call() for call in self._calls]


class BulkWorld:
    """rates: tokens a second that dispatch gives to each (tenant, lane), as far as they are wanted. taken: how often
    each record was looked at. granted: tokens given so far.
    """

    def __init__(self, partitions: int = 1) -> None:
        self.loop = VirtualLoop(random.Random(1))  # type: ignore[abstract]
        self.clock = WorldClock(self.loop)
        self.trips = CountedTrips(MemoryRedis(self.clock))
        self.grants = Grants(self.trips)
        self.log = MemoryLog(partitions, self.clock.now_ms)
        self.groups = MemoryGroups(self.log.partitions_of)
        self.people = MemoryPeople(MemoryClaims(self.clock))
        self.rates: dict[Flow, float] = {}
        self.granted: Counter[Flow] = Counter()
        self.taken: Counter[tuple[str, int, int]] = Counter()
        self.engines: list[MemoryEngine] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._sent: list[tuple[float, str, str]] = []
        for lane in (EMAIL, SMS, PUSH):
            self.log.listen(lane, self._on_delivery)

    def run(self, story: Callable[[BulkWorld], Coroutine[Any, Any, None]]) -> None:
        """Plays it, with one `route bulk`."""

        async def played() -> None:
            self.start()
            self._tasks.append(asyncio.ensure_future(self._dispatch()))
            await story(self)
            for task in self._tasks:
                if task.done():
                    task.result()

        self.loop.run(played())
        assert not self.loop.errors, self.loop.errors

    def start(self) -> None:
        """One more `route bulk`."""
        number, epoch = len(self.engines), Epoch()
        epoch.run_id = RUN_ID
        rng = random.Random(number)
        queue = SinglesQueue(Purse(self.trips, f"route-{number}"), self.clock, rng)
        entries = {TOPICS.requests_bulk(tenant): Entry(tenant, "0a1b2c3d", Priority.BULK) for tenant in TENANTS}
        park = DeadLetters(TOPICS, self.clock).parked
        doors = Doors(lambda event, _: event, park, MemoryProfiles(self.people), MemoryReads())
        ids = keys.Ids(b"secret")
        route = Route(entries, POLICIES, doors, self.trips, epoch, TOPICS, ids, self.clock, queue)
        options = EngineOptions(KafkaOptions("bulk", tuple(entries)), OutboxOptions(TOPICS.status))
        engine = MemoryEngine(
            _Watched(route, self.taken), self.log, options, park, self._side, rng=rng, clock=self.clock
        )
        self.engines.append(engine)
        self._tasks += [asyncio.ensure_future(engine.run()), asyncio.ensure_future(queue.run())]

    def accept(self, tenant: str, template: str, *names: str, expires_at_ms: int = LATER_MS, devices: int = 1) -> None:
        """Requests of these names; each name is also the user."""
        app = tuple([Device(f"d{number}", f"token-{number}", "ios") for number in range(devices)])
        to = Contact("someone@example.org", "+4915112345678", app)
        for name in names:
            wanted = NotificationRequested(
                tenant, name, name, template, to=to, accepted_at_ms=self.clock.now_ms(), expires_at_ms=expires_at_ms
            )
            key = keys.user_key(tenant, name).encode()
            self.log.append(Outgoing(TOPICS.requests_bulk(tenant), key, codec.encode(wanted)))

    def sent(self, lane: str) -> list[str]:
        """Whose deliveries went into this lane, in order."""
        return [name for _, into, name in self._sent if into == lane]

    def sent_s(self, name: str) -> float:
        """When the first delivery of this name went out."""
        return next(at_s for at_s, _, sent in self._sent if sent == name)

    async def wished(self, tenant: str, lane: str) -> int:
        """How many dispatch hears are wanted."""
        found = await self.grants.wishes([(tenant, lane)])
        return found[tenant, lane].wanted if found else 0

    def ends(self, kind: EventKind) -> int:
        """Events of this kind."""
        batches = [codec.decode(record.value or b"", StatusBatch) for record in self.log.records(TOPICS.status)]
        return sum(event.kind is kind for batch in batches for event in batch.events)

    def _on_delivery(self, record: Record) -> None:
        name = codec.decode(record.value or b"", Delivery).user_id
        self._sent.append((self.clock.steady_s(), record.topic, name))

    async def _dispatch(self) -> None:
        owed: dict[Flow, float] = {}
        while True:
            await asyncio.sleep(LOOK_S)
            if self.trips.is_down:
                continue
            wishes = await self.grants.wishes(list(self.rates))
            for flow, rate in self.rates.items():
                owed[flow] = min(rate, owed.get(flow, 0.0) + rate * LOOK_S)
                given = min(int(owed[flow]), wishes[flow].missing if flow in wishes else 0)
                if given:
                    owed[flow] -= given
                    self.granted[flow] += given
                    await self.grants.give({flow: given})

    def _side(self, options: KafkaOptions) -> MemorySide:
        return MemorySide(self.log, self.groups, options, self.clock, None)


class _Watched:
    """Counts what is handed in."""

    def __init__(self, route: Route, taken: Counter[tuple[str, int, int]]) -> None:
        self._route = route
        self._taken = taken

    async def handle(self, records: Sequence[Record], answer: AnswerTo) -> None:
        self._taken.update([(record.topic, record.partition, record.offset) for record in records])
        await self._route.handle(records, answer)
