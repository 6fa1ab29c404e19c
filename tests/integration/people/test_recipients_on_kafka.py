"""`route recipients` as a process runs it: Kafka, Redis, the engine; opt-outs survive the loss of Redis."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from random import Random
from urllib.parse import urlsplit, urlunsplit

import pytest
from redis.asyncio import Redis

from consumers.engine import Engine, EngineOptions
from consumers.loop.options import KafkaOptions
from deploy import redis_client
from producers.publisher import KafkaPublisher
from retry_topics.dead_letters import DeadLetters
from schemas import facets, keys
from schemas.clock import SystemClock
from schemas.errors import StoreDown
from schemas.messages import FacetKind, RecipientFacet
from schemas.records import Outgoing
from schemas.stores import Epoch, Profile
from schemas.topics import Topics
from streams.inbox import RedisInbox
from streams.log_reader import KafkaLogReader
from streams.rebuild import Rebuild, RebuildOptions
from streams.recipients import RedisProfiles, RedisSuppressions
from streams.recipients_apply import Applier
from streams.recipients_route import RouteRecipients
from tests.conftest import CreateTopics
from tests.integration.people.commands import run

PARTITIONS = 2


@pytest.fixture
async def redis(redis_url: str, epoch: Epoch) -> AsyncIterator[Redis]:
    """A database of its own, since it is emptied."""
    client = redis_client.connect(urlunsplit(urlsplit(redis_url)._replace(path="/14")), epoch)
    await run(client, "FLUSHDB")
    yield client
    await run(client, "FLUSHDB")
    await client.aclose()


class Process:
    """One `tidings route recipients`."""

    def __init__(self, bootstrap: str, topics: Topics, redis: Redis, epoch: Epoch) -> None:
        kafka = {"bootstrap.servers": bootstrap}
        clock = SystemClock()
        self.topics, self.redis = topics, redis
        self.publisher = KafkaPublisher(kafka)
        self.reader = KafkaLogReader(kafka)
        self.facets = facets.FacetTopic(topics.recipients, PARTITIONS)
        self.profiles = RedisProfiles(redis, epoch)
        stores = (self.profiles, RedisSuppressions(redis, epoch), RedisInbox(redis, epoch, clock))
        applier = Applier(redis, *stores, self.facets, topics, clock)
        counts = dict.fromkeys(applier.topics, PARTITIONS)
        options = RebuildOptions(look_s=0.05)
        self.rebuild = Rebuild(redis, epoch, applier, self.reader, counts, "log", uuid.uuid4().hex, options)
        self.engine = Engine(
            RouteRecipients(applier, self.rebuild),
            self.publisher,
            EngineOptions(KafkaOptions(topics.group("route recipients"), applier.topics)),
            kafka,
            DeadLetters(topics, clock).parked,
            rng=Random(1),
        )

    async def __aenter__(self) -> Process:
        self._running = [asyncio.create_task(self.engine.run()), asyncio.create_task(self.rebuild.run())]
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.engine.stop()
        self._running[1].cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.publisher.close()
        await self.reader.close()

    async def write(self, user_id: str, facet: RecipientFacet) -> None:
        await self.publisher.publish([self.facets.record("t", user_id, facets.name_of(facet), facet)])

    async def sees(self, user_id: str, version: int) -> Profile:
        """The profile once it has reached this version and Redis is trusted."""
        async with asyncio.timeout(20):
            while True:
                try:
                    profile = await self.profiles.load("t", user_id)
                    if profile.version >= version:
                        return profile
                except StoreDown:
                    pass
                await asyncio.sleep(0.02)


@pytest.fixture
async def process(
    kafka_bootstrap: str, topic_prefix: str, create_topics: CreateTopics, redis: Redis, epoch: Epoch
) -> AsyncIterator[Process]:
    topics = Topics(topic_prefix)
    names = (topics.recipients, topics.suppressions, topics.inbox, topics.control, topics.internal_dlq)
    create_topics(*names, partitions=PARTITIONS)
    async with Process(kafka_bootstrap, topics, redis, epoch) as running:
        yield running


async def test_opt_outs_are_back_before_an_emptied_redis_is_trusted_and_poison_holds_up_nobody(
    process: Process,
) -> None:
    for number in range(50):
        opt_out = RecipientFacet("t", f"u{number}", FacetKind.OPT_OUT, 1, channel="email", kind="*")
        await process.write(f"u{number}", opt_out)
    await process.publisher.publish([Outgoing(process.topics.recipients, b"t/bad/user", b"\x00garbage")])
    await process.write("u0", RecipientFacet("t", "u0", FacetKind.USER, 2, email="a@example.org"))
    assert (await process.sees("u0", 2)).opted_out("email", "news", "marketing")
    await process.sees("u49", 1)

    await run(process.redis, "FLUSHDB")
    seen = await process.sees("u0", 0)
    assert seen.opted_out("email", "news", "marketing")
    assert (seen.email, seen.version) == ("a@example.org", 1)
    for number in range(50):
        profile = await process.profiles.load("t", f"u{number}")
        assert profile.opted_out("email", "x", "transactional")
    parked = (
        await process.reader.offsets(process.topics.internal_dlq, 0),
        await process.reader.offsets(process.topics.internal_dlq, 1),
    )
    assert sum(end for _, end in parked) == 1
    assert await run(process.redis, "HLEN", keys.REDIS_APPLIED) == 4 * PARTITIONS + 1
