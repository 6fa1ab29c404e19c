"""Back-pressure: when the Kafka thread stops reading, pauses partitions, and resumes them.

A pause throws away what the client has prefetched, so it comes only after a second of standing still; a partition
stuck behind one record is paused at once, or its neighbours would wait with it. Resuming waits for half the limit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any

from confluent_kafka import TopicPartition

from consumers.loop.options import PressureOptions
from consumers.loop.tracker import Tracker
from schemas import metrics

log = logging.getLogger(__name__)

PAUSE_AFTER_S = 1.0
ROOM_S = 0.02
FULL = "full"
STUCK = "stuck"


class Pressure:
    """Owned by the Kafka thread; `room` is set by the event loop."""

    def __init__(self, options: PressureOptions, group: str) -> None:
        self._options = options
        self._group = group
        self._full_since: float | None = None
        self._paused = 0
        self.room = threading.Event()

    def steer(self, consumer: Any, trackers: Iterable[Tracker], now_s: float) -> bool:
        """Pauses and resumes; True when nothing should be read right now."""
        trackers = list(trackers)
        for tracker in trackers:
            if not tracker.pause_cause and tracker.span >= self._options.span:
                self._pause(consumer, [tracker], STUCK)
        if self._paused:
            self._resume_what_flows(consumer, trackers)
        return self._standing_still(consumer, trackers, now_s)

    def wait_for_room(self) -> None:
        self.room.wait(ROOM_S)
        self.room.clear()

    def _standing_still(self, consumer: Any, trackers: list[Tracker], now_s: float) -> bool:
        reading = [tracker for tracker in trackers if not tracker.pause_cause]
        if not self._over(reading, 1.0):
            self._full_since = None
            return False
        if self._full_since is None:
            self._full_since = now_s
        if now_s - self._full_since < PAUSE_AFTER_S:
            return True
        self._pause(consumer, [tracker for tracker in reading if tracker.buffered], FULL)
        self._full_since = None
        return False

    def _resume_what_flows(self, consumer: Any, trackers: list[Tracker]) -> None:
        full = self._over([tracker for tracker in trackers if tracker.pause_cause != STUCK], 0.5)
        flowing = [
            tracker
            for tracker in trackers
            if (tracker.pause_cause == FULL and not full)
            or (tracker.pause_cause == STUCK and tracker.span <= self._options.span // 2)
        ]
        if flowing:
            consumer.resume(_partitions(flowing))
            for tracker in flowing:
                tracker.pause_cause = ""
            log.info("partitions.resumed", extra={"group": self._group, "count": len(flowing)})
        self._count(trackers)

    def _pause(self, consumer: Any, trackers: list[Tracker], cause: str) -> None:
        consumer.pause(_partitions(trackers))
        for tracker in trackers:
            tracker.pause_cause = cause
        self._paused += len(trackers)
        metrics.ENGINE_PAUSED.labels(self._group).set(self._paused)
        log.info("partitions.paused", extra={"group": self._group, "count": len(trackers), "cause": cause})

    def _count(self, trackers: list[Tracker]) -> None:
        self._paused = sum(1 for tracker in trackers if tracker.pause_cause)
        metrics.ENGINE_PAUSED.labels(self._group).set(self._paused)

    def _over(self, trackers: list[Tracker], share: float) -> bool:
        records = sum(tracker.buffered for tracker in trackers)
        if records >= self._options.records * share:
            return True
        return sum(tracker.buffered_bytes for tracker in trackers) >= self._options.bytes * share


def _partitions(trackers: list[Tracker]) -> list[Any]:
    return [TopicPartition(tracker.topic, tracker.partition) for tracker in trackers]
