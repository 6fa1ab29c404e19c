"""The door through which records enter the log: acks=all, idempotent, murmur2, one latch per call.

Used by every process that writes (the API, callbacks, the engine, dispatch, fan-out). librdkafka's answers are
fetched by the event loop itself while somebody waits for one (every millisecond where latency counts): a thread of its
own would have to win the interpreter's lock from a busy loop for each single answer, which costs up to 5 ms each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from schemas import metrics, reasons, topics
from schemas.errors import Poison, Transient
from schemas.records import Outgoing, Placed

log = logging.getLogger(__name__)

ANY_PARTITION = -1
"""The key decides."""
NOW = 0
"""The client stamps the record."""
NOWHERE = (-1, -1)
PUMP_S = 0.001
PUMPS_A_LINGER = 4
"""Answers are fetched so many times while a batch fills: more often costs CPU and gains nothing."""
PUMP_IDLE_S = 0.5
QUEUE_FULL_PAUSE_S = 0.005
LATCH_GRACE_S = 10.0
"""A latch waits this much longer than the delivery time-out, after which every record has got its answer."""


@dataclass(frozen=True, slots=True)
class PublisherOptions:
    """linger_ms: about 1 for the API and transactional lanes, 20 for bulk, 50 for fan-out. max_bytes: topic -> its
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
    """Publisher port on confluent-kafka. Built after fork; one per process; used on one event loop.

    on_fatal is called once when the producer is dead for good (an idempotent producer cannot recover by itself):
    the process must end with a non-zero code and be started again.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        options: PublisherOptions | None = None,
        on_fatal: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._options = options or PublisherOptions()
        self._on_fatal = on_fatal
        self._pump_s = max(PUMP_S, self._options.linger_ms / 1000 / PUMPS_A_LINGER)
        self._fatal = ""
        self._away = False
        self._waiting = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pumping: asyncio.TimerHandle | None = None
        self._producer = Producer(_settings(kafka, self._options) | {"error_cb": self._on_error})

    async def publish(self, outgoing: Sequence[Outgoing]) -> list[Placed]:
        if not outgoing:
            return []
        for record in outgoing:
            self._check_size(record)
        loop = asyncio.get_running_loop()
        started = loop.time()
        latch = _Latch(len(outgoing), loop.create_future())
        self._waiting += 1
        try:
            self._pump_on(loop)
            await self._produce_all(outgoing, latch)
            await latch.wait(self._options.delivery_timeout_s + LATCH_GRACE_S)
        finally:
            self._waiting -= 1
        _count(outgoing, latch, loop.time() - started)
        if latch.error:
            raise Transient(self._fatal or latch.error)
        if self._away:
            self._away = False
            log.info("publisher.brokers_are_back")
        return [Placed(*place) for place in latch.placed]

    async def close(self) -> None:
        """Writes what is still queued, within the delivery time-out."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._options.delivery_timeout_s
        while len(self._producer) and loop.time() < ends_s:
            self._producer.poll(0)
            await asyncio.sleep(PUMP_S)
        if self._pumping is not None:
            self._pumping.cancel()
        if left := len(self._producer):
            log.error("publisher.closed_with_records_unwritten", extra={"records": left})

    def _pump_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Makes sure that answers are fetched by this loop, and soon."""
        if self._loop is loop and self._waiting > 1:
            return
        if self._pumping is not None:
            self._pumping.cancel()
        self._loop = loop
        self._pumping = loop.call_later(self._pump_s, self._pump)

    def _pump(self) -> None:
        """Serves what librdkafka has to tell; between calls only errors come, which may wait."""
        assert self._loop is not None
        self._pumping = self._loop.call_later(self._pump_s if self._waiting else PUMP_IDLE_S, self._pump)
        self._producer.poll(0)

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
                    latch.failed(len(outgoing) - index, str(error))
                    return

    def _check_size(self, record: Outgoing) -> None:
        """Before anything is produced: one oversize record can fail its neighbours at the broker."""
        limit = self._options.max_bytes.get(record.topic, self._options.max_record_bytes)
        if (size := record.size) > limit:
            raise Poison(
                reasons.ParkReason.TOO_LARGE, f"a record for {record.topic} has {size} bytes, its limit is {limit}"
            )

    def _on_error(self, error: Any) -> None:
        if error.fatal() and not self._fatal:
            self._fatal = f"the producer is dead and needs a new process: {error.str()}"
            log.critical("publisher.died", extra={"error": error.name()})
            self._on_fatal(self._fatal)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN and not self._away:
            self._away = True
            log.warning("publisher.lost_all_brokers", extra={"error": error.str()})


class _Latch:
    """Counts the answers of one publish call and opens when all have come."""

    __slots__ = ("_future", "_left", "error", "placed")

    def __init__(self, records: int, future: asyncio.Future[None]) -> None:
        self._left = records
        self._future = future
        self.error = ""
        self.placed: list[tuple[int, int]] = [NOWHERE] * records

    async def wait(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):  # wait_for may lose a cancel on Python 3.11
                await self._future
        except TimeoutError:
            self.error = self.error or f"no answer from the log within {timeout_s:.0f} s"

    def delivered(self, index: int, error: Any, message: Any) -> None:
        """librdkafka's answer for one record."""
        if error is None:
            self.placed[index] = (message.partition(), message.offset())
            self._count_down(1)
        else:
            self.failed(1, error.str())

    def failed(self, records: int, error: str) -> None:
        self.error = self.error or error
        self._count_down(records)

    def _count_down(self, records: int) -> None:
        self._left -= records
        if not self._left and not self._future.done():
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


_published = lru_cache(metrics.PUBLISHED.labels)
"""Looking a label up costs as much as handing a record to librdkafka."""


def _count(outgoing: Sequence[Outgoing], latch: _Latch, seconds: float) -> None:
    written = Counter(record.topic for record, at in zip(outgoing, latch.placed, strict=True) if at[1] >= 0)
    for topic, records in written.items():
        _published(topic).inc(records)
    if latch.error:
        failed = Counter(record.topic for record in outgoing)
        for topic, records in (failed - written).items():
            metrics.PUBLISH_FAILURES.labels(topic).inc(records)
    metrics.PUBLISH_SECONDS.observe(seconds)
