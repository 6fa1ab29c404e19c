"""Where a newly assigned partition begins, and how often a process has begun there before.

Runs in the Kafka thread, inside the rebalance callback; calls to the broker are few and bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaException, TopicPartition

from consumers.loop import starts
from consumers.loop.tracker import ALONE_RECORDS, Tracker
from schemas.errors import Misconfigured, Transient

log = logging.getLogger(__name__)

BROKER_S = 10.0
ASKED_MOST = 10
AGAIN_AFTER_S = 0.5
T = TypeVar("T")


def begin(consumer: Any, asking: Any, partitions: Sequence[Any], strict_offsets: bool) -> list[Tracker]:
    """A tracker for each partition, at its committed offset; without one, at the log's beginning.

    asking: a client that reads nothing, for questions that must not wait behind a fetch. Raises Misconfigured when
    strict and the committed offset lies below the log's start, Transient when the broker does not answer.
    """
    committed = _answered(partial(consumer.committed, list(partitions), timeout=BROKER_S), asking)
    lows = _answered(partial(_offsets, asking, partitions, OFFSET_BEGINNING), asking)
    highs = _answered(partial(_offsets, asking, partitions, OFFSET_END), asking)
    return [
        _begin_one(place, lows[place.topic, place.partition], highs[place.topic, place.partition], strict_offsets)
        for place in committed
    ]


def count_start(consumer: Any, trackers: Sequence[Tracker]) -> None:
    """Notes this start in the commits' metadata; a clean end takes it away again."""
    offsets = [TopicPartition(t.topic, t.partition, t.watermark, starts.running(t.starts)) for t in trackers]
    if not offsets:
        return
    try:
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        log.warning("engine.start_not_counted", extra={"error": str(error)})


def _answered(ask: Callable[[], T], asking: Any) -> T:
    """The answer; asked again while the broker is only just back and the clients still know its former self."""
    for left in reversed(range(ASKED_MOST)):
        try:
            return ask()
        except KafkaException as error:
            if not left:
                raise Transient(f"where partitions begin cannot be read: {error}") from error
            asking.poll(AGAIN_AFTER_S)  # it reads nothing: this only waits, and lets the client hear the news
    raise AssertionError("unreachable")


def _offsets(asking: Any, partitions: Sequence[Any], which: int) -> dict[tuple[str, int], int]:
    """The first or the end offset of each partition, in one question."""
    asked = [TopicPartition(place.topic, place.partition, which) for place in partitions]
    found = asking.offsets_for_times(asked, timeout=BROKER_S) if asked else []
    for place in found:
        if place.error is not None:
            raise KafkaException(place.error)
    return {(place.topic, place.partition): place.offset for place in found}


def _begin_one(place: Any, low: int, high: int, strict_offsets: bool) -> Tracker:
    if place.offset == OFFSET_INVALID:
        return Tracker(place.topic, place.partition, low)
    if place.offset < low and strict_offsets:
        raise Misconfigured(
            f"the committed offset {place.offset} of {place.topic}/{place.partition} lies below the log's start {low}: "
            "records were deleted unread; set the offset by hand to go on"
        )
    if place.offset >= high:  # nothing lies there, so nothing there ended anybody: what comes next is not suspected
        return Tracker(place.topic, place.partition, max(place.offset, low))
    past = starts.read(place.metadata)
    tracker = Tracker(place.topic, place.partition, max(place.offset, low), past.starts + 1, past.alone)
    if tracker.starts >= starts.SUSPICIOUS_STARTS or past.alone is not None:
        tracker.alone_left = ALONE_RECORDS
        log.error("engine.starts_without_progress", extra={"topic": tracker.topic, "starts": tracker.starts})
    return tracker
