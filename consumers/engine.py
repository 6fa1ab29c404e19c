"""The one poll loop under route, work, forward and reconcile: run a handler, publish what it answers, then commit.

Two halves: a Kafka thread (`loop/kafka_side.py`) that reads, answers rebalances and commits, and this side, the
event loop, which hands micro-batches to the handler, keeps what is deferred, and lets a record go only when
everything it led to is in the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from consumers.loop.batches import Caller
from consumers.loop.deferred import Deferred, DeferredOptions
from consumers.loop.gauges import Gauges, ParkedLimit, Signals
from consumers.loop.handout import Handout, HandoutOptions
from consumers.loop.kafka_side import Fresh, KafkaSide
from consumers.loop.options import KafkaOptions
from consumers.loop.outbox import Entry, Outbox, OutboxOptions, Park
from consumers.loop.tracker import Tracker
from schemas import metrics
from schemas.clock import Clock, SystemClock
from schemas.gaps import Gap
from schemas.records import Answer, Defer, Done, Handler, LogReader, Publisher, Record

log = logging.getLogger(__name__)

LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """backoff_max_s: longest pause of a batch whose world is unwell. stuck_s: unhealthy after so long without an
    answer although there is work.
    """

    kafka: KafkaOptions
    outbox: OutboxOptions = field(default_factory=OutboxOptions)
    deferred: DeferredOptions = field(default_factory=DeferredOptions)
    handout: HandoutOptions = field(default_factory=HandoutOptions)
    backoff_max_s: float = 30.0
    stuck_s: float = 60.0


class Engine:
    """Runs one handler on some topics.

    park makes the answer that parks a record (see dead_letters.DeadLetters.parked). reader is needed where more may
    be deferred than fits in memory. gap: see `schemas/gaps.py`. exit_process ends a process whose client hangs on
    closing.
    """

    def __init__(
        self,
        handler: Handler,
        publisher: Publisher,
        options: EngineOptions,
        kafka: Mapping[str, str],
        park: Park,
        *,
        rng: Random,
        clock: Clock | None = None,
        reader: LogReader | None = None,
        gap: Gap | None = None,
        exit_process: Callable[[int], None] = os._exit,
    ) -> None:
        clock = clock or SystemClock()
        group = options.kafka.group
        self._group = group
        self._kafka = KafkaSide(kafka, _with_room_to_wait(options, reader), clock, gap, exit_process)
        self._deferred = Deferred(options.deferred, reader, lambda: self._handout.schedule())
        self._outbox = Outbox(publisher, options.outbox, group, park, rng, gap, self._finished, self._broke)
        caller = Caller(handler, group, park, rng, clock, options.backoff_max_s)
        self._handout = Handout(
            options.handout, caller, self._deferred, self._kafka, park, clock, self._answered, self._broke
        )
        unripe_s = max(options.handout.read_behind_ms.values(), default=0) / 1000
        self._gauges = Gauges(group, clock, options.stuck_s + unripe_s)
        self._parked = ParkedLimit()
        self._error: BaseException | None = None
        self._ended: asyncio.Future[None] | None = None
        self.signals = Signals()

    async def run(self) -> None:
        """Returns after stop(); otherwise raises what ended the engine (the process must exit non-zero)."""
        loop = asyncio.get_running_loop()
        ended = self._ended = loop.create_future()
        self._kafka.start(loop, self)
        looking = loop.create_task(self._look())
        try:
            await asyncio.shield(ended)
        finally:
            self._kafka.stop()
            await asyncio.wait([ended])
            looking.cancel()
            self._handout.close()
            self._outbox.close()
        if self._error is not None:
            raise self._error

    async def stop(self) -> None:
        """Finishes what is begun, commits, leaves the group; within the options' stop_s."""
        self._kafka.stop()
        if self._ended is not None:
            await asyncio.wait([self._ended])

    @property
    def healthy(self) -> bool:
        """False while nothing is processed although there is work, or all brokers are away: for readiness."""
        return not self._kafka.brokers_away and self._gauges.healthy(self._kafka.last_turn_s)

    @property
    def trackers(self) -> tuple[Tracker, ...]:
        """The partitions in our hands."""
        return tuple(self._handout.trackers)

    def progress(self) -> dict[tuple[str, int], tuple[int, int]]:
        """For each partition in our hands: (low watermark, records done above it)."""
        return {(t.topic, t.partition): (t.watermark, t.done_above) for t in self._handout.trackers}

    # What the Kafka thread tells (LoopSide).

    def assigned(self, trackers: Sequence[Tracker]) -> None:
        self._handout.trackers += trackers
        self.signals.emit("assigned")

    def receive(self, fresh: Fresh) -> None:
        for tracker, records in fresh:
            if tracker.alive:
                tracker.receive(records)
        self._handout.hand_out()

    async def drain(self, trackers: Sequence[Tracker], within_s: float) -> None:
        self._outbox.flush()
        await self._handout.drain(trackers, within_s)

    def forget(self, trackers: Sequence[Tracker]) -> None:
        self._gauges.forget(trackers)
        self._handout.forget(trackers)
        self.signals.emit("revoked")
        self._handout.schedule()

    def committed(self) -> None:
        self.signals.emit("committed")

    def ended(self, error: BaseException | None) -> None:
        self._error = self._error or error
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    # Answers.

    def _answered(self, tracker: Tracker, record: Record, answer: Answer) -> None:
        if not tracker.alive:
            return  # the partition's new owner does it again; its claims absorb that
        self._gauges.answers += 1
        if self._error is not None:
            self._handout.release(tracker)  # the engine is ending: it is not done, so it comes again
            return
        if isinstance(answer, Defer):
            self._handout.release(tracker)
            self._deferred.add(tracker, record, answer.until_ms, answer.recall)
            metrics.ENGINE_DEFERRED.labels(tracker.topic).inc()
            self.signals.emit("deferred")
        elif answer.publish or answer.events or answer.acked is not None:
            self._outbox.put(Entry(tracker, record, answer))
        else:
            self._finish(tracker, record)
        if isinstance(answer, Done) and (too_many := self._parked.seen(tracker.topic, answer.parked)) is not None:
            self._broke(too_many)
        self._handout.schedule()

    def _finished(self, entries: Sequence[Entry]) -> None:
        """What these records led to is in the log."""
        for entry in entries:
            if entry.tracker.alive:
                self._finish(entry.tracker, entry.record)
        self._handout.schedule()

    def _finish(self, tracker: Tracker, record: Record) -> None:
        self._handout.release(tracker)
        tracker.finish(record.offset)

    def _broke(self, error: BaseException) -> None:
        """Ends the engine because of this error."""
        if self._error is None:
            self._error = error
            log.critical("engine.broke", extra={"group": self._group, "error": str(error)})
        self._handout.stop()
        self._kafka.stop()

    async def _look(self) -> None:
        while True:
            self._gauges.look(self._handout.trackers, self._handout.in_flight, self._parked.recent)
            await asyncio.sleep(LOOK_S)


def _with_room_to_wait(options: EngineOptions, reader: LogReader | None) -> KafkaOptions:
    """With a reader records wait by the hundred thousand: the span must not stop the reading before they do."""
    pressure, deferred = options.kafka.pressure, options.deferred
    span = pressure.span if reader is None else max(pressure.span, deferred.records + deferred.places)
    return replace(options.kafka, pressure=replace(pressure, span=span))
