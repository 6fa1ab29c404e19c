"""A day's budget on real Redis: 64 workers at once, some of which die, and a Redis that is emptied amid it."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Iterable

import pytest
from redis.asyncio import Redis

from consumers.spend import BLOCKS, Budget, Charge, Gone, Purse
from deploy.redis_trips import RedisTrip, RedisTrips
from schemas.messages import Channel
from tests.doubles.manual_clock import ManualClock

PRICES = (40_000, 70_000, 350_000)
PER_DAY = 5_000 * 70_000
WORKERS, DEAD = 64, 20


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()


class CountedTrips(RedisTrips):
    """made: how many."""

    made = 0

    def begin(self) -> RedisTrip:
        self.made += 1
        return super().begin()


class Crew:
    """Workers with one budget, and what their calls cost. lost: what the dead had in hand."""

    def __init__(self, redis: Redis) -> None:
        self.clock = ManualClock()
        self.trips = CountedTrips(redis, "spend")
        self.budget = Budget(uuid.uuid4().hex, Channel.SMS, PER_DAY, "UTC")
        self.spent = 0
        self.lost: list[int] = []

    def worker(self) -> Purse:
        return Purse(self.trips, self.clock, self.budget)

    async def work(self, worker: Purse, rng: random.Random, calls: int) -> None:
        """So many calls, or all that can be paid; now and then one is not made."""
        for _ in range(calls):
            charge = await worker.charge(rng.choice(PRICES))
            await asyncio.sleep(0)
            if isinstance(charge, Gone) or self.spent > PER_DAY:
                return
            if rng.random() < 0.1:
                worker.give_back(charge)
            else:
                worker.called(charge)
                self.spent += charge.micros

    async def live(self, seed: int) -> None:
        """One worker with four calls at a time; the first ones die after a while, the others leave in order."""
        rng, worker = random.Random(seed), self.worker()
        calls = rng.randrange(40) if seed < DEAD else PER_DAY
        await asyncio.gather(*(self.work(worker, random.Random(seed * 4 + task), calls) for task in range(4)))
        await worker.tell()
        if seed < DEAD:
            self.lost.append(worker.held)
        else:
            await worker.close()

    async def all_live(self, seeds: Iterable[int]) -> None:
        await asyncio.gather(*(self.live(seed) for seed in seeds))


async def test_64_workers_never_spend_more_than_the_budget_and_lose_at_most_a_block_for_each_dead(redis: Redis) -> None:
    crew = Crew(redis)
    await crew.all_live(range(WORKERS))
    assert crew.spent <= PER_DAY
    assert max(crew.lost) <= max(PER_DAY // BLOCKS, max(PRICES))
    left, heir = PER_DAY - crew.spent - sum(crew.lost), crew.worker()
    assert left == 0 or isinstance(await heir.charge(left), Charge)
    assert isinstance(await heir.charge(1), Gone)


async def test_many_workers_ask_redis_a_few_times_for_thousands_of_calls(redis: Redis) -> None:
    crew = Crew(redis)
    await crew.all_live(range(DEAD, DEAD + 8))
    assert crew.spent > 0.99 * PER_DAY
    assert crew.trips.made < 4 * BLOCKS


async def test_an_emptied_redis_does_not_begin_the_day_anew(redis: Redis) -> None:
    """Whoever asks next tells it what was drawn; others may have drawn a block each since that worker asked."""
    crew = Crew(redis)
    workers = [crew.worker() for _ in range(8)]
    for _ in range(5):
        await asyncio.gather(*(crew.work(worker, random.Random(7), 60) for worker in workers))
        key = next(iter([key async for key in redis.scan_iter(match=f"*{crew.budget.tenant}*")]))
        await redis.delete(key)
    await asyncio.gather(*(crew.work(worker, random.Random(8), PER_DAY) for worker in workers))
    assert crew.spent <= PER_DAY * (1 + 5 * len(workers) / BLOCKS)
