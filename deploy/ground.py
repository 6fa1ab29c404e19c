"""What every process stands on: settings, the broker as it is, Redis, identity; opened and closed in one place."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicCollection

from deploy import catalogue, provision, redis_client, surroundings, watch
from deploy.blueprint import Blueprint
from deploy.broker_state import TIMEOUT_S, Broker
from deploy.redis_news import RedisLine
from deploy.redis_trips import TIMEOUT_S as REDIS_TIMEOUT_S
from deploy.redis_trips import RedisTrips
from deploy.settings import Settings
from producers.publisher import KafkaPublisher, PublisherOptions
from schemas import keys, policies
from schemas.clock import SystemClock
from schemas.gaps import Gap
from schemas.topics import Topics
from schemas.trips import Epoch
from streams.inbox import RedisInbox
from streams.log_reader import KafkaLogReader, LogReaderOptions
from streams.tails import KafkaTails

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = logging.getLogger(__name__)

PRODUCER_DEAD = 70


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the broker is: ids of the cluster and of topics (ours follow from them), and partition counts."""

    cluster_id: str
    topic_ids: Mapping[str, str]
    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Ground:
    """One process's ground. `stack` closes what it opened, in reverse. rng is seeded by the system.

    health: gathers what the process needs to be able to work. gap: see `schemas/gaps.py`.
    """

    settings: Settings
    stack: AsyncExitStack
    kafka: dict[str, str]
    topics: Topics
    broker: Identity
    redis: Redis
    epoch: Epoch
    ids: keys.Ids
    clock: SystemClock
    rng: random.Random
    policies: policies.Policies
    health: watch.Health
    gap: Gap | None = None

    def publisher(self, linger_ms: float) -> KafkaPublisher:
        """The process's one way into the log. linger_ms: about 1 for latency, 20 and more for throughput."""
        limits = {spec.name: int(spec.config["max.message.bytes"]) for spec in self.topics.specs()}
        made = KafkaPublisher(self.kafka, PublisherOptions(linger_ms=linger_ms, max_bytes=limits), _producer_died)
        self.stack.push_async_callback(made.close)
        return made

    def log_reader(self, options: LogReaderOptions | None = None) -> KafkaLogReader:
        made = KafkaLogReader(self.kafka, options)
        self.stack.push_async_callback(made.close)
        return made

    def tails(self) -> KafkaTails:
        made = KafkaTails(self.kafka, clock=self.clock)
        self.stack.push_async_callback(made.close)
        return made

    def trips(self, store: str, timeout_s: float = REDIS_TIMEOUT_S) -> RedisTrips:
        """Round trips to Redis for one store; timeout_s bounds each."""
        return RedisTrips(self.redis, store, timeout_s)

    def needs_redis(self) -> surroundings.RedisInSight:
        """From now on the process is ready only while Redis can be trusted; `/metrics` tells as well."""
        sight = surroundings.RedisInSight(self.trips("health"), self.epoch)
        self.health.needs(lambda: sight.trusted, surroundings.REDIS_TRUSTED)
        self._beside(sight.run())
        return sight

    def needs_log(self, reader: KafkaLogReader) -> surroundings.LogInSight:
        """Likewise the log; for processes without an engine, which sees that by itself."""
        sight = surroundings.LogInSight(reader, self.topics.status)
        self.health.needs(lambda: sight.answers, surroundings.LOG_ANSWERS)
        self._beside(sight.run())
        return sight

    def inbox(self) -> RedisInbox:
        made = RedisInbox(self.trips("inbox"), lambda: RedisLine(self.redis, "inbox"), self.epoch, self.clock)
        self.stack.push_async_callback(made.close)
        return made

    def entry_epochs(self) -> dict[str, str]:
        """Entry topic -> its log epoch."""
        names = [topic for tenant in self.tenants for topic in self.entry_topics(tenant)]
        region = self.settings.region
        return {name: keys.log_epoch(region, self.broker.topic_ids[name]) for name in names}

    def entry_topics(self, tenant: str) -> tuple[str, str]:
        return self.topics.requests(tenant), self.topics.requests_bulk(tenant)

    def _beside(self, looking: Coroutine[Any, Any, None]) -> None:
        """Runs until the ground is closed."""
        task = asyncio.ensure_future(looking)

        async def end() -> None:
            task.cancel()
            await asyncio.wait({task})

        self.stack.push_async_callback(end)

    @property
    def tenants(self) -> tuple[str, ...]:
        return tuple(self.settings.tenants)

    @property
    def instance(self) -> str:
        """This process's own name among its peers."""
        return f"{os.uname().nodename}-{os.getpid()}"


@asynccontextmanager
async def opened(settings: Settings, gap: Gap | None = None) -> AsyncIterator[Ground]:
    """The ground of one process. Raises Misconfigured when a template is wrong, or the broker unlike the catalogue."""
    known = policies.read_policies(settings.templates.path)  # first: it needs nobody who may be away
    kafka = settings.kafka.client()
    topics = catalogue.topics_of(settings)
    broker = await asyncio.to_thread(_checked, Broker(kafka), catalogue.blueprint_of(settings))
    epoch = Epoch()
    async with AsyncExitStack() as stack:
        redis = redis_client.connect(settings.redis.url, epoch)
        stack.push_async_callback(redis.aclose)
        yield Ground(
            settings=settings,
            stack=stack,
            kafka=kafka,
            topics=topics,
            broker=broker,
            redis=redis,
            epoch=epoch,
            ids=keys.Ids(settings.id_secret(broker.cluster_id)),
            clock=SystemClock(),
            rng=random.Random(),
            policies=known,
            health=watch.Health(),
            gap=gap,
        )


@asynccontextmanager
async def watched(settings: Settings, gap: Gap | None = None) -> AsyncIterator[Ground]:
    """The ground of a process that serves nobody: it gets a door for those who watch it."""
    async with opened(settings, gap) as ground, watch.door(ground.health, settings.metrics.listen):
        yield ground


def _checked(broker: Broker, wanted: Blueprint) -> Identity:
    """Who the broker is, once its topics are as they must be. First offsets are looked at by `provision` alone."""
    provision.check(broker, replace(wanted, groups={}))
    with broker.translated():
        cluster_id = broker.admin.list_topics(timeout=TIMEOUT_S).cluster_id
        names = TopicCollection([spec.name for spec in wanted.specs])
        asked = broker.admin.describe_topics(names, request_timeout=TIMEOUT_S)
        described = {name: future.result() for name, future in asked.items()}
    topic_ids = {name: str(topic.topic_id) for name, topic in described.items()}
    return Identity(str(cluster_id), topic_ids, {name: len(topic.partitions) for name, topic in described.items()})


def _producer_died(text: str) -> None:
    """An idempotent producer that died cannot recover: a new process can. Called from its own thread."""
    log.critical("process.producer_died", extra={"error": text})
    os._exit(PRODUCER_DEAD)
