"""The API on real Kafka and Redis: what is answered is in the log, once, and every instance knows it."""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from redis.asyncio import Redis

from deploy import redis_client
from deploy.redis_trips import RedisTrips
from producers import auth, campaign_view, idempotency, requests
from producers.api.app import build_app
from producers.api.parts import ApiParts, EntryLogs
from producers.publisher import KafkaPublisher
from schemas import codec, keys, messages
from schemas.clock import SystemClock
from schemas.keys import Ids
from schemas.messages import AudiencePage, CampaignRequested, NotificationRequested
from schemas.records import Record
from schemas.topics import Topics
from schemas.trips import Epoch
from streams.log_reader import KafkaLogReader
from streams.tails import KafkaTails
from tests.conftest import CreateTopics
from tests.contract.api.test_campaigns import multipart
from tests.doubles.api import CODE, POLICIES, entry_epochs, key
from tests.doubles.stores import MemoryCancellations, MemoryReads

Client = TestClient[Any, Any]
_chance = random.Random()


@pytest.fixture(scope="module")
def topics(topic_prefix: str, create_topics: CreateTopics) -> Topics:
    topics = Topics(prefix=topic_prefix)
    single = (topics.requests("default"), topics.requests_bulk("default"), topics.control, topics.status)
    campaign = (topics.audience, topics.campaign_requests, topics.campaign_control)
    create_topics(*single, *campaign, topics.campaign_state, topics.progress, topics.cursor, partitions=2)
    return topics


class World:
    """Opens API instances; each has its own clients, as a process would."""

    def __init__(self, topics: Topics, bootstrap: str, redis_url: str, stack: AsyncExitStack) -> None:
        self.topics = topics
        self._kafka = {"bootstrap.servers": bootstrap}
        self._redis_url = redis_url
        self._stack = stack
        self.reader = KafkaLogReader(self._kafka)
        stack.push_async_callback(self.reader.close)

    async def redis(self, epoch: Epoch) -> Redis:
        client = redis_client.connect(self._redis_url, epoch)
        self._stack.push_async_callback(client.aclose)
        await client.info("server")
        await client.set(keys.REDIS_EPOCH, epoch.run_id)
        return client

    async def end_lock(self, event_id: str) -> None:
        """What 35 seconds do."""
        client = await self.redis(Epoch())
        assert await client.delete(keys.redis_idempotency("default", event_id)) == 1

    async def store(self, kind: type[idempotency.Idempotency] = idempotency.Idempotency) -> idempotency.Idempotency:
        epoch = Epoch()
        client = await self.redis(epoch)
        tokens = itertools.count(1)
        trips = RedisTrips(client, "idempotency")
        return kind(trips, epoch, SystemClock(), lambda: f"{id(client)}.{next(tokens)}")

    async def parts(self) -> ApiParts:
        publisher, tails = KafkaPublisher(self._kafka), KafkaTails(self._kafka)
        self._stack.push_async_callback(publisher.close)
        self._stack.push_async_callback(tails.close)
        campaigns = campaign_view.CampaignView(self.topics, SystemClock())
        await campaigns.open(tails)
        return ApiParts(
            publisher=publisher,
            log=self.reader,
            reads=MemoryReads(),
            cancellations=MemoryCancellations(),
            idempotency=await self.store(),
            campaigns=campaigns,
            keys=auth.Keys(),
            ids=Ids(b"secret"),
            topics=self.topics,
            entries=EntryLogs(entry_epochs(self.topics)),
            policies=POLICIES,
            clock=SystemClock(),
            random_bytes=_chance.randbytes,
            limits=requests.Limits(),
        )

    async def serve(self, parts: ApiParts) -> Client:
        return await self._stack.enter_async_context(TestClient(TestServer(build_app(parts))))

    async def instance(self) -> Client:
        return await self.serve(await self.parts())

    async def read_all(self, topic: str) -> list[Record]:
        found = []
        for partition in (0, 1):
            first, end = await self.reader.offsets(topic, partition)
            if end > first:
                found += [record async for record in self.reader.read_range(topic, partition, first, end - 1)]
        return found

    async def requested(self, event_id: str) -> list[NotificationRequested]:
        records = await self.read_all(self.topics.requests("default"))
        decoded = [codec.decode(record.value, NotificationRequested) for record in records]
        return [request for request in decoded if request.event_id == event_id]


@pytest.fixture
async def world(topics: Topics, kafka_bootstrap: str, redis_url: str) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(topics, kafka_bootstrap, redis_url, stack)


def new_id() -> str:
    return uuid.uuid4().hex


async def test_a_202_names_the_place_of_a_record_that_the_log_has(world: World) -> None:
    client, name = await world.instance(), new_id()
    answer = await client.post("/v1/notifications", json=CODE, headers=key(name))
    notification_id = (await answer.json())["notification_id"]
    address = Ids(b"secret").address("default", notification_id)
    assert address is not None
    _, partition, offset = keys.single_place(address)
    record = await world.reader.read(world.topics.requests("default"), partition, offset)
    assert record is not None
    assert codec.decode(record.value, NotificationRequested).event_id == name
    assert record.header("traceparent") is not None
    assert (await (await client.get(answer.headers["Location"])).json())["status"] == "accepted"


async def test_sixty_four_copies_at_two_instances_write_one_record(world: World) -> None:
    clients, name = [await world.instance(), await world.instance()], new_id()
    answers = await asyncio.gather(
        *(clients[number % 2].post("/v1/notifications", json=CODE, headers=key(name)) for number in range(64))
    )
    assert {answer.status for answer in answers} <= {202, 409}
    assert len(await world.requested(name)) == 1
    again = await clients[0].post("/v1/notifications", json=CODE, headers=key(name))
    assert (again.status, again.headers["Idempotent-Replayed"]) == (202, "true")


class DiesAfterTheLog(idempotency.Idempotency):
    """The process is killed when the log has the record and Redis does not know."""

    async def finish(self, attempt: idempotency.Attempt, answer: str, starts_in_ms: int) -> None:
        raise RuntimeError("killed")


async def test_a_kill_between_log_and_redis_leaves_one_intent_that_the_claim_tells_apart(world: World) -> None:
    parts, name = await world.parts(), new_id()
    dead = await world.serve(replace(parts, idempotency=await world.store(DiesAfterTheLog)))
    assert (await dead.post("/v1/notifications", json=CODE, headers=key(name))).status == 500
    survivor = await world.serve(parts)
    locked = await survivor.post("/v1/notifications", json=CODE, headers=key(name))
    assert (locked.status, locked.headers["Retry-After"]) == (409, "1")
    assert len(await world.requested(name)) == 1
    await world.end_lock(name)
    assert (await survivor.post("/v1/notifications", json=CODE, headers=key(name))).status == 202
    requests_found = await world.requested(name)
    assert len(requests_found) == 2
    assert {keys.single_intent(one.tenant, one.event_id) for one in requests_found} == {
        keys.single_intent("default", name)
    }


async def test_a_cancel_is_in_the_log_before_it_is_answered(world: World) -> None:
    client, name = await world.instance(), new_id()
    location = (await client.post("/v1/notifications", json=CODE, headers=key(name))).headers["Location"]
    assert (await client.delete(location)).status == 202
    [order] = [
        cancelled
        for cancelled in (
            codec.decode(record.value, messages.NotificationCancelled)
            for record in await world.read_all(world.topics.control)
        )
        if cancelled.notification_id == location.rpartition("/")[2]
    ]
    assert order.intent == keys.single_intent("default", name)


async def test_a_streamed_campaign_is_whole_in_one_partition_and_known_to_every_instance(world: World) -> None:
    client, other, campaign_id = await world.instance(), await world.instance(), new_id()
    wanted = {"campaign_id": campaign_id, "template": "news"}
    lines = b"".join(b'{"user_id":"u%d","params":{"name":"N%d"}}\n' % (number, number) for number in range(20_000))
    answer = await client.post("/v1/campaigns", data=multipart(wanted, lines))
    assert (answer.status, (await answer.json())["expected"]) == (202, 20_000)
    told = await (await other.get(f"/v1/campaigns/{campaign_id}")).json()
    assert (told["status"], told["expected"]) == ("running", 20_000)
    [request] = [
        found
        for found in (
            codec.decode(record.value, CampaignRequested)
            for record in await world.read_all(world.topics.campaign_requests)
        )
        if found.campaign_id == campaign_id
    ]
    places = world.topics.audience, request.partition, request.first_offset, request.last_offset
    pages = [codec.decode(record.value, AudiencePage) async for record in world.reader.read_range(*places)]
    assert [page.page for page in pages if page.upload_id == request.upload_id] == list(range(80))
    again = await other.post("/v1/campaigns", data=multipart(wanted, lines))
    assert (again.status, again.headers["Idempotent-Replayed"]) == (202, "true")
    changed = await other.post("/v1/campaigns", data=multipart(wanted, lines + b'{"user_id":1}'))
    assert changed.status == 422


async def test_two_instances_that_race_for_a_campaign_agree_on_the_first(world: World) -> None:
    clients, campaign_id = [await world.instance(), await world.instance()], new_id()
    bodies = [
        {"campaign_id": campaign_id, "template": "news", "recipients": [{"user_id": number % 2}]}
        for number in range(16)
    ]
    answers = await asyncio.gather(
        *(clients[number // 2 % 2].post("/v1/campaigns", json=body) for number, body in enumerate(bodies))
    )
    by_user = {user: {answer.status for answer in answers[user::2]} for user in (0, 1)}
    assert sorted(map(sorted, by_user.values())) == [[202], [422]]


async def test_a_new_instance_knows_every_campaign_before_it_is_ready(world: World) -> None:
    client, campaign_id = await world.instance(), new_id()
    body = {"campaign_id": campaign_id, "template": "news", "recipients": [{"user_id": 1}]}
    assert (await client.post("/v1/campaigns", json=body)).status == 202
    late = await world.instance()
    assert (await late.get("/readyz")).status == 200
    assert (await (await late.get(f"/v1/campaigns/{campaign_id}")).json())["expected"] == 1
