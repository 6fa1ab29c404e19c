"""`route recipients` as a process runs it: Kafka, Redis, the engine; opt-outs survive the loss of Redis."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from functools import partial
from random import Random
from urllib.parse import urlsplit, urlunsplit

import pytest
from redis.asyncio import Redis

from consumers.engine import Engine, EngineOptions
from consumers.loop.options import KafkaOptions
from deploy import redis_client
from deploy.redis_news import RedisLine
from deploy.redis_trips import RedisTrips
from producers.publisher import KafkaPublisher
from retry_topics.dead_letters import DeadLetters
from schemas import facets, keys
from schemas.clock import SystemClock
from schemas.errors import StoreDown
from schemas.messages import FacetKind, RecipientFacet
from schemas.records import Outgoing
from schemas.stores import Profile
from schemas.topics import Topics
from schemas.trips import Epoch
from streams.inbox import RedisInbox
from streams.log_reader import KafkaLogReader
from streams.rebuild import Rebuild, RebuildOptions
from streams.recipients import RedisProfiles, RedisSuppressions
from streams.recipients_apply import Applier
from streams.recipients_route import RouteRecipients
from streams.tails import KafkaTails
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
        self.reader, self.tails = KafkaLogReader(kafka), KafkaTails(kafka)
        self.facets = facets.FacetTopic(topics.recipients, PARTITIONS)
        trips = RedisTrips(redis, "people")
        self.profiles = RedisProfiles(trips, epoch)
        box = RedisInbox(trips, partial(RedisLine, redis, "inbox"), epoch, clock)
        stores = (self.profiles, RedisSuppressions(trips, epoch), box)
        applier = Applier(trips, *stores, self.facets, topics, clock)
        counts = dict.fromkeys(applier.topics, PARTITIONS)
        options = RebuildOptions(look_s=0.05)
        self.rebuild = Rebuild(trips, epoch, applier, self.reader, counts, "log", uuid.uuid4().hex, options)
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
        await self.tails.close()

    async def write(self, *found: RecipientFacet) -> None:
        records = [self.facets.record("t", facet.user_id, facets.name_of(facet), facet) for facet in found]
        await self.publisher.publish(records)

    async def parks_one(self) -> None:
        """Returns once a record lies in the dead letter topic."""
        parked = asyncio.Event()
        await self.tails.follow([self.topics.internal_dlq], lambda record: parked.set())
        await asyncio.wait_for(parked.wait(), 60)

    async def sees(self, user_id: str, email: str = "") -> Profile:
        """The profile once Redis is trusted and has something of the user, the email too if one is named."""
        async with asyncio.timeout(60):
            while True:
                try:
                    profile = await self.profiles.load("t", user_id)
                    if profile.version and profile.email == email:
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
    opted_out = [f"u{number}" for number in range(50)]
    await process.write(*[RecipientFacet("t", user, FacetKind.OPT_OUT, 1, channel="*", kind="*") for user in opted_out])
    await process.publisher.publish([Outgoing(process.topics.recipients, b"t/bad/user", b"\x00garbage")])
    await process.write(RecipientFacet("t", "u0", FacetKind.USER, 2, email="a@example.org"))
    await process.sees("u0", "a@example.org")
    await process.parks_one()

    await run(process.redis, "FLUSHDB")
    await process.sees("u0", "a@example.org")
    for user in opted_out:
        assert (await process.profiles.load("t", user)).opted_out("email", "news", "transactional")
    assert await run(process.redis, "HLEN", keys.REDIS_APPLIED) == 4 * PARTITIONS + 1
