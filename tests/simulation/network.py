"""The log and Redis as one process reaches them: over a way that takes its time, and not always.

What was sent arrives in the world, whatever has become of the sender; an answer reaches its process only while that
lives. The stores themselves are the doubles of `tests/doubles`.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial
from typing import Any

from schemas import topics
from schemas.errors import Poison, StoreDown, Transient
from schemas.records import Outgoing, Placed, Record, TopicView
from schemas.trips import Script, Trip
from tests.doubles.manual_clock import START_MS
from tests.doubles.memory_log import MemoryLog
from tests.doubles.memory_redis import MemoryRedis
from tests.simulation.loop import Process, VirtualLoop

DELIVERY_S = 4.0
"""A record that cannot be written for so long is given up by its producer."""
REDIS_TIMEOUT_S = 0.5


class WorldClock:
    """The time of the world, which is also the broker's and Redis's."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return START_MS + int(self._loop.time() * 1000)

    def steady_s(self) -> float:
        return self._loop.time()


class Network:
    """Log and Redis with the ways to them. log_there: cleared while nobody gets through to the log; redis_away: the
    same of Redis; lost_replies: the share of its answers that get lost after the commands were carried out.
    """

    def __init__(self, loop: VirtualLoop, rng: random.Random, log: MemoryLog, redis: MemoryRedis) -> None:
        self.loop = loop
        self.rng = rng
        self.log = log
        self.redis = redis
        self.log_there = asyncio.Event()
        self.log_there.set()
        self.redis_away = False
        self.lost_replies = 0.0
        self._waiting: deque[Callable[[], None]] = deque()

    def way_s(self) -> float:
        """One way, mostly a millisecond or two; now and then much longer."""
        rng = self.rng
        return rng.uniform(0.0005, 0.003) if rng.random() < 0.95 else rng.uniform(0.003, 0.08)

    @property
    def log_away(self) -> bool:
        return not self.log_there.is_set()

    async def pause(self) -> None:
        """There and back."""
        await asyncio.sleep(self.way_s() + self.way_s())

    def in_world(self, after_s: float, call: Callable[..., object], *args: Any) -> None:
        self.loop.call_later(after_s, call, *args, context=self.loop.world.context)

    def when_log_is_there(self, call: Callable[[], None]) -> None:
        """Now, or once it is back; in the order of the calls."""
        if self.log_away:
            self._waiting.append(call)
        else:
            call()

    def log_is_back(self) -> None:
        self.log_there.set()
        while self._waiting and not self.log_away:
            self._waiting.popleft()()


class Producer:
    """Publisher port of one process. What it sends arrives in order; what is under way when it dies may be lost."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process
        self._last_s = 0.0
        self._under_way = 0
        self._lost_after: int | None = None
        self._held: list[tuple[list[Outgoing], asyncio.Future[list[Placed]]]] = []
        process.on_death.append(self._died)

    async def publish(self, outgoing: Sequence[Outgoing]) -> list[Placed]:
        if any(_size(record) > topics.MAX_MESSAGE_BYTES for record in outgoing):
            raise Poison("too_large", "a record is larger than its topic takes")
        if not outgoing:
            return []
        network, loop = self._network, self._network.loop
        acked: asyncio.Future[list[Placed]] = loop.create_future()
        self._last_s = max(self._last_s, loop.time() + network.way_s())
        self._under_way += 1
        network.in_world(self._last_s - loop.time(), self._arrive, list(outgoing), acked)
        given_up = loop.call_later(DELIVERY_S, _fail, acked, Transient("the log is unavailable"))
        try:
            return await acked
        finally:
            given_up.cancel()

    def _arrive(self, outgoing: list[Outgoing], acked: asyncio.Future[list[Placed]]) -> None:
        process = self._process
        if process.still and (self._held or self._network.rng.random() < 0.5):
            # It lay in the client, which stands still as well.
            if not self._held:
                process.on_wake.append(self._go_on)
            self._held.append((outgoing, acked))
        else:
            self._network.when_log_is_there(lambda: self._write(outgoing, acked))

    def _go_on(self) -> None:
        held, self._held = self._held, []
        for outgoing, acked in held:
            self._network.when_log_is_there(partial(self._write, outgoing, acked))

    def _write(self, outgoing: list[Outgoing], acked: asyncio.Future[list[Placed]]) -> None:
        if self._lost_after is not None:
            if self._lost_after == 0:
                return
            self._lost_after -= 1
        self._under_way -= 1
        if acked.done() and self._network.rng.random() < 0.5:
            return  # given up before it was written
        placed = [self._network.log.append(record) for record in outgoing]
        self._network.loop.call_later(self._network.way_s(), _resolve, acked, placed, context=self._process.context)

    def _died(self) -> None:
        self._lost_after = self._network.rng.randint(0, self._under_way)


class Reader:
    """LogReader port."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def read(self, topic: str, partition: int, offset: int) -> Record | None:
        await self._there()
        return await self._network.log.read(topic, partition, offset)

    async def read_range(self, topic: str, partition: int, first: int, last: int) -> AsyncIterator[Record]:
        await self._there()
        async for record in self._network.log.read_range(topic, partition, first, last):
            yield record

    async def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        await self._there()
        return self._network.log.ends(topic, partition)

    async def offsets_of(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        await self._there()
        return {place: self._network.log.ends(*place) for place in places}

    async def _there(self) -> None:
        await self._network.pause()
        if self._network.log_away:
            raise Transient("the log is unavailable")


class Views:
    """Tails port of one process."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def follow(self, topics: Sequence[str], on_record: Callable[[Record], None]) -> TopicView:
        view = View(self._network, topics, on_record)
        view.pump = self._network.loop.create_task(view.read())
        return view


class View:
    """Sees records a little after they were written, each partition in order."""

    pump: asyncio.Task[None]

    def __init__(self, network: Network, topics: Sequence[str], on_record: Callable[[Record], None]) -> None:
        self._network = network
        self._on_record = on_record
        self._news = asyncio.Event()
        self._moved = asyncio.Event()
        self._news.set()
        self._at = {(topic, number): 0 for topic in topics for number in range(network.log.partitions_of(topic))}
        for topic in topics:
            network.log.listen(topic, lambda _: self._news.set())

    async def read(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._network.pause()
            await self._network.log_there.wait()
            for place, at in self._at.items():
                for record in self._network.log.kept(*place, at, 1_000):
                    self._on_record(record)
                    self._at[place] = record.offset + 1
            self._moved.set()
            self._moved.clear()

    async def caught_up(self) -> None:
        await self._network.pause()
        await self._until({place: self._network.log.ends(*place)[1] for place in self._at})

    async def seen(self, topic: str, placed: Placed) -> None:
        await self._until({(topic, placed.partition): placed.offset + 1})

    async def _until(self, needed: dict[tuple[str, int], int]) -> None:
        while any(self._at[place] < offset for place, offset in needed.items()):
            await self._moved.wait()


class Lines:
    """Trips port of one process."""

    def __init__(self, network: Network, process: Process) -> None:
        self.network = network
        self.process = process

    def begin(self) -> Trip:
        return Line(self)


class Line:
    """One round trip. The commands are carried out at one moment; sometimes others get in between."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._commands: list[tuple[Any, ...]] = []
        self._replies: list[Any] = []

    def execute_command(self, *args: Any) -> None:
        self._commands.append((self._lines.network.redis.reply, *args))

    def run(self, script: Script, touched: Sequence[str | bytes], *args: Any) -> None:
        self._commands.append((self._lines.network.redis.run, script, touched, *args))

    async def execute(self) -> list[Any]:
        if not self._commands:
            return []
        network = self._lines.network
        answered: asyncio.Future[list[Any]] = network.loop.create_future()
        network.in_world(network.way_s(), self._arrive, answered)
        return await answered

    def _arrive(self, answered: asyncio.Future[list[Any]]) -> None:
        network = self._lines.network
        if network.redis_away:
            self._answer(_fail, answered, StoreDown("Redis does not answer"), REDIS_TIMEOUT_S)
            return
        cut = network.rng.randrange(len(self._commands)) if network.rng.random() < 0.1 else 0
        if cut:
            self._carry_out(self._commands[:cut])
            network.in_world(network.way_s() / 4, self._finish, answered, cut)
        else:
            self._finish(answered, 0)

    def _finish(self, answered: asyncio.Future[list[Any]], done: int) -> None:
        network = self._lines.network
        self._carry_out(self._commands[done:])
        if network.lost_replies and network.rng.random() < network.lost_replies:
            self._answer(_fail, answered, StoreDown("Redis's answer was lost"), REDIS_TIMEOUT_S)
        else:
            self._answer(_resolve, answered, self._replies, network.way_s())

    def _carry_out(self, commands: Sequence[tuple[Any, ...]]) -> None:
        for carry_out, *args in commands:
            self._replies.append(carry_out(*args))

    def _answer(
        self, how: Callable[..., None], answered: asyncio.Future[list[Any]], value: Any, after_s: float
    ) -> None:
        self._lines.network.loop.call_later(after_s, how, answered, value, context=self._lines.process.context)


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _size(record: Outgoing) -> int:
    return len(record.key or b"") + len(record.value or b"") + sum(len(n) + len(v) for n, v in record.headers)
