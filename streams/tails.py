"""Views of whole topics: every record from the start and whatever comes later, without a consumer group.

Control state, profiles, cursors and the like are small compacted topics that a process keeps in memory or
mirrors elsewhere. Neighbour of `streams/log_reader.py`, which reads single places.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from schemas.clock import Clock, SystemClock
from schemas.errors import Misconfigured, Transient
from schemas.records import Placed, Record
from streams.asking import Asker, Partition
from streams.log_reader import record_of

log = logging.getLogger(__name__)

OnRecord = Callable[[Record], None]

BATCH = 500
BATCHES_UNDERWAY = 4
"""The reading thread runs at most this far ahead of the event loop."""


@dataclass(frozen=True, slots=True)
class TailsOptions:
    """refresh_s: how soon a partition added later is noticed."""

    refresh_s: float = 30.0
    timeout_s: float = 10.0
    prefetch_kbytes: int = 8_192


class KafkaTails:
    """Tails port on confluent-kafka: one consumer and one thread for each view."""

    def __init__(
        self, kafka: Mapping[str, str], options: TailsOptions | None = None, clock: Clock | None = None
    ) -> None:
        self._kafka = kafka
        self._clock = clock or SystemClock()
        self._options = options or TailsOptions()
        self._asker = Asker(kafka, self._options.timeout_s, self._clock)
        self._views: list[KafkaTopicView] = []

    async def follow(self, topics: Sequence[str], on_record: OnRecord) -> KafkaTopicView:
        """Raises Misconfigured when a topic does not exist, Transient when the broker does not answer."""
        consumer = Consumer(_settings(self._kafka, self._options))
        view = KafkaTopicView(consumer, self._asker, topics, on_record, self._options, self._clock)
        await view.start()
        self._views.append(view)
        return view

    async def close(self) -> None:
        for view in self._views:
            await view.close()
        await asyncio.to_thread(self._asker.close)


class KafkaTopicView:
    """TopicView port. A broker that goes away only makes it wait; on_record must not raise (it is logged)."""

    def __init__(
        self,
        consumer: Consumer,
        asker: Asker,
        topics: Sequence[str],
        on_record: OnRecord,
        options: TailsOptions,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._topics = tuple(topics)
        self._on_record = on_record
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._consumer = consumer
        self._asker = asker
        self._positions: dict[Partition, int] = {}
        self._waiting: list[tuple[dict[Partition, int], asyncio.Future[None]]] = []
        self._room = threading.Semaphore(BATCHES_UNDERWAY)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="tail", daemon=True)

    async def start(self) -> None:
        self._assign_new(await asyncio.to_thread(self._asker.partitions, self._topics))
        self._thread.start()

    async def caught_up(self) -> None:
        await self._reached(await asyncio.to_thread(self._asker.ends, list(self._positions)))

    async def seen(self, topic: str, placed: Placed) -> None:
        await self._reached({(topic, placed.partition): placed.offset + 1})

    async def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        self._room.release()
        await asyncio.to_thread(self._thread.join)
        for _, future in self._waiting:
            future.cancel()

    async def _reached(self, needed: dict[Partition, int]) -> None:
        if self._has(needed):
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((needed, future))
        await future

    def _has(self, needed: Mapping[Partition, int]) -> bool:
        return all(self._positions.get(partition, 0) >= offset for partition, offset in needed.items())

    def _deliver(self, batch: Sequence[Record | tuple[Partition, int]]) -> None:
        """Runs on the event loop: the records, and the ends that were met, in the order they were read."""
        for item in batch:
            if isinstance(item, Record):
                self._hand_over(item)
                self._positions[item.topic, item.partition] = item.offset + 1
            else:
                self._positions[item[0]] = item[1]
        self._room.release()
        if self._waiting:
            self._wake()

    def _hand_over(self, record: Record) -> None:
        try:
            self._on_record(record)
        except Exception:
            place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            log.exception("view.record_failed", extra=place)

    def _wake(self) -> None:
        still = []
        for needed, future in self._waiting:
            if self._has(needed) and not future.done():
                future.set_result(None)
            elif not future.done():
                still.append((needed, future))
        self._waiting = still

    # Everything below runs in threads.

    def _read(self) -> None:
        refresh_at = self._clock.steady_s() + self._options.refresh_s
        while not self._closed.is_set():
            first = self._consumer.poll(0.1)
            if first is not None:
                self._pass_on([first, *self._consumer.consume(BATCH, 0)])
            if self._clock.steady_s() >= refresh_at:
                refresh_at = self._clock.steady_s() + self._options.refresh_s
                self._notice_new_partitions()
        self._consumer.close()

    def _pass_on(self, messages: Sequence[Any]) -> None:
        batch = [item for message in messages if (item := _item(message)) is not None]
        self._room.acquire()
        if not batch or self._closed.is_set():
            self._room.release()
            return
        try:
            self._loop.call_soon_threadsafe(self._deliver, batch)
        except RuntimeError:  # the loop is closed: nobody looks any more
            self._closed.set()

    def _notice_new_partitions(self) -> None:
        try:
            self._assign_new(self._asker.partitions(self._topics))
        except (KafkaException, Misconfigured, Transient) as error:
            log.warning("view.refresh_failed", extra={"error": str(error)})

    def _assign_new(self, partitions: Sequence[Partition]) -> None:
        new = [partition for partition in partitions if partition not in self._positions]
        if new:
            self._positions.update(dict.fromkeys(new, 0))
            self._consumer.incremental_assign([TopicPartition(*partition, OFFSET_BEGINNING) for partition in new])


def _item(message: Any) -> Record | tuple[Partition, int] | None:
    """A record, the end of a partition that was met, or None for a passing error (the client goes on by itself)."""
    error = message.error()
    if error is None:
        return record_of(message)
    if error.code() == KafkaError._PARTITION_EOF:
        return (message.topic(), message.partition()), message.offset()
    log.warning("view.read_failed", extra={"topic": message.topic(), "error": error.str()})
    return None


def _settings(kafka: Mapping[str, str], options: TailsOptions) -> dict[str, Any]:
    return {
        # librdkafka would write a line for every attempt to connect; what matters comes as an error.
        "log_level": 2,
        **kafka,
        # librdkafka asks for a group's name even where no group is used; nothing is ever committed.
        "group.id": "tidings-view",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # A compacted topic that lost its beginning is read from what there is.
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "queued.max.messages.kbytes": options.prefetch_kbytes,
        "fetch.queue.backoff.ms": 20,
        "topic.metadata.refresh.interval.ms": int(options.refresh_s * 1000),
    }
