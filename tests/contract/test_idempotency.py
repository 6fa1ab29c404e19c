"""One suite for the idempotency store, run on Redis and on the double in memory."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import redis.asyncio

from deploy.redis_trips import RedisTrips
from producers.idempotency import Begun, Idempotency, Store
from schemas import keys
from schemas.trips import Epoch
from tests.doubles.manual_clock import ManualClock
from tests.doubles.stores import MemoryIdempotency


@dataclass(frozen=True)
class Subject:
    store: Store
    tenant: str


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    client = redis.asyncio.Redis.from_url(redis_url)
    yield client
    await client.aclose()


def on_redis(client: redis.asyncio.Redis, epoch: Epoch) -> Idempotency:
    tokens = itertools.count(1)
    return Idempotency(RedisTrips(client, "idempotency"), epoch, ManualClock(), lambda: f"{next(tokens)}")


async def trusted_epoch(client: redis.asyncio.Redis) -> Epoch:
    """An epoch for which this server's content counts as rebuilt; other tests may share the server."""
    epoch = Epoch()
    epoch.run_id = (await client.info("server"))["run_id"].encode()
    await client.set(keys.REDIS_EPOCH, epoch.run_id)
    return epoch


@pytest.fixture(params=["memory", "redis"])
async def subject(request: pytest.FixtureRequest, client: redis.asyncio.Redis) -> Subject:
    tenant = uuid.uuid4().hex
    if request.param == "memory":
        return Subject(MemoryIdempotency(), tenant)
    return Subject(on_redis(client, await trusted_epoch(client)), tenant)


async def test_of_many_copies_at_once_one_begins(subject: Subject) -> None:
    attempts = await asyncio.gather(*(subject.store.begin(subject.tenant, "k", "h") for _ in range(64)))
    begun = [attempt.begun for attempt in attempts]
    assert (begun.count(Begun.BEGUN), begun.count(Begun.RUNNING)) == (1, 63)
    assert all(attempt.wait_ms > 0 for attempt in attempts if attempt.begun is Begun.RUNNING)


async def test_a_finished_request_answers_its_repeats(subject: Subject) -> None:
    store, tenant = subject.store, subject.tenant
    await store.finish(await store.begin(tenant, "k", "h"), "answer with spaces", 0)
    again = await store.begin(tenant, "k", "h")
    assert (again.begun, again.answer) == (Begun.ANSWERED, "answer with spaces")


async def test_another_body_is_told_apart_while_running_and_when_answered(subject: Subject) -> None:
    store, tenant = subject.store, subject.tenant
    first = await store.begin(tenant, "k", "h")
    assert (await store.begin(tenant, "k", "other")).begun is Begun.OTHER_BODY
    await store.finish(first, "a", 0)
    assert (await store.begin(tenant, "k", "other")).begun is Begun.OTHER_BODY


async def test_keys_and_tenants_are_independent(subject: Subject) -> None:
    store, tenant = subject.store, subject.tenant
    for other in ((tenant, "k"), (tenant, "k2"), (tenant + "x", "k"), (tenant, "k/2"), (tenant, "{k}")):
        assert (await store.begin(*other, "h")).begun is Begun.BEGUN


async def test_a_released_key_is_free_again_but_only_its_holder_releases_it(subject: Subject) -> None:
    store, tenant = subject.store, subject.tenant
    first = await store.begin(tenant, "k", "h")
    running = await store.begin(tenant, "k", "h")
    await store.release(running)
    assert (await store.begin(tenant, "k", "h")).begun is Begun.RUNNING
    await store.release(first)
    assert (await store.begin(tenant, "k", "h")).begun is Begun.BEGUN


async def test_a_release_never_takes_a_stored_answer_away(subject: Subject) -> None:
    store, tenant = subject.store, subject.tenant
    first = await store.begin(tenant, "k", "h")
    await store.finish(first, "a", 0)
    await store.release(first)
    assert (await store.begin(tenant, "k", "h")).answer == "a"


async def test_the_first_answer_stays(subject: Subject) -> None:
    """Two records under one key, after a lock ran out: the earlier answer is the one that every repeat gets."""
    store, tenant = subject.store, subject.tenant
    first = await store.begin(tenant, "k", "h")
    await store.finish(first, "first", 0)
    await store.finish(first, "second", 0)
    assert (await store.begin(tenant, "k", "h")).answer == "first"


async def test_a_lock_ends_by_itself_and_an_answer_is_kept_a_day_past_the_start(client: redis.asyncio.Redis) -> None:
    store = on_redis(client, await trusted_epoch(client))
    tenant = uuid.uuid4().hex
    key = keys.redis_idempotency(tenant, "k")
    attempt = await store.begin(tenant, "k", "h")
    assert 30_000 < await client.pttl(key) <= 35_000
    await store.finish(attempt, "a", 3_600_000)
    assert 24 * 3_600_000 < await client.pttl(key) <= 25 * 3_600_000


async def test_a_redis_that_was_not_rebuilt_says_unchecked_but_knows_what_it_knows(client: redis.asyncio.Redis) -> None:
    tenant, epoch = uuid.uuid4().hex, await trusted_epoch(client)
    store = on_redis(client, epoch)
    epoch.run_id = b"another server"
    attempt = await store.begin(tenant, "k", "h")
    assert attempt.begun is Begun.UNCHECKED
    await store.finish(attempt, "a", 0)
    assert (await store.begin(tenant, "k", "h")).begun is Begun.ANSWERED


async def test_without_redis_a_request_is_unchecked_and_the_next_ones_do_not_wait() -> None:
    client = redis.asyncio.Redis.from_url("redis://127.0.0.1:1/0")
    clock = ManualClock()
    store = Idempotency(RedisTrips(client, "idempotency", timeout_s=0.2), Epoch(), clock, lambda: "t")
    attempt = await store.begin("t", "k", "h")
    assert (attempt.begun, attempt.token) == (Begun.UNCHECKED, "")
    await store.finish(attempt, "a", 0)
    await store.release(attempt)
    async with asyncio.timeout(0.1):
        for number in range(20):
            assert (await store.begin("t", f"k{number}", "h")).begun is Begun.UNCHECKED
    await client.aclose()
