"""The product's engine on a log in memory: all of `consumers/engine.py`, with another side to Kafka.

What stands for `consumers/loop/kafka_side.py` reads, answers rebalances and commits on the engine's own event loop,
without a thread. Contract: `tests/contract/test_engine_in_memory.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from types import SimpleNamespace

from confluent_kafka import OFFSET_INVALID

from consumers.engine import Engine, EngineOptions
from consumers.loop import assignment, starts
from consumers.loop.kafka_side import LoopSide
from consumers.loop.options import KafkaOptions
from consumers.loop.outbox import Park
from consumers.loop.tracker import Tracker
from schemas.clock import Clock
from schemas.gaps import Gap
from schemas.records import Handler, LogReader, Publisher
from tests.doubles.memory_groups import Committed, Membership, MemoryGroups, Place
from tests.doubles.memory_log import MemoryLog

FETCH_RECORDS = 500
Pause = Callable[[], Awaitable[None]]
"""The way to the broker and back."""


async def no_pause() -> None:
    await asyncio.sleep(0)


class MemorySide:
    """One member of a group. joined is told of the membership: whoever plays the broker may let its session run out.

    fetched chooses how many of the records that are there one fetch brings.
    """

    brokers_away = False

    def __init__(
        self,
        log: MemoryLog,
        groups: MemoryGroups,
        options: KafkaOptions,
        clock: Clock,
        gap: Gap | None,
        pause: Pause = no_pause,
        fetched: Callable[[int], int] = lambda there: there,
        joined: Callable[[Membership], None] = lambda member: None,
    ) -> None:
        self._log = log
        self._groups = groups
        self._options = options
        self._clock = clock
        self._gap = gap
        self._pause = pause
        self._fetched = fetched
        self._joined = joined
        self._trackers: dict[Place, Tracker] = {}
        self._news = asyncio.Event()
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def last_turn_s(self) -> float:
        return self._clock.steady_s()

    def start(self, loop: asyncio.AbstractEventLoop, side: LoopSide) -> None:
        self._loop, self._side = loop, side
        for topic in self._options.topics:
            self._log.listen(topic, lambda _: self._news.set())
        self._member = self._groups.join(self._options.group, self._options.topics, self)
        self._joined(self._member)
        self._tasks = [loop.create_task(self._read()), loop.create_task(self._commit())]

    def stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._tasks.append(self._loop.create_task(self._finish()))

    def give_room(self) -> None:
        """Everything is handed over at once: there is always room."""

    async def mark_alone(self, tracker: Tracker, offset: int | None) -> None:
        await self._pause()
        if tracker.alive:
            word = starts.running(tracker.starts) if offset is None else starts.alone(tracker.starts, offset)
            self._commit_now([(tracker, word)])

    # What the group tells (Reader).

    def assigned(self, places: Sequence[Place]) -> None:
        trackers = [self._begin(place) for place in places]
        self._trackers.update({(tracker.topic, tracker.partition): tracker for tracker in trackers})
        self._commit_now([(tracker, starts.running(tracker.starts)) for tracker in trackers])
        self._side.assigned(trackers)
        self._news.set()

    def revoked(self, places: Sequence[Place]) -> None:
        self._tasks.append(self._loop.create_task(self._give_up(places)))

    def lost(self, places: Sequence[Place]) -> None:
        lost = [self._trackers.pop(place) for place in places if place in self._trackers]
        for tracker in lost:
            tracker.alive = False
        self._side.forget(lost)
        if not self._stopping:  # as the client does: it joins again
            self._member = self._groups.join(self._options.group, self._options.topics, self)
            self._joined(self._member)

    def _begin(self, place: Place) -> Tracker:
        found = self._member.committed(place)
        offset, metadata = found if found is not None else (OFFSET_INVALID, "")
        at = SimpleNamespace(topic=place[0], partition=place[1], offset=offset, metadata=metadata)
        return assignment._begin_one(at, *self._log.ends(*place), self._options.strict_offsets)

    async def _read(self) -> None:
        while not self._stopping:
            await self._news.wait()
            self._news.clear()
            await self._pause()
            for place, tracker in list(self._trackers.items()):
                there = self._log.kept(*place, tracker.handed_to, FETCH_RECORDS)
                records = there[: self._fetched(len(there))]
                if len(records) < len(there) or len(there) == FETCH_RECORDS:
                    self._news.set()
                if records and tracker.alive:
                    tracker.handed_to = records[-1].offset + 1
                    tracker.handed += len(records)
                    self._side.receive([(tracker, records)])

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(self._options.commit_every_s)
            moved = [tracker for tracker in self._trackers.values() if tracker.watermark > tracker.committed]
            if moved and not self._stopping:
                if self._gap is not None:
                    self._gap("before_commit")
                await self._pause()
                for tracker in moved:
                    tracker.starts = 1
                self._commit_now([(tracker, starts.running(tracker.starts)) for tracker in moved if tracker.alive])

    def _commit_now(self, commits: Sequence[tuple[Tracker, str]]) -> None:
        offsets: Mapping[Place, Committed] = {
            (tracker.topic, tracker.partition): Committed(tracker.watermark, word) for tracker, word in commits
        }
        if self._member.commit(offsets):
            for tracker, _ in commits:
                tracker.committed = tracker.watermark
            self._side.committed()

    async def _give_up(self, places: Sequence[Place]) -> None:
        """Waits for the work begun on these partitions, commits it, and forgets them."""
        trackers = [self._trackers[place] for place in places if place in self._trackers]
        await self._side.drain(trackers, self._options.drain_s)
        await self._pause()
        trackers = [tracker for tracker in trackers if tracker.alive]
        if trackers:
            if self._gap is not None:
                self._gap("before_commit")
            self._commit_now([(tracker, starts.CLEAN) for tracker in trackers])
            for tracker in trackers:
                del self._trackers[tracker.topic, tracker.partition]
                tracker.alive = False
            self._side.forget(trackers)
        self._member.release(places)

    async def _finish(self) -> None:
        await self._give_up(list(self._trackers))
        self._member.leave()
        for task in self._tasks[:2]:
            task.cancel()
        self._side.ended(None)


class MemoryEngine(Engine):
    """Engine with that side. side makes it, once the options are known."""

    def __init__(
        self,
        handler: Handler,
        publisher: Publisher,
        options: EngineOptions,
        park: Park,
        side: Callable[[KafkaOptions], MemorySide],
        *,
        rng: Random,
        clock: Clock,
        reader: LogReader | None = None,
        gap: Gap | None = None,
    ) -> None:
        super().__init__(handler, publisher, options, {}, park, rng=rng, clock=clock, reader=reader, gap=gap)
        made = side(options.kafka)
        # The seam that only this double needs: both parts talk to the side by the same few methods.
        self._kafka = made  # type: ignore[assignment]
        self._handout._kafka = made  # type: ignore[assignment]

    async def _look(self) -> None:
        """Metrics are looked at by nobody here, and would cost more than all else that happens in an idle second."""
