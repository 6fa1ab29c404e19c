"""A fresh input topic and group for each test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from producers.publisher import KafkaPublisher
from schemas.topics import Topics
from tests.conftest import CreateTopics
from tests.integration.engine.bench import Bench

_numbers = itertools.count()


@pytest.fixture
async def bench(
    kafka_bootstrap: str, topic_prefix: str, create_topics: CreateTopics, request: pytest.FixtureRequest
) -> AsyncIterator[Bench]:
    """Two partitions, or as many as the test's indirect parameter says."""
    partitions: int = getattr(request, "param", 2)
    topics = Topics(f"{topic_prefix}{next(_numbers)}.")
    topic = topics.lane("push", "bulk")
    create_topics(topic, partitions=partitions)
    create_topics(topics.dlq("push"))
    kafka = {"bootstrap.servers": kafka_bootstrap}
    publisher = KafkaPublisher(kafka)
    yield Bench(kafka, publisher, topics, topic, topics.group("work push.bulk"), partitions)
    await publisher.close()
