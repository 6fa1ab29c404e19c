"""From a provider's webhook to the status of a delivery: nobody can forge one, and none is lost."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from redis.asyncio import Redis

from deploy.redis_trips import RedisTrips
from producers.callbacks import http_provider
from producers.callbacks.server import BODY_MAX, CallbackParts, build_app
from producers.callbacks.signatures import StandardWebhooks
from schemas import codec, keys
from schemas.errors import Poison
from schemas.keys import Address, Ids, Reference
from schemas.messages import EventKind, RawCallback, StatusBatch, Suppression
from schemas.records import Answer, Defer, Done, Record
from schemas.trips import Epoch
from streams.callbacks import RouteCallbacks
from streams.recipients import RedisSuppressions
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_log import MemoryLog
from tests.integration.people.api_client import TOPICS
from tests.integration.people.commands import run

Client = TestClient[web.Request, web.Application]
PATH = "/v1/callbacks/gateway"
HASHED = keys.address_hash("email", "jane@example.org")


class World:
    """The callback server and `route callbacks`, on a log in memory."""

    def __init__(self, redis: Redis, epoch: Epoch, tenant: str) -> None:
        self.redis, self.tenant = redis, tenant
        self.clock = ManualClock()
        self.log = MemoryLog(1)
        self.ids = Ids(b"secret")
        self.webhooks = StandardWebhooks("gateway", ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
        trips = RedisTrips(redis, "callbacks")
        self.suppressions = RedisSuppressions(trips, epoch)
        self.app = build_app(CallbackParts(self.log, self.log, TOPICS, {"gateway": self.webhooks}, self.clock))
        self.handler = RouteCallbacks(
            {"gateway": http_provider.read},
            self.ids,
            trips,
            self.suppressions,
            self.log,
            TOPICS,
            self.clock,
        )

    def reference(self, call: int = 1, channel: str = "email", hashed: str = HASHED) -> str:
        address = Address("c.spring.7", 42)
        return self.ids.reference(Reference(self.tenant, address, 3, 0, call, channel, hashed))

    def signed(self, body: bytes) -> dict[str, str]:
        return self.webhooks.sign("msg_1", self.clock.now_ms() // 1000, body)

    async def post(self, client: Client, *reports: dict[str, Any]) -> None:
        body = json.dumps(reports).encode()
        async with client.post(PATH, data=body, headers=self.signed(body)) as response:
            assert response.status == 204

    async def route(self, records: Sequence[Record] | None = None) -> list[Answer]:
        answers: list[Answer] = []
        given = self.log.records(TOPICS.callbacks) if records is None else records
        await self.handler.handle(given, lambda record, answer: answers.append(answer))
        return answers


@pytest.fixture
def world(redis: Redis, epoch: Epoch, tenant: str) -> World:
    return World(redis, epoch, tenant)


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    async with TestClient(TestServer(world.app)) as serving:
        yield serving


def events(answers: Sequence[Answer]) -> list[tuple[str, int, int, int, EventKind]]:
    return [
        (event.row, event.event.slot, event.event.index, event.event.call, event.event.kind)
        for answer in answers
        if isinstance(answer, Done)
        for event in answer.events
    ]


async def test_a_report_reaches_exactly_the_call_that_its_reference_names(world: World, client: Client) -> None:
    await world.post(client, {"type": "delivered", "reference": world.reference(call=2), "id": "m1"})
    assert events(await world.route()) == [("c.spring.7", 42, 3, 2, EventKind.DELIVERED)]


async def test_the_raw_callback_is_in_the_log_byte_for_byte_and_without_its_signature(
    world: World, client: Client
) -> None:
    body = b'[{"type": "delivered"}]\r\n'
    async with client.post(PATH, data=body, headers=world.signed(body)) as response:
        assert response.status == 204
    [record] = world.log.records(TOPICS.callbacks)
    raw = codec.decode(record.value, RawCallback)
    assert (raw.body, raw.provider, record.key) == (body, "gateway", b"gateway:msg_1")
    assert "webhook-signature" not in raw.headers


async def test_every_bad_signature_gets_one_and_the_same_401_and_nothing_is_written(
    world: World, client: Client
) -> None:
    """P54: malformed headers among them."""
    body = b'{"type": "complained"}'
    good = world.signed(body)
    answers = set()
    for headers, sent in [
        ({}, body),
        (good, body + b" "),
        ({**good, "webhook-signature": "v1,\x80\xff"}, body),
        ({**good, "webhook-signature": "garbage"}, body),
        ({**good, "webhook-timestamp": "never"}, body),
        ({**good, "webhook-timestamp": str(world.clock.now_ms() // 1000 - 400)}, body),
    ]:
        async with client.post(PATH, data=sent, headers=headers) as response:
            answers.add((response.status, await response.text()))
    assert len(answers) == 1
    assert answers.pop()[0] == 401
    assert world.log.records(TOPICS.callbacks) == []


async def test_an_unknown_provider_is_a_404_and_an_endless_body_a_413(world: World, client: Client) -> None:
    async with client.post("/v1/callbacks/nobody", data=b"{}", headers=world.signed(b"{}")) as response:
        assert response.status == 404
    body = b" " * (BODY_MAX + 1)
    async with client.post(PATH, data=body, headers=world.signed(body)) as response:
        assert response.status == 413


async def test_while_the_log_is_away_the_provider_is_asked_to_post_again(world: World, client: Client) -> None:
    world.log.fail = True
    async with client.post(PATH, data=b"{}", headers=world.signed(b"{}")) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "5")
    async with client.get("/readyz") as response:
        assert response.status == 503


async def test_a_bounce_blocks_the_address_in_redis_before_the_record_is_answered(world: World, client: Client) -> None:
    await world.post(client, {"type": "bounced", "reference": world.reference()})
    await world.route()
    assert await world.suppressions.load(world.tenant, "email", HASHED) == "bounced"
    [record] = world.log.records(TOPICS.suppressions)
    assert codec.decode(record.value, Suppression).cause == "bounced"
    assert record.key == keys.suppression_key(world.tenant, "email", HASHED).encode()


async def test_delivered_undelivered_and_push_suppress_nothing(world: World, client: Client) -> None:
    await world.post(
        client,
        {"type": "delivered", "reference": world.reference()},
        {"type": "undelivered", "reference": world.reference()},
        {"type": "bounced", "reference": world.reference(channel="", hashed="")},
    )
    await world.route()
    assert world.log.records(TOPICS.suppressions) == []


async def test_repeated_and_unordered_reports_all_become_events_for_the_merge_to_judge(
    world: World, client: Client
) -> None:
    for kind in ("bounced", "delivered", "delivered"):
        await world.post(client, {"type": kind, "reference": world.reference()})
    kinds = [event[-1] for event in events(await world.route())]
    assert kinds == [EventKind.BOUNCED, EventKind.DELIVERED, EventKind.DELIVERED]


async def test_a_forged_or_foreign_reference_is_an_orphan_at_once_and_holds_up_nobody(
    world: World, client: Client
) -> None:
    foreign = Ids(b"another").reference(Reference(world.tenant, Address("c.spring.7", 1), 0, 0, 1))
    await world.post(
        client,
        {"type": "delivered", "reference": foreign},
        {"type": "delivered", "reference": "²"},
        {"type": "delivered", "reference": world.reference()},
        {"type": "delivered"},
    )
    assert len(events(await world.route())) == 1


async def test_a_report_by_message_id_waits_for_our_own_mark_and_its_neighbours_do_not(
    world: World, client: Client, redis: Redis
) -> None:
    await world.post(
        client, {"type": "delivered", "id": world.tenant}, {"type": "delivered", "reference": world.reference(call=1)}
    )
    for _ in range(2):
        [answer] = await world.route()
        assert isinstance(answer, Defer)
    [told] = world.log.records(TOPICS.status)
    batch = codec.decode(told.value, StatusBatch)
    assert (batch.row, [event.call for event in batch.events]) == ("c.spring.7", [1])
    await run(redis, "SET", keys.redis_message("gateway", world.tenant), world.reference(call=5), "EX", 60)
    assert [event[3] for event in events(await world.route())] == [5, 1]


async def test_a_report_that_never_finds_its_delivery_is_given_up_after_ten_minutes(
    world: World, client: Client
) -> None:
    await world.post(client, {"type": "delivered", "id": "never sent by us"})
    world.clock.advance(600_000)
    assert isinstance((await world.route())[0], Defer)
    world.clock.advance(1)
    assert await world.route() == [Done()]


async def test_an_unreadable_callback_is_parked_and_its_neighbours_are_routed(world: World, client: Client) -> None:
    async with client.post(PATH, data=b"not json", headers=world.signed(b"not json")) as response:
        assert response.status == 204
    await world.post(client, {"type": "delivered", "reference": world.reference()})
    answers: list[Answer] = []
    with pytest.raises(Poison):
        await world.handler.handle(world.log.records(TOPICS.callbacks), lambda record, answer: answers.append(answer))
    assert len(events(answers)) == 1
