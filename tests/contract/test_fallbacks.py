"""Fallbacks: the in-memory body beside the one in Redis, on random histories, and many who ask at once."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from consumers import claims
from consumers.claims import Claims, Entry, Settled, VerdictClass
from consumers.fallbacks import KEEP_S, Fallbacks, Found, Question, RedisFallbacks, Standing, Wish
from deploy.redis_trips import RedisTrips
from schemas import keys
from schemas.messages import Channel, Delivery
from schemas.trips import Trips
from tests.doubles import deliveries
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_claims import MemoryClaims
from tests.doubles.memory_fallbacks import MemoryFallbacks
from tests.doubles.memory_trips import MemoryTrips

MANY = 64


class Body:
    """One body of both ports, with the claims it took."""

    def __init__(self, trips: Trips, store: Claims, fallbacks: Fallbacks) -> None:
        self.trips = trips
        self.store = store
        self.fallbacks = fallbacks
        self.taken: dict[str, Entry] = {}

    async def take(self, delivery: Delivery) -> str:
        trip = self.trips.begin()
        bid = claims.bid_for(delivery)
        self.store.ask_take(trip, bid, 0, False)
        taken = self.store.read_take((await trip.execute())[0])
        if taken.entry is not None and taken.answer in (claims.Answer.CLAIMED, claims.Answer.TAKEOVER):
            self.taken[bid.delivery_key] = taken.entry
        return taken.answer.name

    async def settle(self, delivery: Delivery, verdict: VerdictClass) -> Settled | None:
        trip = self.trips.begin()
        bid = claims.bid_for(delivery)
        if bid.delivery_key not in self.taken:
            return None
        self.store.ask_settle(trip, bid, self.taken[bid.delivery_key], verdict, b"", b"")
        return self.store.read_settle((await trip.execute())[0])

    async def give_back(self, delivery: Delivery) -> bool:
        trip = self.trips.begin()
        bid = claims.bid_for(delivery)
        if bid.delivery_key not in self.taken:
            return False
        self.store.ask_give_back(trip, bid, self.taken[bid.delivery_key].token)
        return bool((await trip.execute())[0])

    async def ask(self, delivery: Delivery, wish: Wish, after_ms: int = 0) -> Found:
        trip = self.trips.begin()
        question = Question(delivery, wish, after_ms)
        self.fallbacks.ask(trip, question)
        return self.fallbacks.read((await trip.execute())[0], question)

    async def standing(self, delivery: Delivery) -> Standing:
        trip = self.trips.begin()
        self.fallbacks.ask_standing(trip, delivery)
        return self.fallbacks.read_standing((await trip.execute())[0], delivery)


def in_memory() -> Body:
    clock = ManualClock()
    store = MemoryClaims(clock)
    return Body(MemoryTrips(), store, MemoryFallbacks(store, clock))


def in_redis(client: Redis) -> Body:
    store = claims.RedisClaims(random.Random(7), claims.ClaimOptions())
    return Body(RedisTrips(client, "fallbacks"), store, RedisFallbacks())


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()


def family(*who: tuple[Channel, str]) -> list[Delivery]:
    """The deliveries of one notification to somebody whom nobody else in this run knows."""
    user = uuid.uuid4().hex[:12]
    names = [keys.delivery_suffix(channel, device) for channel, device in who]
    return [
        deliveries.single(
            user,
            channel=channel,
            device=device,
            index=at,
            siblings=tuple(name for other, name in enumerate(names) if other != at),
            fallback=(Channel.SMS,),
        )
        for at, (channel, device) in enumerate(who)
    ]


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.one_of(
            st.just("take"),
            st.just("give back"),
            st.sampled_from((VerdictClass.SENT, VerdictClass.WAITING, VerdictClass.ENDED, VerdictClass.ENDED)),
            st.sampled_from(Wish),
            st.just("look"),
        ),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_both_bodies_tell_the_same_story_of_every_history(redis_url: str, steps: list[tuple[int, Any]]) -> None:
    asyncio.run(_tell_twice(redis_url, steps))


async def _tell_twice(redis_url: str, steps: list[tuple[int, Any]]) -> None:
    many = family((Channel.PUSH, "one"), (Channel.PUSH, "two"), (Channel.EMAIL, ""))
    calls = [1, 1, 1]
    async with Redis.from_url(redis_url) as client:
        bodies = (in_memory(), in_redis(client))
        for at, step in steps:
            delivery = replace(many[at], call=calls[at])
            memory, real = [await _step(body, delivery, step) for body in bodies]
            assert memory == real, (at, step)
            calls[at] += step is VerdictClass.WAITING and memory is Settled.STORED


async def _step(body: Body, delivery: Delivery, step: Any) -> object:
    match step:
        case "take":
            return await body.take(delivery)
        case "give back":
            return await body.give_back(delivery)
        case "look":
            return await body.standing(delivery)
        case Wish():
            return await body.ask(delivery, step)
    return await body.settle(delivery, step)


async def test_of_many_who_ask_at_once_exactly_one_starts_it(redis: Redis) -> None:
    many = family(*((Channel.PUSH, f"device{number}") for number in range(MANY)))
    body = in_redis(redis)
    await asyncio.gather(*(body.take(delivery) for delivery in many))
    await asyncio.gather(*(_end(in_redis(redis), body, delivery) for delivery in many))
    found = await asyncio.gather(*(in_redis(redis).ask(delivery, Wish.DELIVERY) for delivery in many))
    here = [answer.standing for answer in found].count(Standing.STARTED_HERE)
    assert here == 1 and len(found) == MANY


async def _end(asking: Body, holding: Body, delivery: Delivery) -> None:
    await holding.settle(delivery, VerdictClass.ENDED)
    await asking.ask(delivery, Wish.DELIVERY)


async def test_where_one_of_many_was_sent_none_starts_it_whenever_it_was(redis: Redis) -> None:
    many = family(*((Channel.PUSH, f"device{number}") for number in range(MANY)))
    body = in_redis(redis)
    await asyncio.gather(*(body.take(delivery) for delivery in many))
    lucky = many[MANY // 2]
    ends = [_end(in_redis(redis), body, delivery) for delivery in many if delivery is not lucky]
    await asyncio.gather(*ends, body.settle(lucky, VerdictClass.SENT))
    found = await asyncio.gather(*(body.ask(delivery, Wish.CHANNEL) for delivery in many))
    assert {answer.standing for answer in found} == {Standing.OPEN}


@pytest.mark.parametrize("make", ["memory", "redis"])
async def test_a_channel_is_waited_for_from_the_first_time_anybody_asked(
    make: str, redis: Redis, request: pytest.FixtureRequest
) -> None:
    one, two = family((Channel.PUSH, "one"), (Channel.PUSH, "two"))
    body = in_memory() if make == "memory" else in_redis(redis)
    assert await body.ask(one, Wish.CHANNEL, 60_000) == Found(Standing.OPEN, 60_000)
    later = await body.ask(two, Wish.CHANNEL, 600_000)
    assert later.standing is Standing.OPEN and 540_000 < later.left_ms <= 600_000
    assert (await body.ask(two, Wish.CHANNEL, 0)).standing is Standing.STARTED_HERE
    assert (await body.ask(one, Wish.CHANNEL, 60_000)).standing is Standing.STARTED_ELSEWHERE


async def test_what_is_known_is_kept_as_long_as_claims_are(redis: Redis) -> None:
    (one,) = family((Channel.PUSH, "one"))
    await in_redis(redis).ask(one, Wish.DELIVERY)
    key = keys.redis_fallback(one.tenant, one.user_id, one.intent, "sms")
    assert KEEP_S - 60 < await redis.ttl(key) <= KEEP_S
