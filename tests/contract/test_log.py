"""One suite for the log's ports (Publisher, LogReader, Tails), run on Kafka and on the double in memory."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from producers.publisher import KafkaPublisher
from schemas.errors import Poison
from schemas.records import LogReader, Outgoing, Publisher, Record, Tails
from streams.log_reader import KafkaLogReader, LogReaderOptions
from streams.tails import KafkaTails
from tests.conftest import CreateTopics
from tests.doubles.memory_log import MemoryLog

PARTITIONS = 2
_numbers = itertools.count()


@dataclass(frozen=True)
class Log:
    """The three ports of one body, and a topic of its own for each test."""

    publisher: Publisher
    reader: LogReader
    tails: Tails
    topic: str

    async def write(self, *values: bytes, partition: int | None = 0) -> list[int]:
        outgoing = [Outgoing(self.topic, b"k", value, partition=partition) for value in values]
        return [placed.offset for placed in await self.publisher.publish(outgoing)]


@pytest.fixture(params=["memory", "kafka"])
async def log(request: pytest.FixtureRequest) -> AsyncIterator[Log]:
    if request.param == "memory":
        double = MemoryLog(PARTITIONS)
        yield Log(double, double, double, "a.topic")
        return
    bootstrap: str = request.getfixturevalue("kafka_bootstrap")
    topic = f"{request.getfixturevalue('topic_prefix')}log.{next(_numbers)}"
    create: CreateTopics = request.getfixturevalue("create_topics")
    create(topic, partitions=PARTITIONS)
    kafka = {"bootstrap.servers": bootstrap}
    publisher = KafkaPublisher(kafka)
    reader = KafkaLogReader(kafka, LogReaderOptions(piece_records=7))
    tails = KafkaTails(kafka)
    yield Log(publisher, reader, tails, topic)
    await asyncio.gather(publisher.close(), reader.close(), tails.close())


async def test_what_was_acknowledged_can_be_read_at_its_place_unchanged(log: Log) -> None:
    headers = (("traceparent", b"00-ab"), ("unknown", b"\xff\x00"))
    placed = await log.publisher.publish(
        [Outgoing(log.topic, b"key", b"\x00value", headers, 1), Outgoing(log.topic, None, None, (), 1)]
    )
    assert [(at.partition, at.offset) for at in placed] == [(1, 0), (1, 1)]
    record = await log.reader.read(log.topic, 1, 0)
    assert record is not None
    assert (record.key, record.value, record.headers) == (b"key", b"\x00value", headers)
    tombstone = await log.reader.read(log.topic, 1, 1)
    assert tombstone is not None
    assert (tombstone.key, tombstone.value, tombstone.headers) == (None, None, ())


async def test_places_come_back_in_the_order_of_the_records_whatever_their_partitions(log: Log) -> None:
    placed = await log.publisher.publish([Outgoing(log.topic, b"k", bytes([n]), partition=n % 2) for n in range(6)])
    assert [(at.partition, at.offset) for at in placed] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]


async def test_keys_choose_their_partition_by_murmur2(log: Log) -> None:
    """The partitions that Java's and Faust's producers would choose: tables and their streams meet."""
    hash_by_java = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    placed = await log.publisher.publish([Outgoing(log.topic, key, b"") for key in hash_by_java])
    assert [at.partition for at in placed] == [(number & 0x7FFFFFFF) % PARTITIONS for number in hash_by_java.values()]


async def test_nothing_published_gives_no_places(log: Log) -> None:
    assert await log.publisher.publish([]) == []


async def test_an_oversize_record_is_poison_and_its_neighbours_are_not_written(log: Log) -> None:
    with pytest.raises(Poison) as refusal:
        await log.write(b"good", b"x" * 1_100_000)
    assert refusal.value.reason == "too_large"
    assert await log.reader.offsets(log.topic, 0) == (0, 0)


async def test_a_place_never_written_reads_as_nothing(log: Log) -> None:
    assert await log.reader.read(log.topic, 0, 0) is None
    await log.write(b"one")
    assert await log.reader.read(log.topic, 0, 1) is None


async def test_a_range_is_read_in_order_from_first_to_last(log: Log) -> None:
    await log.write(*(b"%d" % n for n in range(30)))
    values = [record.value async for record in log.reader.read_range(log.topic, 0, 3, 24)]
    assert values == [b"%d" % n for n in range(3, 25)]


async def test_a_range_ends_where_the_log_ends(log: Log) -> None:
    await log.write(b"0", b"1", b"2")
    assert [record.value async for record in log.reader.read_range(log.topic, 0, 1, 9)] == [b"1", b"2"]


async def test_a_range_read_again_after_more_was_written_goes_on(log: Log) -> None:
    await log.write(*(b"%d" % n for n in range(7)))
    first = [record.value async for record in log.reader.read_range(log.topic, 0, 0, 6)]
    await log.write(b"7", b"8")
    second = [record.value async for record in log.reader.read_range(log.topic, 0, 7, 8)]
    assert first + second == [b"%d" % n for n in range(9)]


async def test_ranges_read_one_after_the_other_while_more_is_written_miss_nothing(log: Log) -> None:
    """As small campaigns lie in one partition: each read reaches as far as one of them, its neighbour lies behind."""
    await log.write(b"first")
    read = [record.offset async for record in log.reader.read_range(log.topic, 0, 0, 0)]
    for at in (1, 2):
        await log.write(b"one", b"another")
        await asyncio.sleep(0.3)  # Kafka's client fetches ahead meanwhile, and notices the end
        read += [record.offset async for record in log.reader.read_range(log.topic, 0, at, at)]
    assert read == [0, 1, 2]


async def test_two_ranges_of_one_partition_are_read_side_by_side(log: Log) -> None:
    await log.write(*(b"%d" % n for n in range(60)))

    async def values(first: int) -> list[bytes | None]:
        return [record.value async for record in log.reader.read_range(log.topic, 0, first, first + 19)]

    found = list(await asyncio.gather(values(0), values(20), values(40)))
    assert found == [[b"%d" % n for n in range(first, first + 20)] for first in (0, 20, 40)]


async def test_offsets_name_the_first_kept_and_the_next_one_to_be_written(log: Log) -> None:
    await log.write(b"one", b"two")
    assert await log.reader.offsets(log.topic, 0) == (0, 2)
    assert await log.reader.offsets(log.topic, 1) == (0, 0)


async def test_a_view_has_seen_everything_once_it_caught_up_and_in_order(log: Log) -> None:
    await log.write(*(b"%d" % n for n in range(20)))
    seen: list[Record] = []
    view = await log.tails.follow([log.topic], seen.append)
    await view.caught_up()
    assert [record.value for record in seen] == [b"%d" % n for n in range(20)]


async def test_a_view_of_an_empty_topic_is_caught_up(log: Log) -> None:
    seen: list[Record] = []
    view = await log.tails.follow([log.topic], seen.append)
    await view.caught_up()
    assert seen == []


async def test_a_writer_sees_its_own_write_in_a_view(log: Log) -> None:
    seen: list[Record] = []
    view = await log.tails.follow([log.topic], seen.append)
    for value in (b"a", b"b", b"c"):
        placed = await log.publisher.publish([Outgoing(log.topic, b"k", value)])
        await view.seen(log.topic, placed[0])
        assert seen[-1].value == value


async def test_where_a_topic_ends_is_told_at_once_though_readers_stand_at_its_end(log: Log) -> None:
    """Dispatch asks for every partition of a lane at each look, four times a second."""
    await log.publisher.publish([Outgoing(log.topic, b"k", b"v", partition=0)] * 3)
    for _ in range(4):
        assert len([record async for record in log.reader.read_range(log.topic, 0, 0, 2)]) == 3
    asked_s = time.monotonic()
    for _ in range(20):
        assert await log.reader.offsets(log.topic, 0) == (0, 3)
    assert time.monotonic() - asked_s < 1.0, "behind a fetch each waits a tenth of a second"


async def test_the_ends_of_many_partitions_are_those_of_each(log: Log) -> None:
    await log.publisher.publish([Outgoing(log.topic, b"k", b"v", partition=1)] * 3)
    told = await log.reader.offsets_of([(log.topic, 0), (log.topic, 1)])
    assert told == {(log.topic, 0): (0, 0), (log.topic, 1): (0, 3)}
    assert await log.reader.offsets_of([]) == {}
