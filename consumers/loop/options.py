"""Settings of the Kafka thread, and what they mean to librdkafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class PressureOptions:
    """span: offsets between a partition's watermark and the newest record taken. records, bytes: read but not yet
    handed to the handler, over all partitions that are not paused.
    """

    span: int = 5_000
    records: int = 2_000
    bytes: int = 16_000_000


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """session_timeout_s: 10 for transactional work, 30 for bulk. heartbeat_s: a member learns of a rebalance by its
    next heartbeat, so frequent ones make it short. strict_offsets: a committed offset below the
    log's start is an error (else: go on at the start). drain_s: how long a partition that is taken away waits for
    the work begun on it; far below max_poll_interval_s, for which the whole group would wait.
    """

    group: str
    topics: tuple[str, ...]
    session_timeout_s: float = 10.0
    heartbeat_s: float = 1.0
    max_poll_interval_s: float = 120.0
    prefetch_kbytes: int = 16_384
    strict_offsets: bool = True
    commit_every_s: float = 1.0
    drain_s: float = 8.0
    stop_s: float = 15.0
    pressure: PressureOptions = field(default_factory=PressureOptions)


def settings(kafka: Mapping[str, str], options: KafkaOptions) -> dict[str, Any]:
    """The consumer's configuration."""
    return {
        # librdkafka would write a line for every attempt to connect; what matters comes as an error.
        "log_level": 2,
        **kafka,
        "group.id": options.group,
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Where a group has no offset yet, `assignment.begin` starts it at the log's beginning by itself.
        "auto.offset.reset": "error" if options.strict_offsets else "earliest",
        "session.timeout.ms": int(options.session_timeout_s * 1000),
        "heartbeat.interval.ms": int(options.heartbeat_s * 1000),
        "max.poll.interval.ms": int(options.max_poll_interval_s * 1000),
        "queued.max.messages.kbytes": options.prefetch_kbytes,
        "queued.min.messages": 10_000,
        # Of one partition at a time. At the default of 1 MB thousands of records of one would come before the first of
        # the next, and a page of a campaign, which lies in all of them, could not be worked together.
        "fetch.message.max.bytes": 65_536,
        # The default of a second would let a full queue run dry before it is filled again.
        "fetch.queue.backoff.ms": 20,
        # At the default of five minutes a topic or partition that the broker did not know yet when we subscribed would
        # be read by nobody until then.
        "topic.metadata.refresh.interval.ms": 10_000,
    }
