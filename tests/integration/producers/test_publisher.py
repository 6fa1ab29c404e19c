"""The publisher on a real broker, and on none: every record is accounted for."""

from __future__ import annotations

import asyncio

import pytest

from producers.publisher import KafkaPublisher, PublisherOptions
from schemas.errors import Poison, Transient
from schemas.records import Outgoing
from streams.log_reader import KafkaLogReader
from tests.conftest import CreateTopics

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def topic(topic_prefix: str, create_topics: CreateTopics, request: pytest.FixtureRequest) -> str:
    name = f"{topic_prefix}{abs(hash(request.node.name))}"
    create_topics(name)
    return name


async def test_a_full_queue_delays_and_drops_nothing(kafka_bootstrap: str, topic: str) -> None:
    """K30: twenty times more records than the client's queue holds, from several callers at once."""
    kafka = {"bootstrap.servers": kafka_bootstrap}
    publisher = KafkaPublisher(kafka, PublisherOptions(queue_records=1_000))
    records = [Outgoing(topic, b"k%d" % n, b"v%d" % n) for n in range(5_000)]
    placed = await asyncio.gather(*(publisher.publish(records) for _ in range(4)))
    assert sorted(at.offset for places in placed for at in places) == list(range(20_000))
    await publisher.close()


async def test_a_trickle_of_records_is_acknowledged_as_it_comes(kafka_bootstrap: str, topic: str) -> None:
    """K29: a client that waits for more to come would hold each of them up."""
    publisher = KafkaPublisher({"bootstrap.servers": kafka_bootstrap})
    await publisher.publish([Outgoing(topic, b"k", b"connected")])
    loop, waited_s = asyncio.get_running_loop(), []
    for _ in range(7):
        await asyncio.sleep(0.5)
        asked_s = loop.time()
        await publisher.publish([Outgoing(topic, b"k", b"v")])
        waited_s.append(loop.time() - asked_s)
    assert sorted(waited_s)[3] < 0.1, "half of them took longer than all may"
    await publisher.close()


async def test_a_log_that_does_not_answer_is_an_error_and_never_silence() -> None:
    """K28: the call ends soon after the delivery time-out, and says so."""
    publisher = KafkaPublisher(NOBODY, PublisherOptions(delivery_timeout_s=0.5))
    with pytest.raises(Transient):
        async with asyncio.timeout(10):
            await publisher.publish([Outgoing("t", b"k", b"v")])
    await publisher.close()


async def test_a_topic_that_does_not_exist_is_an_error(kafka_bootstrap: str, topic_prefix: str) -> None:
    publisher = KafkaPublisher({"bootstrap.servers": kafka_bootstrap}, PublisherOptions(delivery_timeout_s=2.0))
    with pytest.raises(Transient):
        await publisher.publish([Outgoing(f"{topic_prefix}nowhere", b"k", b"v")])
    await publisher.close()


async def test_an_explicit_partition_that_does_not_exist_is_an_error(kafka_bootstrap: str, topic: str) -> None:
    publisher = KafkaPublisher({"bootstrap.servers": kafka_bootstrap}, PublisherOptions(delivery_timeout_s=2.0))
    with pytest.raises(Transient):
        await publisher.publish([Outgoing(topic, b"k", b"good"), Outgoing(topic, b"k", b"bad", partition=7)])
    await publisher.close()


async def test_the_largest_record_allowed_is_written_and_one_byte_more_is_refused(
    kafka_bootstrap: str, topic: str
) -> None:
    kafka = {"bootstrap.servers": kafka_bootstrap}
    publisher, reader = KafkaPublisher(kafka, PublisherOptions(max_record_bytes=500_000)), KafkaLogReader(kafka)
    largest = 500_000 - 128
    await publisher.publish([Outgoing(topic, b"", b"x" * largest)])
    with pytest.raises(Poison):
        await publisher.publish([Outgoing(topic, b"", b"x" * (largest + 1))])
    assert await reader.offsets(topic, 0) == (0, 1)
    await asyncio.gather(publisher.close(), reader.close())


async def test_closing_writes_what_was_handed_over_by_a_caller_who_went_away(kafka_bootstrap: str, topic: str) -> None:
    kafka = {"bootstrap.servers": kafka_bootstrap}
    publisher, reader = KafkaPublisher(kafka, PublisherOptions(linger_ms=300)), KafkaLogReader(kafka)
    caller = asyncio.create_task(publisher.publish([Outgoing(topic, b"k", b"v")]))
    await asyncio.sleep(0.05)
    caller.cancel()
    await publisher.close()
    assert await reader.offsets(topic, 0) == (0, 1)
    await reader.close()


async def test_one_publisher_serves_loops_that_come_and_go(kafka_bootstrap: str, topic: str) -> None:
    publisher = KafkaPublisher({"bootstrap.servers": kafka_bootstrap})

    def in_a_loop_of_its_own() -> int:
        return asyncio.run(publisher.publish([Outgoing(topic, b"k", b"v")]))[0].offset

    offsets = [await asyncio.to_thread(in_a_loop_of_its_own) for _ in range(2)]
    assert offsets == [0, 1]
    await publisher.close()
