"""The log as an outsider sees it: plain confluent clients, no code of Tidings beside the names of topics."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

TIMEOUT_S = 30.0
LOOK_S = 0.1
Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Written:
    """A record as it lies in the log."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    def header(self, name: str) -> str:
        return dict(self.headers).get(name, b"").decode()


@dataclass(frozen=True, slots=True)
class ToWrite:
    """A record to be written, by the key's partition unless one is named."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int = -1


class Broker:
    """Blocking: tests call it in a thread."""

    def __init__(self, bootstrap: str) -> None:
        self._client = {"bootstrap.servers": bootstrap, "log_level": 0}

    def write(self, topic: str, records: Iterable[ToWrite]) -> None:
        """Returns once all are acknowledged, in order within a partition."""
        failed: list[str] = []
        producer = Producer(
            {**self._client, "partitioner": "murmur2_random", "enable.idempotence": True, "message.max.bytes": 4 << 20}
        )
        for record in records:
            where = {} if record.partition < 0 else {"partition": record.partition}
            producer.produce(
                topic,
                record.value,
                record.key,
                headers=list(record.headers),
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
                **where,
            )
        assert producer.flush(TIMEOUT_S) == 0, f"{topic} does not take records"
        assert not failed, f"{topic} refused records: {failed}"

    def read(self, topic: str) -> list[Written]:
        """All that is in the topic now, in order within a partition."""
        consumer = self._consumer("nobody")
        try:
            ends = self._ends(consumer, topic)
            starts = [TopicPartition(topic, number, 0) for number, end in ends.items() if end]
            found: list[Written] = []
            consumer.assign(starts)
            missing = {place.partition: ends[place.partition] for place in starts}
            deadline_s = time.monotonic() + TIMEOUT_S
            while missing:
                assert time.monotonic() < deadline_s, f"{topic} cannot be read to its end: {missing}"
                for message in consumer.consume(500, LOOK_S):
                    assert message.error() is None, message.error()
                    found.append(_written(message))
                missing = {number: end for number, end in missing.items() if not _is_at(consumer, topic, number, end)}
            return found
        finally:
            consumer.close()

    def left(self, group: str, topics: Sequence[str]) -> dict[str, int]:
        """Topic -> records that the group has not committed yet; those without any are left out."""
        consumer = self._consumer(group)
        try:
            found = {topic: self._left(consumer, topic) for topic in topics}
            return {topic: count for topic, count in found.items() if count}
        finally:
            consumer.close()

    def _left(self, consumer: Consumer, topic: str) -> int:
        ends = self._ends(consumer, topic)
        committed = consumer.committed([TopicPartition(topic, number) for number in ends], TIMEOUT_S)
        return sum(max(0, ends[place.partition] - max(0, place.offset)) for place in committed)

    def partitions(self, topic: str) -> int:
        """How many it has."""
        consumer = self._consumer("nobody")
        try:
            return len(_numbers(consumer, topic))
        finally:
            consumer.close()

    def _ends(self, consumer: Consumer, topic: str) -> dict[int, int]:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)[1]
            for number in _numbers(consumer, topic)
        }

    def _consumer(self, group: str) -> Consumer:
        # Never joins the group: it asks for its offsets, or reads by assignment without committing.
        return Consumer(
            {**self._client, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        )


def _numbers(consumer: Consumer, topic: str) -> list[int]:
    return [*consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions]


def _is_at(consumer: Consumer, topic: str, partition: int, end: int) -> bool:
    position = consumer.position([TopicPartition(topic, partition)])[0].offset
    return bool(position >= end)


def _written(message: Any) -> Written:
    headers = tuple(message.headers() or ())
    return Written(message.topic(), message.partition(), message.offset(), message.key(), message.value(), headers)
