"""What the engine's tests share: a handler told what to answer, engines that run for a while, committed offsets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from confluent_kafka import Consumer, TopicPartition

from consumers.engine import Engine, EngineOptions
from consumers.loop.handout import HandoutOptions
from consumers.loop.options import KafkaOptions
from consumers.loop.outbox import OutboxOptions
from producers.publisher import KafkaPublisher
from retry_topics.dead_letters import DeadLetters
from schemas.clock import SystemClock
from schemas.records import Answer, AnswerTo, Done, Handler, LogReader, Outgoing, Publisher, Record
from schemas.topics import Topics
from streams.log_reader import KafkaLogReader

PATIENCE_S = 30.0
Reply = Callable[[Record], Answer | None]


class Told:
    """Answers as told; None: not yet (`answers` holds how to answer it later). Remembers what it got."""

    def __init__(self, reply: Reply = lambda record: Done()) -> None:
        self.reply = reply
        self.got: list[Record] = []
        self.open: dict[tuple[int, int], Callable[[Answer], None]] = {}
        self._more = asyncio.Event()

    async def handle(self, records: Sequence[Record], answer: AnswerTo) -> None:
        for record in records:
            self.got.append(record)
            given = self.reply(record)
            if given is None:
                self.open[record.partition, record.offset] = lambda late, record=record: answer(record, late)  # type: ignore[misc]
            else:
                answer(record, given)
        self._more.set()

    def places(self) -> list[tuple[int, int]]:
        return [(record.partition, record.offset) for record in self.got]

    async def until(self, enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not enough():
                self._more.clear()
                await self._more.wait()

    async def until_got(self, count: int) -> None:
        await self.until(lambda: len(self.got) >= count)


@dataclass
class Bench:
    """A broker with one input topic; engines of one group on it."""

    kafka: Mapping[str, str]
    publisher: KafkaPublisher
    topics: Topics
    topic: str
    group: str
    partitions: int
    options: EngineOptions = field(init=False)
    clock: SystemClock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        kafka = KafkaOptions(self.group, (self.topic,), session_timeout_s=6.0, commit_every_s=0.05)
        outbox = OutboxOptions(self.topics.status, retry_most_s=0.2)
        self.options = EngineOptions(kafka, outbox, handout=HandoutOptions(batch=50, in_flight=200))

    def engine(
        self,
        handler: Handler,
        publisher: Publisher | None = None,
        reader: LogReader | None = None,
        gap: Callable[[str], None] = lambda name: None,
        **changes: object,
    ) -> Engine:
        park = DeadLetters(self.topics, self.clock).parked
        options = replace(self.options, **changes)  # type: ignore[arg-type]
        return Engine(
            handler, publisher or self.publisher, options, self.kafka, park, rng=Random(1), reader=reader, gap=gap
        )

    def impatient(self) -> KafkaOptions:
        """Gives up hanging work at once when a partition goes."""
        return replace(self.options.kafka, drain_s=0.2)

    async def write(self, *values: bytes, partition: int | None = None) -> None:
        """In turns to all partitions, or to one."""
        outgoing = [
            Outgoing(self.topic, b"k%d" % n, value, partition=n % self.partitions if partition is None else partition)
            for n, value in enumerate(values)
        ]
        await self.publisher.publish(outgoing)

    async def committed(self) -> list[int]:
        """Committed offset by partition; -1001 where there is none."""
        return await asyncio.to_thread(self._committed)

    async def committed_reaches(self, offsets: Sequence[int]) -> None:
        wanted = list(offsets)
        async with asyncio.timeout(PATIENCE_S):
            while (found := await self.committed()) != wanted:
                assert all(at <= most for at, most in zip(found, wanted, strict=True)), f"{found} went past {wanted}"

    async def read_all(self, topic: str, partition: int = 0) -> list[Record]:
        reader = KafkaLogReader(self.kafka)
        first, end = await reader.offsets(topic, partition)
        records = [record async for record in reader.read_range(topic, partition, first, end - 1)]
        await reader.close()
        return records

    def _committed(self) -> list[int]:
        consumer = Consumer({**self.kafka, "group.id": self.group})
        places = [TopicPartition(self.topic, partition) for partition in range(self.partitions)]
        found = [place.offset for place in consumer.committed(places, timeout=10)]
        consumer.close()
        return found


async def eventually(condition: Callable[[], bool]) -> None:
    """For what has no signal: looks every few milliseconds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[Engine]:
    """The engine at work, with partitions in its hands; stopped cleanly afterwards."""
    run = asyncio.create_task(engine.run())
    assigned = asyncio.create_task(engine.signals.reached("assigned"))
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait([run, assigned], return_when=asyncio.FIRST_COMPLETED)
    if run.done():
        await run
    try:
        yield engine
    finally:
        assigned.cancel()
        await engine.stop()
        await run
