"""Reading the log at given places, without a consumer group: records, ranges, offsets (LogReader).

Used for campaign pages (dispatch), accepted records (API) and records that `forward` no longer keeps in memory.
Its neighbour `streams/tails.py` follows whole topics. A few consumers are kept; each remembers where it
stopped, so a range that is read on piece by piece goes on from what its consumer has fetched already.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from schemas.clock import Clock, SystemClock
from schemas.errors import Poison, Transient
from schemas.reasons import ParkReason
from schemas.records import Record
from streams.asking import Asker, Partition

T = TypeVar("T")

RECORDS_A_TURN = 100


@dataclass(frozen=True, slots=True)
class LogReaderOptions:
    """readers: reads going on at the same time. A range is handed over in pieces of at most piece_records
    or about piece_bytes; each reader's prefetch is bounded by prefetch_kbytes, and one answer of the broker by
    fetch_bytes, but for a single batch that is larger. stand_s: how long a reader that
    stands at the place already may give nothing before it is put there anew.
    """

    readers: int = 2
    piece_records: int = 500
    piece_bytes: int = 2_000_000
    prefetch_kbytes: int = 4_096
    fetch_bytes: int = 1_048_576
    timeout_s: float = 10.0
    stand_s: float = 0.3


SCATTERED = LogReaderOptions(prefetch_kbytes=256, fetch_bytes=65_536)
"""For single records here and there: what is fetched beyond them is of no use, and the next place waits for it."""


class KafkaLogReader:
    """LogReader port on confluent-kafka; its consumers live in threads of their own."""

    def __init__(
        self, kafka: Mapping[str, str], options: LogReaderOptions | None = None, clock: Clock | None = None
    ) -> None:
        self._options = options or LogReaderOptions()
        clock = clock or SystemClock()
        self._threads = ThreadPoolExecutor(self._options.readers, thread_name_prefix="log-reader")
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="log-asker")
        self._asker = Asker(kafka, self._options.timeout_s, clock)
        self._idle = [_Cursor(kafka, self._options, clock, self._asker) for _ in range(self._options.readers)]
        self._all = tuple(self._idle)
        self._free = asyncio.Semaphore(self._options.readers)

    async def read(self, topic: str, partition: int, offset: int) -> Record | None:
        place = (topic, partition, offset)
        try:
            records, _ = await self._fetch(place, offset, 1)
        except Poison:
            return None
        return records[0] if records else None

    async def read_range(self, topic: str, partition: int, first: int, last: int) -> AsyncIterator[Record]:
        while first <= last:
            records, first = await self._fetch((topic, partition, first), last, self._options.piece_records)
            for record in records:
                yield record

    async def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        return await self._ask(self._asker.offsets, topic, partition)

    async def offsets_of(self, places: Collection[Partition]) -> dict[Partition, tuple[int, int]]:
        return await self._ask(self._asker.offsets_of, places)

    async def offset_at(self, topic: str, partition: int, at_ms: int) -> int:
        """The first offset written at this moment or later; the end when none was. Raises Transient."""
        return await self._ask(self._asker.offset_at, topic, partition, at_ms)

    async def close(self) -> None:
        for threads in (self._threads, self._asking):
            await asyncio.to_thread(threads.shutdown)
        for cursor in self._all:
            await asyncio.to_thread(cursor.close)
        await asyncio.to_thread(self._asker.close)

    async def _ask(self, question: Callable[..., T], *about: Any) -> T:
        """A caller who goes away does not wait; the question is put all the same."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._asking, question, *about))

    async def _fetch(self, place: Place, last: int, most: int) -> tuple[list[Record], int]:
        return await self._with_cursor(place, lambda cursor: cursor.fetch(place, last, most))

    async def _with_cursor(self, place: Place, work: Callable[[_Cursor], T]) -> T:
        """Runs work in a thread with an idle cursor: the one standing at this place, else the longest idle one.

        A caller who goes away does not wait: the cursor is free again when its thread has let go of it.
        """
        await self._free.acquire()
        cursor = next((c for c in self._idle if c.at == place), self._idle[0])
        self._idle.remove(cursor)
        work_done = asyncio.get_running_loop().run_in_executor(self._threads, work, cursor)
        work_done.add_done_callback(lambda _: self._give_back(cursor))
        return await asyncio.shield(work_done)

    def _give_back(self, cursor: _Cursor) -> None:
        self._idle.append(cursor)
        self._free.release()


Place = tuple[str, int, int]
"""Topic, partition, offset."""


class _Cursor:
    """One consumer; used by one thread at a time. at: behind the last record that it gave, wanted or not; None when
    that is not known.
    """

    def __init__(self, kafka: Mapping[str, str], options: LogReaderOptions, clock: Clock, asker: Asker) -> None:
        self._options = options
        self._clock = clock
        self._asker = asker
        self._consumer = Consumer(_settings(kafka, options))
        self.at: Place | None = None

    def fetch(self, place: Place, last: int, most: int) -> tuple[list[Record], int]:
        """(records from this place on, where to go on): up to `last`, the topic's end, or a full piece."""
        stands, self.at = self.at == place, None
        try:
            # A consumer that read to the end does not always go on by itself when records come later.
            first = self._consumer.poll(self._options.stand_s) if stands else None
            if first is None and not self._seek(place):
                return [], last + 1
            records, behind, ended = self._collect(place, last, most, first)
        except KafkaException as error:
            raise Transient(f"reading {place[0]}/{place[1]} failed: {error}") from error
        self.at = (*place[:2], behind)
        return records, last + 1 if ended else behind

    def close(self) -> None:
        self._consumer.close()

    def _seek(self, place: Place) -> bool:
        """Stands at the place; False when nothing was written there yet."""
        topic, partition, offset = place
        low, high = self._asker.offsets(topic, partition)
        if offset < low:
            raise _expired(place)
        if offset < high:
            self._consumer.assign([TopicPartition(topic, partition, offset)])
        return offset < high

    def _collect(self, place: Place, last: int, most: int, first: Any) -> tuple[list[Record], int, bool]:
        """(records, the offset behind the last message taken, whether the topic ends before `last`)."""
        records: list[Record] = []
        behind, size, ended = place[2], 0, False
        deadline = self._clock.steady_s() + self._options.timeout_s
        while len(records) < most and size < self._options.piece_bytes and behind <= last and not ended:
            wanted = min(RECORDS_A_TURN, most - len(records), last + 1 - behind)
            messages = self._next_messages(place, deadline, wanted, first)
            first = None
            for message in messages:
                if message.error() is not None:
                    ended |= self._at_end(place, message, last)
                    continue
                behind = message.offset() + 1
                if message.offset() <= last:
                    records.append(record_of(message))
                    size += len(records[-1].value or b"")
        return records, behind, ended

    def _next_messages(self, place: Place, deadline: float, most: int, first: Any) -> list[Any]:
        """At least one message, and what lies ready behind it. first: one that was taken already."""
        if first is None:
            first = self._consumer.poll(max(0.0, deadline - self._clock.steady_s()))
        if first is None:
            raise Transient(f"{place[0]}/{place[1]}@{place[2]} gave no record for {self._options.timeout_s:.0f} s")
        return [first, *self._consumer.consume(most - 1, 0)] if most > 1 else [first]

    def _at_end(self, place: Place, message: Any, last: int) -> bool:
        """Whether the topic ends here. An end met earlier may have been overtaken by new records."""
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            return bool(message.offset() > last or message.offset() >= self._asker.offsets(*place[:2])[1])
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise _expired(place)
        raise KafkaException(error)


def record_of(message: Any) -> Record:
    """A confluent-kafka message as our Record."""
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple((name, value or b"") for name, value in message.headers() or ()),
        message.timestamp()[1],
    )


def _expired(place: Place) -> Poison:
    return Poison(ParkReason.EXPIRED_LOG, f"{place[0]}/{place[1]} no longer holds offset {place[2]}")


def _settings(kafka: Mapping[str, str], options: LogReaderOptions) -> dict[str, Any]:
    return {
        # librdkafka would write a line for every attempt to connect; what matters comes as an error.
        "log_level": 2,
        **kafka,
        # librdkafka asks for a group's name even where no group is used; nothing is ever committed.
        "group.id": "tidings-log-reader",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "queued.max.messages.kbytes": options.prefetch_kbytes,
        "fetch.message.max.bytes": options.fetch_bytes,
        "fetch.queue.backoff.ms": 20,
        "fetch.wait.max.ms": 100,
    }
