"""Which records are handed to the handler, and when: due ones first, then fresh ones, within bounds.

Loop side of the engine. After several crashes at one place (see starts.py) it hands out one record at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consumers.loop.batches import Answered, Batch, Caller, Chosen
from consumers.loop.deferred import Deferred
from consumers.loop.kafka_side import KafkaSide
from consumers.loop.outbox import Park
from consumers.loop.tracker import Tracker
from schemas.clock import Clock
from schemas.errors import Transient
from schemas.reasons import ParkReason
from schemas.records import Record

log = logging.getLogger(__name__)

TICK_S = 1.0
"""A wall clock that jumps is noticed within this time."""
SLICE = 16
"""Records of one partition taken before it is asked again which has the oldest: see `_choose_fresh`."""


@dataclass(frozen=True, slots=True)
class HandoutOptions:
    """batch: records in one call of the handler. in_flight: records handed out and not finished, publishing included.
    read_behind_ms: topic -> how old a record must be before it is worth looking at (a tier's shortest wait).
    """

    batch: int = 250
    in_flight: int = 2_000
    read_behind_ms: Mapping[str, int] = field(default_factory=dict)


class Handout:
    """The records in our hands. on_answered gets every answer, on_broken what must end the engine."""

    def __init__(
        self,
        options: HandoutOptions,
        caller: Caller,
        deferred: Deferred,
        kafka: KafkaSide,
        park: Park,
        clock: Clock,
        on_answered: Answered,
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._options = options
        self._caller = caller
        self._deferred = deferred
        self._kafka = kafka
        self._park = park
        self._clock = clock
        self._on_answered = on_answered
        self._on_broken = on_broken
        self._worthwhile = max(1, min(options.batch, options.in_flight) // 2)
        self._ready: deque[Chosen] = deque()
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self._timer: asyncio.Handle | None = None
        self._wakes_s = 0.0
        self._reading_again = False
        self._handling_alone = False
        self._stopped = False
        self._released = asyncio.Event()
        self.trackers: list[Tracker] = []
        self.in_flight = 0

    def schedule(self) -> None:
        """Hands out soon: once for all answers of this turn of the loop."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.hand_out)

    def hand_out(self) -> None:
        """As much as may be in flight, in batches worth a round trip.

        An error ends the engine: what was chosen already would lie in nobody's hands until its end.
        """
        self._scheduled = False
        try:
            self._hand_out()
        except Exception as error:
            self._on_broken(error)

    def _hand_out(self) -> None:
        self._collect_due()
        if self._stopped or self._handling_alone or self._begin_alone():
            return
        while (free := self._options.in_flight - self.in_flight) > 0:
            if self.in_flight and free < self._worthwhile:
                break
            chosen = self._choose(min(free, self._options.batch))
            if not chosen:
                break
            self._take_in_hand(chosen)
            self._spawn(self._caller.call(Batch(chosen, self._on_answered)))
        self._kafka.give_room()

    def stop(self) -> None:
        """Hands out nothing any more."""
        self._stopped = True

    def release(self, tracker: Tracker) -> None:
        """One record of this partition left our hands."""
        self.in_flight -= 1
        tracker.in_hand -= 1
        self._released.set()

    async def drain(self, trackers: Sequence[Tracker], within_s: float) -> None:
        """Hands out nothing more of these; returns once the work begun on them is done, or the time is up."""
        for tracker in trackers:
            tracker.draining = True
        deadline = asyncio.get_running_loop().time() + within_s
        while any(tracker.in_hand for tracker in trackers):
            self._released.clear()
            left_s = deadline - asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(left_s):  # wait_for may lose a cancel on Python 3.11
                    await self._released.wait()
            except TimeoutError:
                return

    def forget(self, trackers: Sequence[Tracker]) -> None:
        for tracker in trackers:
            self.in_flight -= tracker.in_hand
            tracker.die()
        self.trackers = [tracker for tracker in self.trackers if tracker.alive]
        self._ready = deque((tracker, record) for tracker, record in self._ready if tracker.alive)
        self._deferred.forget(trackers)
        self._released.set()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    def _choose(self, most: int) -> list[Chosen]:
        """What was deferred and is due, then fresh records."""
        chosen: list[Chosen] = []
        while self._ready and len(chosen) < most:
            chosen.append(self._ready.popleft())
        if not self._deferred.full:
            self._choose_fresh(chosen, most)
        return chosen

    def _choose_fresh(self, chosen: list[Chosen], most: int) -> None:
        """A slice of the partition whose turn it is, then of whichever has the oldest record, again and again.

        A page of a campaign lies in all partitions at once: taken in the order of time its deliveries are done
        together, and one status record holds most of their events instead of a sixth.
        """
        self._turn += 1
        turn = self._turn % max(1, len(self.trackers))
        in_turn = (*self.trackers[turn:], *self.trackers[:turn])
        waiting = [tracker for tracker in in_turn if tracker.pending and not tracker.draining]
        tracker = waiting[0] if waiting else None
        while tracker is not None and len(chosen) < most:
            if not self._take_slice(tracker, chosen, min(SLICE, most - len(chosen))):
                waiting.remove(tracker)
            tracker = min(waiting, key=_oldest_ms, default=None)

    def _take_slice(self, tracker: Tracker, chosen: list[Chosen], most: int) -> bool:
        """Takes so many records, or as many as are ripe; whether there may be more."""
        pending = tracker.pending
        behind_ms = self._options.read_behind_ms.get(tracker.topic, 0)
        if not behind_ms:
            chosen += [(tracker, tracker.take()) for _ in range(min(most, len(pending)))]
            return bool(pending)
        now_ms = self._clock.now_ms()
        for _ in range(min(most, len(pending))):
            ripe_ms = pending[0].timestamp_ms + behind_ms
            if now_ms < ripe_ms <= now_ms + behind_ms:
                self._wake_at(ripe_ms)
                return False
            chosen.append((tracker, tracker.take()))
        return bool(pending)

    def _collect_due(self) -> None:
        if not len(self._deferred):
            return
        now_ms = self._clock.now_ms()
        self._ready.extend(self._deferred.take_due(now_ms))
        if self._deferred.needs_reading(now_ms) and not self._reading_again:
            self._reading_again = True
            self._spawn(self._read_again())
        if (due_ms := self._deferred.next_due_ms()) is not None:
            self._wake_at(due_ms)

    def _wake_at(self, due_ms: int) -> None:
        """Hands out again at this time, or earlier if that was wanted already."""
        loop = asyncio.get_running_loop()
        when_s = loop.time() + min(TICK_S, max(0.001, (due_ms - self._clock.now_ms()) / 1000))
        if self._timer is not None:
            if self._wakes_s <= when_s:
                return
            self._timer.cancel()
        # Kept here: for what is due at once uvloop gives a handle that does not know its time.
        self._wakes_s = when_s
        self._timer = loop.call_at(when_s, self._woken)

    def _woken(self) -> None:
        self._timer = None  # first of all: a timer may fire a little before its time, and must not look pending
        self.hand_out()

    async def _read_again(self) -> None:
        """Brings back records of which only the place was kept."""
        try:
            for tracker, offset in await self._deferred.read_again(self._clock.now_ms()):
                log.error("engine.deferred_record_is_gone", extra={"topic": tracker.topic, "offset": offset})
                tracker.finish(offset)
        except Transient as error:
            log.warning("engine.reading_again_failed", extra={"error": str(error)})
            await asyncio.sleep(TICK_S)
        finally:
            self._reading_again = False
        self.schedule()

    def _begin_alone(self) -> bool:
        """After crashes: True while records of such a partition wait, which are then handled one by one."""
        suspicious = [tracker for tracker in self.trackers if tracker.alone_left and not tracker.draining]
        if not suspicious:
            return False
        due = [chosen for chosen in self._ready if chosen[0] in suspicious]
        waiting = [tracker for tracker in suspicious if tracker.pending]
        if (due or waiting) and not self.in_flight:
            if due:
                self._ready.remove(due[0])
            chosen = due[0] if due else (waiting[0], waiting[0].take())
            self._handling_alone = True
            self._take_in_hand([chosen])
            self._spawn(self._handle_alone(*chosen))
        return bool(due or waiting or self._handling_alone)

    async def _handle_alone(self, tracker: Tracker, record: Record) -> None:
        """Names the record in the commit's metadata, then handles it, or parks it if a process died on it before."""
        tracker.alone_left -= 1
        await self._kafka.mark_alone(tracker, record.offset)
        if record.offset == tracker.suspect:
            text = f"a process died {tracker.starts - 1} times here, last with this record alone in hand"
            self._on_answered(tracker, record, self._park(record, ParkReason.CRASHES_WORKER, text))
        else:
            await self._caller.call(Batch([(tracker, record)], self._on_answered))
        while self.in_flight:
            self._released.clear()
            await self._released.wait()
        await self._kafka.mark_alone(tracker, None)
        self._handling_alone = False
        self.schedule()

    def _take_in_hand(self, chosen: list[Chosen]) -> None:
        self.in_flight += len(chosen)
        for tracker, _ in chosen:
            tracker.in_hand += 1

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_broken(error)


def _oldest_ms(tracker: Tracker) -> int:
    """When the next record of a partition that has one was written."""
    return tracker.pending[0].timestamp_ms
