"""Views of whole topics on a real broker: what grows later is seen too, a missing topic is named."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from producers.publisher import KafkaPublisher
from schemas.errors import Misconfigured
from schemas.records import Outgoing, Record
from streams.tails import KafkaTails, TailsOptions
from tests.conftest import CreateTopics


async def test_a_partition_added_later_is_noticed(
    kafka_bootstrap: str, topic_prefix: str, create_topics: CreateTopics
) -> None:
    kafka, topic = {"bootstrap.servers": kafka_bootstrap}, f"{topic_prefix}grows"
    create_topics(topic, partitions=1)
    tails = KafkaTails(kafka, TailsOptions(refresh_s=0.2))
    seen: asyncio.Queue[Record] = asyncio.Queue()
    view = await tails.follow([topic], seen.put_nowait)
    await view.caught_up()
    admin = AdminClient(kafka)
    await asyncio.to_thread(admin.create_partitions([NewPartitions(topic, 2)])[topic].result)
    publisher = KafkaPublisher(kafka)
    await publisher.publish([Outgoing(topic, b"k", b"new", partition=1)])
    async with asyncio.timeout(20):
        record = await seen.get()
    assert (record.partition, record.value) == (1, b"new")
    await tails.close()
    await publisher.close()


async def test_a_missing_topic_is_named_at_once(kafka_bootstrap: str, topic_prefix: str) -> None:
    tails = KafkaTails({"bootstrap.servers": kafka_bootstrap})
    with pytest.raises(Misconfigured, match="provision"):
        await tails.follow([f"{topic_prefix}nowhere"], lambda record: None)
    await tails.close()


async def test_a_record_that_its_reader_cannot_bear_does_not_end_the_view(
    kafka_bootstrap: str, topic_prefix: str, create_topics: CreateTopics
) -> None:
    kafka, topic = {"bootstrap.servers": kafka_bootstrap}, f"{topic_prefix}bad"
    create_topics(topic, partitions=1)
    publisher, tails = KafkaPublisher(kafka), KafkaTails(kafka)
    seen: list[bytes | None] = []

    def on_record(record: Record) -> None:
        seen.append(record.value)
        if record.value == b"bad":
            raise ValueError("cannot read this")

    await publisher.publish([Outgoing(topic, b"k", value) for value in (b"1", b"bad", b"3")])
    view = await tails.follow([topic], on_record)
    await view.caught_up()
    assert seen == [b"1", b"bad", b"3"]
    await tails.close()
    await publisher.close()
