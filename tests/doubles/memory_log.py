"""A log in memory: Publisher, LogReader and Tails over the same lists. Keys choose partitions as Kafka does.

`fail` makes the next publishes raise; `lose_ack` writes and then raises, as when the broker's answer is lost; `only`
names the topics that this concerns, all when it is empty.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

from schemas import partitions, topics
from schemas.errors import Poison, Transient
from schemas.records import Outgoing, Placed, Record, TopicView


class MemoryLog:
    """All topics exist, each with the same number of partitions but for those in `others`."""

    def __init__(
        self,
        partition_count: int = 2,
        now_ms: Callable[[], int] = lambda: 0,
        others: Mapping[str, int] | None = None,
    ) -> None:
        self.partition_count = partition_count
        self._others = others or {}
        self.fail = False
        self.lose_ack = False
        self.only: frozenset[str] = frozenset()
        self._now_ms = now_ms
        self._logs: dict[tuple[str, int], list[Record | None]] = defaultdict(list)
        self._starts: dict[tuple[str, int], int] = defaultdict(int)
        self._listeners: dict[str, list[Callable[[Record], None]]] = defaultdict(list)

    async def publish(self, outgoing: Sequence[Outgoing]) -> list[Placed]:
        if any(_size(record) > topics.MAX_MESSAGE_BYTES for record in outgoing):
            raise Poison("too_large", "a record is larger than its topic takes")
        await asyncio.sleep(0)
        concerned = not self.only or any(record.topic in self.only for record in outgoing)
        if self.fail and concerned:
            raise Transient("the log is unavailable")
        placed = [self.append(record) for record in outgoing]
        if self.lose_ack and concerned:
            raise Transient("the acknowledgement was lost")
        return placed

    async def read(self, topic: str, partition: int, offset: int) -> Record | None:
        log = self._logs[topic, partition]
        if offset < self._starts[topic, partition] or offset >= len(log):
            return None
        return log[offset]

    async def read_range(self, topic: str, partition: int, first: int, last: int) -> AsyncIterator[Record]:
        if first < self._starts[topic, partition]:
            raise Poison("expired_log", f"{topic} begins after {first}")
        for record in self._logs[topic, partition][first : last + 1]:
            if record is not None:
                yield record

    async def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        if self.fail and (not self.only or topic in self.only):
            raise Transient("the log is unavailable")
        return self._starts[topic, partition], len(self._logs[topic, partition])

    async def offsets_of(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        return {place: await self.offsets(*place) for place in places}

    async def offset_at(self, topic: str, partition: int, at_ms: int) -> int:
        first, end = await self.offsets(topic, partition)
        kept = self.kept(topic, partition, first, end)
        return next((record.offset for record in kept if record.timestamp_ms >= at_ms), end)

    async def follow(self, topics: Sequence[str], on_record: Callable[[Record], None]) -> TopicView:
        for record in self.records(*topics):
            on_record(record)
        for topic in topics:
            self.listen(topic, on_record)
        return MemoryView()

    def listen(self, topic: str, on_record: Callable[[Record], None]) -> None:
        """Calls on_record with each record of the topic as it is written from now on."""
        self._listeners[topic].append(on_record)

    def partitions_of(self, topic: str) -> int:
        return self._others.get(topic, self.partition_count)

    def kept(self, topic: str, partition: int, first: int, most: int) -> list[Record]:
        """The records from this offset on, at most so many offsets further; without those that were removed."""
        first = max(first, self._starts[topic, partition])
        return [record for record in self._logs[topic, partition][first : first + most] if record is not None]

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """(first offset kept, end offset)."""
        return self._starts[topic, partition], len(self._logs[topic, partition])

    def records(self, *names: str) -> list[Record]:
        """Everything kept in these topics, by topic, partition and offset."""
        return [
            record
            for (topic, partition), log in sorted(self._logs.items())
            if topic in names
            for record in log[self._starts[topic, partition] :]
            if record is not None
        ]

    def expire(self, topic: str, partition: int, before: int) -> None:
        """Retention: everything below this offset is gone."""
        self._starts[topic, partition] = before

    def append(self, outgoing: Outgoing) -> Placed:
        """Writes one record, whatever the log is told to fail at."""
        partition = outgoing.partition
        if partition is None:
            partition = partitions.murmur2_partition(outgoing.key or b"", self.partitions_of(outgoing.topic))
        log = self._logs[outgoing.topic, partition]
        placed = Placed(partition, len(log))
        record = Record(
            outgoing.topic, partition, placed.offset, outgoing.key, outgoing.value, outgoing.headers, self._now_ms()
        )
        log.append(record)
        for told in self._listeners[outgoing.topic]:
            told(record)
        return placed


class MemoryView:
    """A view that sees each record as it is written."""

    async def caught_up(self) -> None:
        await asyncio.sleep(0)

    async def seen(self, topic: str, placed: Placed) -> None:
        await asyncio.sleep(0)


def _size(record: Outgoing) -> int:
    return len(record.key or b"") + len(record.value or b"") + sum(len(n) + len(v) for n, v in record.headers)
