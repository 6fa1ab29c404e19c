"""What can be seen of a running engine: metrics, health, signals to await, and the limit of parked records."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Sequence

from consumers.loop.tracker import Tracker
from schemas import metrics
from schemas.clock import Clock
from schemas.errors import TooManyParked

PARKED_WINDOW = 200
PARKED_IN_A_ROW = 20


class Signals:
    """Counts what happened ("assigned", "revoked", "committed", "deferred"); tests wait for a count."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._waiting: list[tuple[str, int, asyncio.Future[None]]] = []

    def emit(self, name: str) -> None:
        self.counts[name] += 1
        if self._waiting:
            self._wake()

    async def reached(self, name: str, count: int = 1) -> None:
        """Returns once it has happened so many times since the start."""
        if self.counts[name] >= count:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, count, future))
        await future

    def _wake(self) -> None:
        for name, count, future in self._waiting:
            if self.counts[name] >= count and not future.done():
                future.set_result(None)
        self._waiting = [waiting for waiting in self._waiting if not waiting[2].done()]


class ParkedLimit:
    """Says when so many records were parked that the fault is not theirs: stop rather than empty a lane."""

    def __init__(self) -> None:
        self._window: deque[bool] = deque(maxlen=PARKED_WINDOW)
        self.recent = 0
        """How many of the last 200 were parked."""
        self._in_a_row = 0

    def seen(self, topic: str, parked: bool) -> TooManyParked | None:
        """An error once more than half of 200, or 20 in a row, were parked. topic: of this record."""
        if len(self._window) == PARKED_WINDOW and self._window[0]:
            self.recent -= 1
        self._window.append(parked)
        if not parked:
            self._in_a_row = 0
            return None
        self.recent += 1
        self._in_a_row += 1
        full = len(self._window) == PARKED_WINDOW
        if self._in_a_row >= PARKED_IN_A_ROW or (full and self.recent * 2 > PARKED_WINDOW):
            return TooManyParked(
                f"{self.recent} of the last {len(self._window)} records could not be handled and were parked, the "
                f"newest from {topic}; read why in the header tid-error-text of its dead letters, and mend the "
                "publisher or this release. A new start goes on behind what was parked"
            )
        return None


class Gauges:
    """Metrics and health of one engine, brought up to date every second; `answers` counts whatever was answered."""

    def __init__(self, group: str, clock: Clock, stuck_s: float) -> None:
        self._group = group
        self._clock = clock
        self._stuck_s = stuck_s
        self.answers = 0
        self._answers_then = 0
        self._moved_s = clock.steady_s()
        self._told: Counter[tuple[str, int]] = Counter()

    def look(self, trackers: Sequence[Tracker], in_flight: int, parked: int = 0) -> None:
        """Takes the numbers of this second."""
        now_s = self._clock.steady_s()
        if self.answers != self._answers_then or not any(tracker.has_work() for tracker in trackers):
            self._moved_s, self._answers_then = now_s, self.answers
        metrics.ENGINE_IN_FLIGHT.labels(self._group).set(in_flight)
        metrics.ENGINE_PARKED.labels(self._group).set(parked)
        for tracker in trackers:
            self._show(tracker)

    def healthy(self, last_turn_s: float) -> bool:
        """False when work has lain for too long without any answer, or the Kafka thread stands still."""
        now_s = self._clock.steady_s()
        return now_s - self._moved_s < self._stuck_s and now_s - last_turn_s < self._stuck_s

    def forget(self, trackers: Sequence[Tracker]) -> None:
        """Their partitions are somebody else's to show."""
        for tracker in trackers:
            self._show(tracker)
            del self._told[tracker.topic, tracker.partition]
            for gauge in (metrics.ENGINE_SPAN, metrics.ENGINE_OLDEST_S, metrics.ENGINE_WAITING):
                gauge.remove(tracker.topic, str(tracker.partition))

    def _show(self, tracker: Tracker) -> None:
        place = (tracker.topic, tracker.partition)
        metrics.ENGINE_HANDLED.labels(tracker.topic).inc(tracker.finished - self._told[place])
        self._told[place] = tracker.finished
        metrics.ENGINE_SPAN.labels(tracker.topic, str(tracker.partition)).set(tracker.span)
        metrics.ENGINE_WAITING.labels(tracker.topic, str(tracker.partition)).set(tracker.deferred)
        oldest_ms = tracker.oldest_ms()
        age_s = 0.0 if oldest_ms is None else max(0, self._clock.now_ms() - oldest_ms) / 1000
        metrics.ENGINE_OLDEST_S.labels(tracker.topic, str(tracker.partition)).set(age_s)
