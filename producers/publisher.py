"""The door through which records enter the log: acks=all, idempotent, murmur2, one latch per call.

Used by every process that writes (the API, callbacks, the engine, dispatch, fan-out). A daemon thread
serves librdkafka's callbacks, so nothing here ever blocks the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from schemas import metrics, reasons, topics
from schemas.errors import Poison, Transient
from schemas.records import Outgoing, Placed

log = logging.getLogger(__name__)

RECORD_OVERHEAD_BYTES = 128
"""Above what the log adds to one record in a batch of its own (61 bytes of batch, <= 21 of record, key lengths)."""
HEADER_OVERHEAD_BYTES = 10
ANY_PARTITION = -1
"""The key decides."""
NOW = 0
"""The client stamps the record."""
NOWHERE = (-1, -1)
QUEUE_FULL_PAUSE_S = 0.005
LATCH_GRACE_S = 10.0
"""A latch waits this much longer than the delivery time-out, after which every record has got its answer."""


@dataclass(frozen=True, slots=True)
class PublisherOptions:
    """linger_ms: about 1 for the API and transactional lanes, 20 for fan-out and bulk. max_bytes: topic -> its
    own limit where it differs from max_record_bytes (the dead letter topics take a little more).
    """

    linger_ms: float = 1.0
    delivery_timeout_s: float = 30.0
    batch_bytes: int = 262_144
    queue_records: int = 100_000
    queue_kbytes: int = 65_536
    max_record_bytes: int = topics.MAX_MESSAGE_BYTES
    max_bytes: Mapping[str, int] = field(default_factory=dict)


class KafkaPublisher:
    """Publisher port on confluent-kafka. Built after fork; one per process.

    on_fatal is called once, from another thread, when the producer is dead for good (an idempotent producer
    cannot recover by itself): the process must end with a non-zero code and be started again.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        options: PublisherOptions | None = None,
        on_fatal: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._options = options or PublisherOptions()
        self._on_fatal = on_fatal
        self._fatal = ""
        self._away = False
        self._closed = threading.Event()
        self._producer = Producer(_settings(kafka, self._options) | {"error_cb": self._on_error})
        self._thread = threading.Thread(target=self._serve_callbacks, name="publisher", daemon=True)
        self._thread.start()

    async def publish(self, outgoing: Sequence[Outgoing]) -> list[Placed]:
        if not outgoing:
            return []
        for record in outgoing:
            self._check_size(record)
        loop = asyncio.get_running_loop()
        started = loop.time()
        latch = _Latch(len(outgoing), loop)
        await self._produce_all(outgoing, latch)
        await latch.wait(self._options.delivery_timeout_s + LATCH_GRACE_S)
        _count(outgoing, latch, loop.time() - started)
        if latch.error:
            raise Transient(self._fatal or latch.error)
        if self._away:
            self._away = False
            log.info("publisher.brokers_are_back")
        return [Placed(*place) for place in latch.placed]

    async def close(self) -> None:
        """Writes what is still queued, within the delivery time-out, and ends the thread."""
        if self._closed.is_set():
            return
        left = await asyncio.to_thread(self._producer.flush, self._options.delivery_timeout_s)
        self._closed.set()
        await asyncio.to_thread(self._thread.join)
        if left:
            log.error("publisher.closed_with_records_unwritten", extra={"records": left})

    async def _produce_all(self, outgoing: Sequence[Outgoing], latch: _Latch) -> None:
        """Hands every record to librdkafka; what cannot be handed over counts as failed in the latch."""
        produce, delivered = self._producer.produce, latch.delivered
        for index, record in enumerate(outgoing):
            partition = ANY_PARTITION if record.partition is None else record.partition
            headers = list(record.headers) if record.headers else None
            on_delivery = partial(delivered, index)
            while True:
                try:
                    # By position, as this is the hottest call of all; the None is a second name of on_delivery.
                    produce(record.topic, record.value, record.key, partition, on_delivery, None, NOW, headers)
                    break
                except BufferError:
                    await asyncio.sleep(QUEUE_FULL_PAUSE_S)
                except KafkaException as error:
                    latch.not_handed_over(len(outgoing) - index, str(error))
                    return

    def _check_size(self, record: Outgoing) -> None:
        """Before anything is produced: one oversize record can fail its neighbours at the broker."""
        limit = self._options.max_bytes.get(record.topic, self._options.max_record_bytes)
        if (size := _size(record)) > limit:
            raise Poison(
                reasons.ParkReason.TOO_LARGE, f"a record for {record.topic} has {size} bytes, its limit is {limit}"
            )

    def _serve_callbacks(self) -> None:
        while not self._closed.is_set():
            self._producer.poll(0.05)

    def _on_error(self, error: Any) -> None:
        if error.fatal() and not self._fatal:
            self._fatal = f"the producer is dead and needs a new process: {error.str()}"
            log.critical("publisher.died", extra={"error": error.name()})
            self._on_fatal(self._fatal)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN and not self._away:
            self._away = True
            log.warning("publisher.lost_all_brokers", extra={"error": error.str()})


class _Latch:
    """Counts the acks of one publish call; wakes the caller once, when all have come.

    `_answered` is changed only by the publisher's thread and `_expected` only by the event loop, each of which
    compares the two after its own change: so no lock is needed, and opening twice does no harm.
    """

    __slots__ = ("_answered", "_expected", "_future", "_loop", "error", "placed")

    def __init__(self, records: int, loop: asyncio.AbstractEventLoop) -> None:
        self._expected = records
        self._answered = 0
        self._loop = loop
        self._future: asyncio.Future[None] = loop.create_future()
        self.error = ""
        self.placed: list[tuple[int, int]] = [NOWHERE] * records

    async def wait(self, timeout_s: float) -> None:
        try:
            await asyncio.wait_for(self._future, timeout_s)
        except TimeoutError:
            self.error = self.error or f"no answer from the log within {timeout_s:.0f} s"

    def delivered(self, index: int, error: Any, message: Any) -> None:
        """librdkafka's answer for one record; runs in the publisher's thread."""
        if error is None:
            self.placed[index] = (message.partition(), message.offset())
        else:
            self.error = self.error or error.str()
        self._answered += 1
        if self._answered == self._expected:
            self._wake()

    def not_handed_over(self, records: int, error: str) -> None:
        """No answer will come for these; runs on the event loop."""
        self.error = self.error or error
        self._expected -= records
        if self._answered == self._expected:
            self._open()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._open)
        except RuntimeError:  # the loop is closed: nobody waits any more
            log.debug("publisher.answered_after_the_end")

    def _open(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


def _settings(kafka: Mapping[str, str], options: PublisherOptions) -> dict[str, Any]:
    return {
        # librdkafka would write a line for every attempt to connect; what matters comes as an error.
        "log_level": 2,
        **kafka,
        "acks": "all",
        "enable.idempotence": True,
        # librdkafka's default is CRC32: the same key would land elsewhere than with Faust and its tables.
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        "linger.ms": options.linger_ms,
        "batch.size": options.batch_bytes,
        "delivery.timeout.ms": int(options.delivery_timeout_s * 1000),
        "queue.buffering.max.messages": options.queue_records,
        "queue.buffering.max.kbytes": options.queue_kbytes,
        "message.max.bytes": max(options.max_record_bytes, *options.max_bytes.values(), 1_000),
    }


def _size(record: Outgoing) -> int:
    """At least what the record takes in the log, uncompressed."""
    size = len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES
    for name, value in record.headers:
        size += len(name) + len(value) + HEADER_OVERHEAD_BYTES
    return size


def _count(outgoing: Sequence[Outgoing], latch: _Latch, seconds: float) -> None:
    written = Counter(record.topic for record, at in zip(outgoing, latch.placed, strict=True) if at[1] >= 0)
    for topic, records in written.items():
        metrics.PUBLISHED.labels(topic).inc(records)
    if latch.error:
        failed = Counter(record.topic for record in outgoing)
        for topic, records in (failed - written).items():
            metrics.PUBLISH_FAILURES.labels(topic).inc(records)
    metrics.PUBLISH_SECONDS.observe(seconds)
