"""A status group of its own for each test: topics, Redis keys, folder."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from redis.asyncio import Redis

from producers.publisher import KafkaPublisher
from schemas.topics import Topics
from streams.log_reader import KafkaLogReader
from tests.conftest import CreateTopics
from tests.integration.status.bench import Bench

_numbers = itertools.count()
PARTITIONS = 2


@pytest.fixture
async def bench(
    kafka_bootstrap: str, redis_url: str, topic_prefix: str, create_topics: CreateTopics, tmp_path: Path
) -> AsyncIterator[Bench]:
    topics = Topics(f"{topic_prefix}{next(_numbers)}.")
    specs = {spec.name: spec for spec in topics.specs()}
    names = (topics.status, topics.status_changelog, topics.state, topics.progress)
    create_topics(*(specs[name] for name in names), partitions=PARTITIONS)
    create_topics(specs[topics.internal_dlq])
    kafka = {"bootstrap.servers": kafka_bootstrap}
    redis, publisher, reader = Redis.from_url(redis_url), KafkaPublisher(kafka), KafkaLogReader(kafka)
    async with aiohttp.ClientSession() as http:
        bench = Bench(kafka_bootstrap, redis_url, topics, PARTITIONS, tmp_path, publisher, reader, redis, http)
        yield bench
        for process in bench.processes:
            if process.returncode is None:
                await bench.kill(process)
    await reader.close()
    await publisher.close()
    await redis.aclose()
