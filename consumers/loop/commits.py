"""Commits of the Kafka thread: progress every second, a partition's end, and marks of what is in hand alone.

Progress goes by store_offsets and commit, so that a partition that is no longer ours cannot be rewound by us; the
explicit commits happen only inside rebalance callbacks and between polls, while the partition is ours.
"""

from __future__ import annotations

import asyncio
import logging
import queue
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumers.loop import starts
from consumers.loop.tracker import Tracker
from schemas import metrics
from schemas.gaps import Gap

log = logging.getLogger(__name__)

Mark = tuple[Tracker, int | None, "asyncio.Future[None]"]


class Commits:
    """tell runs a call on the event loop; on_committed is told after each commit that the broker took."""

    def __init__(
        self, group: str, gap: Gap | None, tell: Callable[..., None], on_committed: Callable[[], None]
    ) -> None:
        self._group = group
        self._gap = gap
        self._tell = tell
        self._on_committed = on_committed
        self._again = False
        self.marks: queue.SimpleQueue[Mark] = queue.SimpleQueue()

    def progress(self, consumer: Any, trackers: Iterable[Tracker]) -> None:
        """Commits what moved, without waiting for the answer; after a failure once more.

        Not where a record is named in the metadata: the word that takes its name away commits it as well.
        """
        moved = [t for t in trackers if not t.is_named and (self._again or t.watermark > t.committed)]
        if not moved:
            return
        if self._gap is not None:
            self._gap("before_commit")
        self._again = False
        offsets = []
        for tracker in moved:
            if tracker.watermark > tracker.committed:
                tracker.committed, tracker.starts = tracker.watermark, 1
            metadata = starts.running(tracker.starts)
            offsets.append(TopicPartition(tracker.topic, tracker.partition, tracker.committed, metadata))
        try:
            consumer.store_offsets(offsets=offsets)
            consumer.commit(asynchronous=True)
        except KafkaException as error:
            self.answered(error.args[0], offsets)

    def end(self, consumer: Any, trackers: Sequence[Tracker]) -> None:
        """The last commit for these partitions: what is done, and that they ended cleanly."""
        if self._gap is not None:
            self._gap("before_commit")
        self._now(consumer, [(tracker, starts.CLEAN) for tracker in trackers])

    def serve_marks(self, consumer: Any, trackers: Collection[Tracker]) -> None:
        """Writes each wanted mark into the metadata and tells who waits for it.

        Before a record is named all else is committed: who dies of that has not died of the record.
        """
        while not self.marks.empty():
            tracker, offset, marked = self.marks.get()
            if tracker.alive:
                if offset is not None:
                    self.progress(consumer, trackers)
                tracker.is_named = offset is not None
                word = starts.running(tracker.starts) if offset is None else starts.alone(tracker.starts, offset)
                self._now(consumer, [(tracker, word)])
            self._tell(_resolve, marked)

    def answered(self, error: Any, partitions: Sequence[Any]) -> None:
        """librdkafka's on_commit; nothing new to commit is no failure."""
        if error is not None and error.code() == KafkaError._NO_OFFSET:
            return
        if error is not None:
            self._failed(error.str())
            return
        metrics.ENGINE_COMMITS.labels(self._group, "done").inc()
        self._tell(self._on_committed)

    def _now(self, consumer: Any, commits: Sequence[tuple[Tracker, str]]) -> None:
        offsets = []
        for tracker, metadata in commits:
            tracker.committed = tracker.watermark
            offsets.append(TopicPartition(tracker.topic, tracker.partition, tracker.committed, metadata))
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # What was done is read again by whoever comes next; its claims absorb that.
            self._failed(str(error))
            return
        self.answered(None, offsets)

    def _failed(self, text: str) -> None:
        self._again = True
        metrics.ENGINE_COMMITS.labels(self._group, "failed").inc()
        log.warning("engine.commit_failed", extra={"group": self._group, "error": text})


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
