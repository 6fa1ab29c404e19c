"""In which digest a message is: the script in a real Redis beside its second body in memory, on random histories."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from deploy import redis_client
from deploy.redis_trips import RedisTrips
from schemas import keys
from schemas.errors import StoreDown
from schemas.trips import Epoch
from streams.digest_marks import ALONE, KEPT_S, DigestMarks, Mark, Window
from tests.doubles.campaign_road import StoredTrips
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_redis import MemoryRedis
from tests.doubles.memory_trips import RUN_ID

STEPS = 300


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = redis_client.connect(redis_url, Epoch())
    await client.set(keys.REDIS_EPOCH, RUN_ID)
    yield client
    await client.delete(keys.REDIS_EPOCH)
    await client.aclose()


def real(redis: Redis) -> DigestMarks:
    epoch = Epoch()
    epoch.run_id = RUN_ID
    return DigestMarks(RedisTrips(redis, "digests"), epoch)


def window(user_id: str, digest: str, *intents: str) -> Window:
    return Window("default", user_id, "push", digest, intents)


async def cancel(redis: Redis, user_id: str, intent: str) -> None:
    await redis.set(keys.redis_cancel("default", user_id, intent), 1)


async def test_who_is_in_a_digest_stays_in_it_and_who_comes_later_waits(redis: Redis) -> None:
    user, marks = uuid.uuid4().hex, real(redis)
    first = window(user, "one", "a", "b")
    assert await marks.of([first]) == [[Mark("one"), Mark("one")]]
    assert await marks.of([window(user, "two", "a", "b", "c")]) == [[Mark("one"), Mark("one"), Mark("")]]
    await marks.name([(first, "n1")])
    assert await marks.of([window(user, "two", "b")]) == [[Mark("one", "n1")]]
    assert await marks.of([window(user, "three", "c")]) == [[Mark("three")]]
    assert 0 < await redis.ttl(keys.redis_digest("default", user, "b", "push")) <= KEPT_S


async def test_who_is_only_looked_at_gets_no_mark_and_shows_the_one_it_has(redis: Redis) -> None:
    user, marks = uuid.uuid4().hex, real(redis)
    assert await marks.of([window(user, "one", "a", "b")._replace(others=["c"])]) == [
        [Mark("one"), Mark("one"), Mark("")]
    ]
    assert await marks.of([window(user, "two", "c")._replace(others=["b"])]) == [[Mark(""), Mark("one")]]
    assert await marks.of([window(user, ALONE)._replace(others=["c"])]) == [[Mark("")]]


async def test_a_cancel_before_the_mark_wins_and_one_after_it_does_not(redis: Redis) -> None:
    user, marks = uuid.uuid4().hex, real(redis)
    await cancel(redis, user, "a")
    assert await marks.of([window(user, "one", "a", "b")]) == [[Mark("-"), Mark("one")]]
    await cancel(redis, user, "b")
    assert await marks.of([window(user, "two", "b")]) == [[Mark("one")]]


async def test_an_emptied_redis_is_asked_nothing(redis: Redis) -> None:
    """It would know of no cancel."""
    user, marks = uuid.uuid4().hex, real(redis)
    await redis.delete(keys.REDIS_EPOCH)
    with pytest.raises(StoreDown):
        await marks.of([window(user, "one", "a")])


@pytest.mark.parametrize("seed", range(3))
async def test_the_double_answers_as_the_script_does(redis: Redis, seed: int) -> None:
    rng, stem = random.Random(seed), uuid.uuid4().hex
    memory = MemoryRedis(ManualClock(), is_strict=True)
    epoch = Epoch()
    epoch.run_id = RUN_ID
    double, body = DigestMarks(StoredTrips(memory), epoch), real(redis)
    for step in range(STEPS):
        user = f"{stem}{rng.randrange(30)}"
        intents = rng.sample("abcdef", rng.randint(1, 4))
        others = [intent for intent in "abcdef" if intent not in intents and rng.random() < 0.3]
        if rng.random() < 0.2:
            await cancel(redis, user, intents[0])
            memory.reply("SET", keys.redis_cancel("default", user, intents[0]), 1)
        asked = window(user, f"d{step}" if len(intents) > 1 else ALONE, *intents)._replace(others=others)
        answered = await body.of([asked])
        assert await double.of([asked]) == answered
        if rng.random() < 0.5:
            named = asked._replace(
                intents=[one for one, mark in zip(intents, answered[0], strict=False) if mark.digest == asked.digest]
            )
            await body.name([(named, "n1")])
            await double.name([(named, "n1")])
