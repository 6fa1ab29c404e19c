"""A provider's rate on real Redis: never above it, however many workers; bulk never takes the reserve."""

from __future__ import annotations

import asyncio
import time
import uuid
from bisect import bisect_left
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from consumers import limits, throttles
from deploy.redis_trips import RedisTrips
from schemas import keys
from schemas.clock import SystemClock
from schemas.messages import Channel, Priority
from schemas.outcomes import Kind, Outcome

RUN_S = 2.5


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()


class Crew:
    """Workers that call as fast as they get tokens, and the moment of every call."""

    def __init__(self, redis: Redis, rate: limits.Rate, run_s: float = RUN_S) -> None:
        self.rate = rate
        self.calls: dict[Priority, list[float]] = {priority: [] for priority in Priority}
        self.provider = uuid.uuid4().hex
        self._trips = RedisTrips(redis, "limits")
        self._stop_s = time.monotonic() + run_s
        self.asked = 0

    async def work(self, count: int, priority: Priority, wanted: int, hold_s: float = 0.002) -> None:
        await asyncio.gather(*(self._worker(f"{priority}{n}", priority, wanted, hold_s) for n in range(count)))

    async def _worker(self, name: str, priority: Priority, wanted: int, hold_s: float) -> None:
        options = limits.LimitOptions()
        pocket = limits.Pocket(self._trips, SystemClock(), self.provider, self.rate, priority, name, options)
        while time.monotonic() < self._stop_s:
            tokens = await pocket.take(wanted, wait_s=0.2)
            await asyncio.sleep(hold_s)  # the claim and the rendering in between
            for token in tokens:
                if pocket.spend(token):
                    self.calls[priority].append(time.monotonic())
        await pocket.close()

    def between(self, first_s: float, last_s: float) -> int:
        """Calls of all workers, in steady seconds."""
        return sum(first_s <= at < last_s for calls in self.calls.values() for at in calls)

    def most_in_one_second(self, *priorities: Priority) -> int:
        calls = sorted(at for priority in priorities or Priority for at in self.calls[priority])
        return max(at - bisect_left(calls, moment - 1.0) + 1 for at, moment in enumerate(calls))


async def test_64_workers_never_exceed_the_rate_plus_burst_in_any_second(redis: Redis) -> None:
    crew = Crew(redis, limits.Rate(per_s=300, burst=30))
    await asyncio.gather(
        crew.work(40, Priority.BULK, wanted=20), crew.work(24, Priority.TRANSACTIONAL, wanted=3, hold_s=0.02)
    )
    assert crew.most_in_one_second() <= 330
    assert len(crew.calls[Priority.TRANSACTIONAL]) > 0.3 * 300 * RUN_S * 0.8


async def test_bulk_alone_never_takes_the_part_reserved_for_transactional(redis: Redis) -> None:
    crew = Crew(redis, limits.Rate(per_s=1000, burst=100))
    await crew.work(8, Priority.BULK, wanted=200)
    assert crew.most_in_one_second() <= 0.7 * (1000 + 100)
    assert len(crew.calls[Priority.BULK]) >= 0.9 * 0.7 * 1000 * RUN_S


async def test_told_that_it_is_too_much_all_workers_slow_down_at_once_and_come_back_step_by_step(redis: Redis) -> None:
    """One worker hears of it; what each of them may still hold dies within its 200 ms."""
    crew = Crew(redis, limits.Rate(per_s=300, burst=30), run_s=1.9)
    told_s = 0.0

    async def one_hears() -> None:
        nonlocal told_s
        await asyncio.sleep(0.6)
        await slow_down(RedisTrips(redis, "limits"), crew.provider)
        told_s = time.monotonic()

    await asyncio.gather(crew.work(24, Priority.TRANSACTIONAL, wanted=3), one_hears())
    assert crew.between(told_s - 0.5, told_s) > 0
    after = crew.between(told_s + 0.2, told_s + 1.2)
    assert after <= 300 * (0.5 + 0.05 * 1.2) + 15, "half of the rate, and a twentieth more with each second"
    assert after > 0


async def test_told_to_wait_no_worker_calls_until_then(redis: Redis) -> None:
    crew = Crew(redis, limits.Rate(per_s=300, burst=30), run_s=1.2)
    await slow_down(RedisTrips(redis, "limits"), crew.provider, wait_ms=600)
    told_s = time.monotonic()
    await crew.work(8, Priority.BULK, wanted=20)
    assert crew.between(told_s, told_s + 0.5) == 0
    assert crew.between(told_s + 0.5, told_s + 2) > 0


async def slow_down(trips: RedisTrips, provider: str, wait_ms: int | None = None) -> None:
    """As a worker does whose call was throttled."""
    throttle, trip = throttles.Throttle(provider), trips.begin()
    throttle.note(Outcome(Kind.THROTTLE, retry_after_ms=wait_ms), Channel.PUSH, "token-1")
    throttle.ask_record(trip)
    await trip.execute()


def pockets(redis: Redis, rate: limits.Rate, provider: str, priority: Priority, count: int) -> list[limits.Pocket]:
    trips, options = RedisTrips(redis, "limits"), limits.LimitOptions()
    return [limits.Pocket(trips, SystemClock(), provider, rate, priority, f"{n}", options) for n in range(count)]


@pytest.mark.parametrize(("priority", "most"), [(Priority.BULK, 35), (Priority.TRANSACTIONAL, 50)])
async def test_all_pockets_together_hold_no_more_than_half_the_burst(
    redis: Redis, priority: Priority, most: int
) -> None:
    """Of bulk without the reserve. Nobody spends, and the rate would give out much more."""
    workers = pockets(redis, limits.Rate(100_000, 100), uuid.uuid4().hex, priority, 40)
    taken = await asyncio.gather(*(worker.take(20, wait_s=0.05) for worker in workers))
    now_s = SystemClock().steady_s()
    assert sum(len(tokens) for tokens in taken) > 0
    assert sum(token.expires_s > now_s for tokens in taken for token in tokens) <= most


async def test_of_a_full_bucket_bulk_leaves_the_reserved_part_to_transactional(redis: Redis) -> None:
    provider, never_refilled = uuid.uuid4().hex, limits.Rate(0.001, 100)
    bulk, more_bulk = pockets(redis, never_refilled, provider, Priority.BULK, 2)
    (transactional,) = pockets(redis, never_refilled, provider, Priority.TRANSACTIONAL, 1)
    assert len(await bulk.take(100, wait_s=1)) == 35
    assert await more_bulk.take(1, wait_s=0) == []
    assert len(await transactional.take(100, wait_s=1)) == 15


async def test_after_a_long_rest_no_more_than_half_the_burst_has_gathered(redis: Redis) -> None:
    provider = uuid.uuid4().hex
    (worker,) = pockets(redis, limits.Rate(1, 100), provider, Priority.TRANSACTIONAL, 1)
    (first,) = await worker.take(1, wait_s=1)
    assert worker.spend(first)
    key = keys.redis_bucket(provider)
    filled_us = int(await redis.hget(key, "t"))  # type: ignore[misc]
    await redis.hset(key, "t", str(filled_us - 3_600_000_000))  # type: ignore[misc]
    got = 0
    while tokens := await worker.take(10, wait_s=0):
        got += sum(worker.spend(token) for token in tokens)
    assert 45 <= got <= 51
    await worker.close()


async def test_when_the_clock_of_redis_is_set_back_an_hour_tokens_come_as_before(redis: Redis) -> None:
    """As is seen from a bucket that was filled by a clock which is an hour ahead of the one there is now."""
    provider = uuid.uuid4().hex
    (worker,) = pockets(redis, limits.Rate(20, 20), provider, Priority.TRANSACTIONAL, 1)
    while tokens := await worker.take(10, wait_s=0):
        assert all(worker.spend(token) for token in tokens)
    key = keys.redis_bucket(provider)
    for field in ("t", "n"):
        before_us = int(await redis.hget(key, field))  # type: ignore[misc]
        await redis.hset(key, field, str(before_us + 3_600_000_000))  # type: ignore[misc]
    assert await worker.take(1, wait_s=1)
    assert await redis.pttl(key) <= 60_000, "kept no longer than any"
    await worker.close()


async def test_one_worker_keeps_a_fast_provider_busy_with_few_questions(redis: Redis) -> None:
    crew = Crew(redis, limits.Rate(per_s=5000, burst=500))
    before = (await redis.info("commandstats"))["cmdstat_evalsha"]["calls"]
    await crew.work(1, Priority.BULK, wanted=200)
    asked = (await redis.info("commandstats"))["cmdstat_evalsha"]["calls"] - before
    assert len(crew.calls[Priority.BULK]) >= 0.9 * 0.7 * 5000 * RUN_S
    assert asked / RUN_S < 200


async def in_turn(redis: Redis, lanes: tuple[str, str], run_s: tuple[float, float]) -> tuple[int, int]:
    """What two workers call, at 1,000 a second for bulk, of whom the first has what was written much earlier."""
    trips, provider, options = RedisTrips(redis, "limits"), uuid.uuid4().hex, limits.LimitOptions()

    async def worker(name: str, lane: str, written_ms: int, until_s: float) -> int:
        clock, called = SystemClock(), 0
        rate = limits.Rate(1_000 / 0.7, 140)
        pocket = limits.Pocket(trips, clock, provider, rate, Priority.BULK, name, options, lane)
        while clock.steady_s() < until_s:
            tokens = await pocket.take(20, wait_s=0.2, rank=written_ms)
            called += sum(pocket.spend(token) for token in tokens)
        await pocket.close()
        return called

    began_s = SystemClock().steady_s()
    return await asyncio.gather(
        worker("a", lanes[0], 1_000, began_s + run_s[0]), worker("b", lanes[1], 2_000, began_s + run_s[1])
    )


async def test_of_the_workers_of_a_lane_who_has_the_earliest_record_goes_first_and_nothing_is_lost_by_it(
    redis: Redis,
) -> None:
    early, late = await in_turn(redis, ("push", "push"), (1.5, 1.5))
    assert late < 0.2 * early
    assert early + late >= 0.9 * 1_000 * 1.5


async def test_a_worker_whose_earlier_records_are_done_keeps_nobody_waiting(redis: Redis) -> None:
    early, late = await in_turn(redis, ("push", "push"), (0.5, 1.5))
    assert early + late >= 0.9 * 1_000 * 1.5 and late > 0.8 * 1_000


async def test_what_lies_long_in_one_lane_does_not_hold_up_another_lane_of_its_provider(redis: Redis) -> None:
    early, late = await in_turn(redis, ("push", "sms"), (1.5, 1.5))
    assert late > 0.5 * early
