"""When a process says that it can work: not before it has its partitions, and also when there are none left for it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from producers.publisher import KafkaPublisher
from retry_topics.dead_letters import DeadLetters
from schemas.clock import SystemClock
from schemas.messages import ReleasedPage
from schemas.records import Headers
from schemas.topics import Topics
from streams import agents
from streams.leader import KafkaLeadership
from tests.conftest import CreateTopics

DEADLINE_S = 60.0
pytestmark = pytest.mark.timeout(120)


async def nothing(_page: ReleasedPage, _headers: Headers) -> None:
    """Expands no page."""


@pytest.fixture(scope="module")
def topics(topic_prefix: str, create_topics: CreateTopics) -> Topics:
    made = Topics(f"{topic_prefix}ready.")
    create_topics(made.pages, made.internal_dlq, made.leader, partitions=1)
    return made


async def test_fan_out_is_settled_with_its_partition_and_another_one_without_any(
    kafka_bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    kafka = {"bootstrap.servers": kafka_bootstrap}
    letters = DeadLetters(topics, SystemClock())
    async with AsyncExitStack() as stack:
        publisher = KafkaPublisher(kafka)
        stack.push_async_callback(publisher.close)
        for name in ("one", "two"):
            options = agents.FaustOptions(kafka, tmp_path / name, session_s=6.0)
            process = agents.fanning_out(topics, options, nothing, publisher, letters.letter)
            assert not process.settled.is_set()
            running = asyncio.ensure_future(process.run())
            stack.push_async_callback(asyncio.wait, [running])
            stack.callback(process.stop)
            await asyncio.wait_for(process.settled.wait(), DEADLINE_S)


async def test_who_stands_by_has_joined_like_who_leads(kafka_bootstrap: str, topics: Topics) -> None:
    kafka = {"bootstrap.servers": kafka_bootstrap}
    async with AsyncExitStack() as stack:
        publisher = KafkaPublisher(kafka)
        stack.push_async_callback(publisher.close)
        for name in ("one", "two"):
            group = topics.group("dispatch")
            member = KafkaLeadership(kafka, topics.leader, group, name, publisher, SystemClock())
            assert not member.joined.is_set()
            await member.start()
            stack.push_async_callback(member.close)
            await asyncio.wait_for(member.joined.wait(), DEADLINE_S)
