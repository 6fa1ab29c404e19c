"""A status group of its own for each test: topics, Redis keys, folder."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schemas.topics import Topics
from tests.conftest import CreateTopics
from tests.integration.status.bench import Bench, opened, specs

_numbers = itertools.count()


@pytest.fixture
def partitions() -> int:
    return 2


@pytest.fixture
async def bench(
    kafka_bootstrap: str,
    redis_url: str,
    topic_prefix: str,
    create_topics: CreateTopics,
    tmp_path: Path,
    partitions: int,
) -> AsyncIterator[Bench]:
    topics = Topics(f"{topic_prefix}{next(_numbers)}.")
    *kept, dead_letters = specs(topics)
    create_topics(*kept, partitions=partitions)
    create_topics(dead_letters)
    async with opened(kafka_bootstrap, redis_url, topics, partitions, tmp_path) as bench:
        yield bench
