"""One key, one partition: our producer, Faust's client and our own murmur2 agree, or tables and reads would miss."""

from __future__ import annotations

from aiokafka.partitioner import DefaultPartitioner

from producers.publisher import KafkaPublisher
from schemas import keys, partitions
from schemas.records import Outgoing
from tests.conftest import CreateTopics

PARTITIONS = 7
KEYS = [
    *(keys.row_key("default", keys.recipient_address("sp/ri:ng.é", page, 0).row).encode() for page in range(60)),
    *(keys.user_key("acme", f"user-{number}").encode() for number in range(60)),
    *(bytes(range(length)) for length in range(1, 20)),
    b"\xff\xfe",
]


async def test_producer_faust_and_reader_place_a_key_in_the_same_partition(
    kafka_bootstrap: str, topic_prefix: str, create_topics: CreateTopics
) -> None:
    topic = f"{topic_prefix}keys"
    create_topics(topic, partitions=PARTITIONS)
    publisher = KafkaPublisher({"bootstrap.servers": kafka_bootstrap})
    placed = await publisher.publish([Outgoing(topic, key, b"") for key in KEYS])
    await publisher.close()
    every = list(range(PARTITIONS))
    faust = DefaultPartitioner()
    for key, place in zip(KEYS, placed, strict=True):
        assert place.partition == partitions.murmur2_partition(key, PARTITIONS) == faust(key, every, every)
    assert {place.partition for place in placed} == set(every)
