"""Route on real Redis, with a log and an engine in memory: what a test hands in and what it can see."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

from redis.asyncio import Redis

from deploy import redis_client
from deploy.redis_trips import RedisTrips
from producers import requests
from retry_topics.dead_letters import DeadLetters
from schemas import codec, keys
from schemas.errors import Transient
from schemas.messages import Channel, Contact, Delivery, Held, NotificationRequested, Priority, StatusEvent
from schemas.policies import MessageClass, TemplatePolicy
from schemas.records import Answer, Done, Record
from schemas.stores import SlotView
from schemas.topics import Topics
from schemas.trips import Epoch
from streams.grants import Purse
from streams.intake import Doors, Entry
from streams.recipients import RedisProfiles
from streams.route import Route
from streams.singles_queue import SinglesQueue
from tests.doubles.manual_clock import START_MS, ManualClock

TOPICS = Topics()
REQUESTS, BULK = TOPICS.requests("default"), TOPICS.requests_bulk("default")
EPOCH = "0a1b2c3d"
IDS = keys.Ids(b"secret")
POLICIES = {
    "code": TemplatePolicy("code", MessageClass.TRANSACTIONAL, (Channel.PUSH, Channel.EMAIL)),
    "alarm": TemplatePolicy("alarm", MessageClass.TRANSACTIONAL, (Channel.EMAIL, Channel.SMS)),
    "offer": TemplatePolicy("offer", MessageClass.MARKETING, (Channel.EMAIL,)),
}
TRACE = (("traceparent", b"00-1-2-01"),)
REQUEST = NotificationRequested(
    "default",
    "order-1",
    "ann",
    "code",
    to=Contact(email="ann@example.org"),
    accepted_at_ms=START_MS,
    expires_at_ms=START_MS + 60_000,
)


class Rows:
    """What status rows know; None while nobody can read them."""

    def __init__(self) -> None:
        self.slots: dict[keys.Address, SlotView] | None = {}

    async def slot(self, tenant: str, address: keys.Address) -> SlotView | None:
        if self.slots is None:
            raise Transient("no owner now")
        return self.slots.get(address)

    async def row(self, tenant: str, row: str) -> list[SlotView | None]:
        raise AssertionError("not asked for")


class World:
    def __init__(self, redis: Redis, epoch: Epoch) -> None:
        self.redis, self.trips = redis, RedisTrips(redis, "route")
        self.epoch = epoch
        self.clock = ManualClock()
        self.rows = Rows()
        self.route = self.handler()

    def queue(self) -> SinglesQueue:
        """Of a `route bulk`."""
        return SinglesQueue(Purse(self.trips, "route-1"), self.clock, Random(1))

    def handler(self, queue: SinglesQueue | None = None) -> Route:
        entries = {
            REQUESTS: Entry("default", EPOCH, Priority.TRANSACTIONAL),
            BULK: Entry("default", EPOCH, Priority.BULK),
        }
        people = RedisProfiles(self.trips, self.epoch)
        doors = Doors(
            check, DeadLetters(TOPICS, self.clock).parked, people, self.rows, zones={"default": "Europe/Berlin"}
        )
        return Route(entries, POLICIES, doors, self.trips, self.epoch, TOPICS, IDS, self.clock, queue)

    async def handle(self, *records: Record, route: Route | None = None) -> list[Answer]:
        answers: dict[tuple[str, int], Answer] = {}

        def answer(record: Record, given: Answer) -> None:
            assert (record.topic, record.offset) not in answers, "each record is answered once"
            answers[record.topic, record.offset] = given

        await (route or self.route).handle(records, answer)
        return [answers[record.topic, record.offset] for record in records]

    async def done(self, record: Record, route: Route | None = None) -> Done:
        (answer,) = await self.handle(record, route=route)
        assert isinstance(answer, Done)
        return answer


@asynccontextmanager
async def opened(redis_url: str) -> AsyncIterator[World]:
    """A world on an emptied Redis that can be trusted."""
    epoch = Epoch()
    redis = redis_client.connect(redis_url, epoch)
    await redis.flushdb()
    await redis.set(keys.REDIS_EPOCH, epoch.run_id)
    yield World(redis, epoch)
    await redis.flushdb()
    await redis.aclose()


def check(event: NotificationRequested, now_ms: int) -> NotificationRequested:
    return requests.check_event(event, POLICIES, now_ms, requests.Limits())


def record(event: NotificationRequested | bytes, offset: int = 35, topic: str = REQUESTS) -> Record:
    value = event if isinstance(event, bytes) else codec.encode(event)
    return Record(topic, 3, offset, b"default/ann", value, TRACE, START_MS)


def request(**changes: Any) -> NotificationRequested:
    return replace(REQUEST, **changes)


def deliveries(done: Done) -> list[Delivery]:
    return [codec.decode(one.value, Delivery) for one in done.publish]


def events(done: Done) -> list[StatusEvent]:
    return [one.event for one in done.events]


def held(done: Done) -> list[Held]:
    """What it put into hold, and nothing else."""
    assert {one.topic for one in done.publish} <= {TOPICS.hold}
    return [codec.decode(one.value, Held) for one in done.publish]
