"""A fan-out process that is killed while one page is slow: the commit has not jumped over it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy import children
from producers.publisher import KafkaPublisher
from schemas import codec
from schemas.records import Outgoing
from schemas.topics import Topics
from streams import agents
from tests.conftest import CreateTopics
from tests.integration.streams import page_process
from tests.integration.streams.test_page_agent import page

DEADLINE_S = 60.0
HELD_S = 3.0
"""Several times as long as it takes to commit."""
PAGES = 20


@pytest.mark.timeout(180)
async def test_a_slow_page_is_fanned_out_after_a_kill_though_those_behind_it_were_done(
    kafka_bootstrap: str, topic_prefix: str, create_topics: CreateTopics, tmp_path: Path
) -> None:
    """K01"""
    topics = Topics(topic_prefix)
    create_topics(topics.pages, topics.internal_dlq)
    publisher = KafkaPublisher({"bootstrap.servers": kafka_bootstrap})
    await publisher.publish([Outgoing(topics.pages, b"k", codec.encode(page(number))) for number in range(PAGES)])
    await publisher.close()
    words = (kafka_bootstrap, topic_prefix, str(tmp_path))
    async with running(*words, "0") as first:
        done = await numbers(first, agents.PAGES_IN_FLIGHT - 1)
        assert done == set(range(1, agents.PAGES_IN_FLIGHT))
        await asyncio.sleep(HELD_S)
    async with running(*words) as second:
        assert await numbers(second, PAGES) == set(range(PAGES))


@contextlib.asynccontextmanager
async def running(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await children.begin(sys.executable, "-m", page_process.__name__, *words, stdout=asyncio.subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        await process.communicate()


async def numbers(process: asyncio.subprocess.Process, count: int) -> set[int]:
    """So many different pages that it has done."""
    assert process.stdout is not None
    found: set[int] = set()
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            line = await process.stdout.readline()
            assert line, "it ended"
            found.add(int(line))
    return found
