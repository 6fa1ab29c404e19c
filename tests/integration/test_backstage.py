"""What support is told of claims and providers, as senders left it in Redis."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from consumers import verdicts
from consumers.backstage import RedisBackstage
from consumers.breaker import Breaker, BreakerOptions
from consumers.claims import Bid, ClaimOptions, Entry, RedisClaims, VerdictClass, bid_for
from consumers.verdicts import Verdict
from deploy import redis_client
from deploy.redis_trips import RedisTrips
from schemas import keys
from schemas.backstage import ClaimState, ProviderState
from schemas.errors import StoreDown
from schemas.messages import EventKind
from schemas.outcomes import Kind
from schemas.trips import Epoch
from tests.doubles import deliveries

WHO = ("default", "42", keys.single_intent("default", "order-1"))


class World:
    def __init__(self, redis: Redis, epoch: Epoch) -> None:
        self.redis = redis
        self.trips = RedisTrips(redis, "backstage")
        self.claims = RedisClaims(random.Random(1), ClaimOptions(lease_s=0.2))
        self.bid = bid_for(deliveries.single())
        self.backstage = RedisBackstage(self.trips, epoch)

    async def claimed(self) -> Entry:
        """The claim, taken now."""
        trip = self.trips.begin()
        self.claims.ask_take(trip, self.bid, 0, False)
        [reply] = await trip.execute()
        entry = self.claims.read_take(reply).entry
        assert entry is not None
        return entry

    async def settled(self, mine: Entry, bid: Bid, kind: VerdictClass, verdict: Verdict) -> None:
        trip = self.trips.begin()
        self.claims.ask_settle(trip, bid, mine, kind, verdicts.pack(verdict), b"")
        await trip.execute()

    async def state(self) -> ClaimState:
        return (await self.backstage.claims(*WHO, ["sms", "email"]))["sms"].state


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    epoch = Epoch()
    redis = redis_client.connect(redis_url, epoch)
    await redis.flushdb()
    await redis.set(keys.REDIS_EPOCH, epoch.run_id)
    yield World(redis, epoch)
    await redis.flushdb()
    await redis.aclose()


async def test_a_call_under_way_and_one_whose_sender_died_are_told_apart(world: World) -> None:
    assert await world.backstage.claims(*WHO, ["sms"]) == {}
    await world.claimed()
    assert await world.state() is ClaimState.SENDING
    raw = await world.redis.get(world.bid.claim_key)
    await world.redis.set(world.bid.claim_key, raw[:4] + b"\0" * 6 + raw[10:])  # its lease ended long ago
    assert await world.state() is ClaimState.LAPSED


async def test_a_wait_says_how_many_tries_are_used_up(world: World) -> None:
    waits = Verdict(EventKind.RETRYING, 1, "provider_error", tries=3)
    await world.settled(await world.claimed(), world.bid, VerdictClass.WAITING, waits)
    found = (await world.backstage.claims(*WHO, ["sms"]))["sms"]
    assert (found.state, found.call, found.tries) == (ClaimState.WAITING, 1, 3)


async def test_a_provider_that_refuses_us_is_no_provider_that_is_down(world: World) -> None:
    breaker = Breaker("texter", BreakerOptions())
    breaker.note(Kind.AUTH_CONFIG, False)
    trip = world.trips.begin()
    breaker.ask_record(trip)
    await trip.execute()
    found = await world.backstage.providers(["texter", "mail"])
    assert [found[name].state for name in ("texter", "mail")] == [ProviderState.REFUSES_US, ProviderState.WELL]
    assert found["texter"].left_ms > 0


async def test_where_a_recipient_was_planned_is_found_without_reading_the_audience(world: World) -> None:
    await world.redis.set(keys.redis_plan(*WHO), b'c.spring.7|9|[[["sms", "", "", ""]], []]')
    assert await world.backstage.place(*WHO) == keys.Address("c.spring.7", 9)


async def test_an_emptied_redis_says_nothing_rather_than_something_wrong(world: World) -> None:
    await world.redis.delete(keys.REDIS_EPOCH)
    with pytest.raises(StoreDown):
        await world.backstage.claims(*WHO, ["sms"])
