"""Where a newly assigned partition begins, and how often a process has begun there before.

Runs in the Kafka thread, inside the rebalance callback; calls to the broker are few and bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaException, TopicPartition

from consumers.loop import starts
from consumers.loop.tracker import ALONE_RECORDS, Tracker
from schemas.errors import Misconfigured, Transient

log = logging.getLogger(__name__)

BROKER_S = 10.0


def begin(consumer: Any, partitions: Sequence[Any], strict_offsets: bool) -> list[Tracker]:
    """A tracker for each partition, at its committed offset; without one, at the log's beginning.

    Raises Misconfigured when strict and the committed offset lies below the log's start, Transient when the broker
    does not answer.
    """
    try:
        committed = consumer.committed(list(partitions), timeout=BROKER_S)
        return [_begin_one(consumer, place, strict_offsets) for place in committed]
    except KafkaException as error:
        raise Transient(f"the committed offsets cannot be read: {error}") from error


def count_start(consumer: Any, trackers: Sequence[Tracker]) -> None:
    """Notes this start in the commits' metadata; a clean end takes it away again."""
    offsets = [TopicPartition(t.topic, t.partition, t.watermark, starts.running(t.starts)) for t in trackers]
    if not offsets:
        return
    try:
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        log.warning("engine.start_not_counted", extra={"error": str(error)})


def _begin_one(consumer: Any, place: Any, strict_offsets: bool) -> Tracker:
    low, high = consumer.get_watermark_offsets(TopicPartition(place.topic, place.partition), timeout=BROKER_S)
    if place.offset == OFFSET_INVALID:
        return Tracker(place.topic, place.partition, low)
    if place.offset < low and strict_offsets:
        raise Misconfigured(
            f"the committed offset {place.offset} of {place.topic}/{place.partition} lies below the log's start {low}: "
            "records were deleted unread; set the offset by hand to go on"
        )
    past = starts.read(place.metadata)
    tracker = Tracker(place.topic, place.partition, max(place.offset, low), past.starts + 1, past.alone)
    if place.offset < high and (tracker.starts >= starts.SUSPICIOUS_STARTS or past.alone is not None):
        tracker.alone_left = ALONE_RECORDS
        log.error("engine.starts_without_progress", extra={"topic": tracker.topic, "starts": tracker.starts})
    return tracker
