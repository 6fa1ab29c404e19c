"""The breaker on real Redis, shared by workers that know nothing of each other."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from consumers import breaker
from consumers.breaker import Breaker, BreakerOptions, Gate, State
from deploy.redis_trips import RedisTrips
from retry_topics.budget import RetryBudget
from schemas import keys
from schemas.outcomes import Kind

OPTIONS = BreakerOptions(first_period_s=0.0, longest_period_s=60.0, probe_round_s=60.0)
"""Open, it is ready for probes at once: no test has to wait."""


@pytest.fixture
async def trips(redis_url: str) -> AsyncIterator[RedisTrips]:
    client = Redis.from_url(redis_url)
    yield RedisTrips(client, "breakers")
    await client.aclose()


@pytest.fixture
def workers() -> tuple[Breaker, Breaker]:
    provider = uuid.uuid4().hex
    return Breaker(provider, OPTIONS), Breaker(provider, OPTIONS)


async def one(trips: RedisTrips, ask: Any) -> Any:
    trip = trips.begin()
    ask(trip)
    return (await trip.execute())[0]


async def tell(trips: RedisTrips, worker: Breaker, kind: Kind, calls: int = 1, is_probe: bool = False) -> Gate | None:
    for _ in range(calls):
        worker.note(kind, is_probe)
    return worker.read_record(await one(trips, worker.ask_record))


async def state(trips: RedisTrips, worker: Breaker, now_ms: int = 2**45) -> State:
    return worker.read(await one(trips, worker.ask), now_ms)


def a_second_ago_ms() -> int:
    return int(time.time() * 1000) - 1_000


async def probes(trips: RedisTrips, worker: Breaker) -> int:
    return worker.read_probe(await one(trips, worker.ask_probe))


async def test_failures_of_several_workers_together_open_it(
    trips: RedisTrips, workers: tuple[Breaker, Breaker]
) -> None:
    one_worker, other = workers
    assert await tell(trips, one_worker, Kind.DONE, calls=50) is None
    assert await tell(trips, one_worker, Kind.RETRY, calls=25) is None
    assert await tell(trips, other, Kind.UNKNOWN, calls=25) is None
    assert (await state(trips, one_worker)).gate is Gate.CLOSED
    assert await tell(trips, other, Kind.UNKNOWN) is Gate.OPEN
    assert (await state(trips, one_worker, a_second_ago_ms())).gate is Gate.OPEN


async def test_a_few_failures_of_a_quiet_provider_do_not_open_it(
    trips: RedisTrips, workers: tuple[Breaker, Breaker]
) -> None:
    assert await tell(trips, workers[0], Kind.RETRY, calls=19) is None
    assert await tell(trips, workers[0], Kind.RETRY) is Gate.OPEN


async def test_refusals_that_are_the_messages_own_fault_do_not_open_it(
    trips: RedisTrips, workers: tuple[Breaker, Breaker]
) -> None:
    for kind in (Kind.DROP, Kind.THROTTLE, Kind.BLOCKED, Kind.SUPPRESS, Kind.DEAD_ADDRESS):
        assert await tell(trips, workers[0], kind, calls=100) is None


async def test_open_it_lets_one_round_of_probes_through(trips: RedisTrips, workers: tuple[Breaker, Breaker]) -> None:
    await tell(trips, workers[0], Kind.RETRY, calls=100)
    assert (await state(trips, workers[1])).gate is Gate.HALF_OPEN
    assert [await probes(trips, worker) for worker in workers] == [3, 0]


async def test_probes_that_succeed_close_it_and_the_past_is_forgotten(
    trips: RedisTrips, workers: tuple[Breaker, Breaker]
) -> None:
    await tell(trips, workers[0], Kind.RETRY, calls=100)
    await probes(trips, workers[0])
    assert await tell(trips, workers[1], Kind.DONE, calls=50) is None  # calls from before it opened
    assert await tell(trips, workers[0], Kind.DONE, calls=3, is_probe=True) is Gate.CLOSED
    assert await tell(trips, workers[0], Kind.RETRY, calls=10) is None


async def test_probes_that_succeed_one_by_one_close_it_too_and_none_waits_for_the_next_round(
    trips: RedisTrips, workers: tuple[Breaker, Breaker]
) -> None:
    """On a lane with few records: of a round of three only one finds anything to send."""
    await tell(trips, workers[0], Kind.RETRY, calls=20)
    for left in (3, 2, 1):
        assert await probes(trips, workers[0]) == left
        changed = await tell(trips, workers[0], Kind.DONE, is_probe=True)
    assert changed is Gate.CLOSED


async def test_a_probe_that_fails_keeps_it_open_for_longer(trips: RedisTrips, workers: tuple[Breaker, Breaker]) -> None:
    slow = Breaker(workers[0].provider, BreakerOptions(first_period_s=20.0))
    await tell(trips, slow, Kind.RETRY, calls=100)
    now_ms = a_second_ago_ms()
    first = await state(trips, slow, now_ms)
    await tell(trips, slow, Kind.RETRY, is_probe=True)
    assert (await state(trips, slow, now_ms)).left_ms >= first.left_ms + 20_000


async def test_wrong_credentials_hold_the_provider_at_once_and_say_that_a_person_must_act(
    trips: RedisTrips, workers: tuple[Breaker, Breaker]
) -> None:
    assert await tell(trips, workers[0], Kind.AUTH_CONFIG) is Gate.OPEN
    held = await state(trips, workers[1], a_second_ago_ms())
    assert (held.gate, held.is_hold) == (Gate.OPEN, True)
    assert await probes(trips, workers[1]) == 0


async def test_while_a_person_mends_a_setting_one_call_a_minute_tests_it_and_one_good_one_is_enough(
    trips: RedisTrips, workers: tuple[Breaker, Breaker]
) -> None:
    provider = workers[0].provider
    held = Breaker(provider, BreakerOptions(hold_period_s=0.0, probe_round_s=60.0))
    await tell(trips, held, Kind.AUTH_CONFIG)
    assert await probes(trips, held) == 1
    assert await tell(trips, held, Kind.AUTH_CONFIG, is_probe=True) is None
    assert await tell(trips, held, Kind.DONE, is_probe=True) is Gate.CLOSED


async def test_a_config_hold_is_tested_once_in_its_period(trips: RedisTrips, workers: tuple[Breaker, Breaker]) -> None:
    key = keys.redis_breaker(workers[0].provider)
    await tell(trips, workers[0], Kind.AUTH_CONFIG)
    await one(trips, lambda trip: trip.execute_command("HSET", key, "until", 0))
    assert [await probes(trips, worker) for worker in (*workers, workers[0])] == [1, 0, 0]
    assert (await state(trips, workers[1], a_second_ago_ms() + 1_000)).left_ms > 55_000


async def test_when_the_clock_of_redis_is_set_back_an_hour_an_open_one_is_tested_all_the_same(
    trips: RedisTrips, workers: tuple[Breaker, Breaker]
) -> None:
    """As is seen from one that was opened by a clock which is an hour ahead of the one there is now."""
    now_ms = int(time.time() * 1000)
    await tell(trips, workers[0], Kind.RETRY, calls=100)
    key, until_ms = keys.redis_breaker(workers[0].provider), now_ms + 3_600_000
    await one(trips, lambda trip: trip.execute_command("HSET", key, "until", until_ms, "period", 5_000))
    assert (await state(trips, workers[1], now_ms)).gate is Gate.HALF_OPEN
    assert [await probes(trips, worker) for worker in workers] == [3, 0]


async def test_what_a_person_opened_only_a_person_closes(trips: RedisTrips, workers: tuple[Breaker, Breaker]) -> None:
    provider = workers[0].provider
    trip = trips.begin()
    breaker.ask_open(trip, provider, 0)
    await trip.execute()
    assert (await state(trips, workers[0])).gate is Gate.OPEN
    assert await probes(trips, workers[0]) == 0
    assert await tell(trips, workers[0], Kind.DONE, calls=200) is None
    assert await tell(trips, workers[0], Kind.DONE, calls=10, is_probe=True) is None
    assert await tell(trips, workers[1], Kind.AUTH_CONFIG) is None
    found = await state(trips, workers[1])
    assert (found.gate, found.is_hold) == (Gate.OPEN, False)
    assert await one(trips, lambda trip: trip.execute_command("TTL", keys.redis_breaker(provider))) == -1
    trip = trips.begin()
    breaker.ask_close(trip, provider)
    await trip.execute()
    assert (await state(trips, workers[0])).gate is Gate.CLOSED
    assert await tell(trips, workers[0], Kind.RETRY, calls=19) is None, "the past is forgotten"


async def test_who_tells_of_calls_hears_that_another_worker_has_opened_or_closed_it(
    trips: RedisTrips, workers: tuple[Breaker, Breaker]
) -> None:
    one_worker, other = workers
    await tell(trips, one_worker, Kind.RETRY, calls=100)
    heard = [(one_worker.is_open, other.is_open)]
    await tell(trips, other, Kind.DONE)
    heard.append((one_worker.is_open, other.is_open))
    await probes(trips, other)
    await tell(trips, other, Kind.DONE, calls=3, is_probe=True)
    heard.append((one_worker.is_open, other.is_open))
    await state(trips, one_worker)
    heard.append((one_worker.is_open, other.is_open))
    assert heard == [(True, False), (True, True), (True, False), (False, False)]


async def test_retries_are_counted_among_the_calls_of_all_workers(
    trips: RedisTrips, workers: tuple[Breaker, Breaker]
) -> None:
    """The budget of retries is a provider's, however many workers call it."""
    one_worker, other = workers
    await tell(trips, one_worker, Kind.DONE, calls=150)
    await tell(trips, one_worker, Kind.RETRY, calls=8)
    await tell(trips, other, Kind.UNKNOWN, calls=6)
    assert other.recent == (164, 14)
    assert RetryBudget().allows(*other.recent)
    await tell(trips, one_worker, Kind.RETRY, calls=4)
    assert not RetryBudget().allows(*one_worker.recent)


class TestDeadTokens:
    """A wrong app, key or environment makes every push token look dead."""

    async def test_when_clearly_more_than_a_fifth_look_dead_every_worker_doubts_them(
        self, trips: RedisTrips, workers: tuple[Breaker, Breaker]
    ) -> None:
        first, other = workers
        await tell(trips, first, Kind.DONE, calls=143)
        await tell(trips, first, Kind.DEAD_ADDRESS, calls=57)
        assert first.doubts_dead_tokens(), "with one more it would be 58 of 201: a fifth, and three deviations"
        assert not other.doubts_dead_tokens(), "it has not heard of any yet"
        await tell(trips, other, Kind.DONE)
        assert other.doubts_dead_tokens()

    async def test_a_fifth_and_less_are_believed(self, trips: RedisTrips, workers: tuple[Breaker, Breaker]) -> None:
        await tell(trips, workers[0], Kind.DONE, calls=180)
        await tell(trips, workers[0], Kind.DEAD_ADDRESS, calls=20)
        assert not workers[0].doubts_dead_tokens()

    async def test_what_chance_explains_of_an_old_audience_is_believed(
        self, trips: RedisTrips, workers: tuple[Breaker, Breaker]
    ) -> None:
        """Right after a start, or a hold, few calls are known: five dead ones of twenty are no wrong setting."""
        await tell(trips, workers[0], Kind.DONE, calls=15)
        await tell(trips, workers[0], Kind.DEAD_ADDRESS, calls=4)
        assert not workers[0].doubts_dead_tokens()
        await tell(trips, workers[0], Kind.DEAD_ADDRESS, calls=7)
        assert workers[0].doubts_dead_tokens(), "with one more it would be 12 of 27"

    async def test_calls_before_the_last_two_hundred_say_nothing(
        self, trips: RedisTrips, workers: tuple[Breaker, Breaker]
    ) -> None:
        await tell(trips, workers[0], Kind.DEAD_ADDRESS, calls=100)
        for _ in range(4):
            await tell(trips, workers[0], Kind.DONE, calls=50)
        assert not workers[0].doubts_dead_tokens()

    def test_of_the_first_calls_of_all_four_are_believed(self, workers: tuple[Breaker, Breaker]) -> None:
        believed = 0
        while not workers[0].doubts_dead_tokens():
            workers[0].note(Kind.DEAD_ADDRESS, False)
            believed += 1
        assert believed == 4

    def test_a_deployment_may_believe_all(self) -> None:
        worker = Breaker("gateway", BreakerOptions(dead_most=1))
        for _ in range(300):
            worker.note(Kind.DEAD_ADDRESS, False)
        assert not worker.doubts_dead_tokens()


async def test_one_that_delivers_too_little_is_avoided_for_as_long_as_it_was_told(
    trips: RedisTrips, workers: tuple[Breaker, Breaker]
) -> None:
    worker, other = workers
    key = keys.redis_breaker(worker.provider)
    await one(trips, lambda trip: trip.execute_command("HSET", key, "avoid", 2**45 + 1_000))
    assert await state(trips, worker) == State(Gate.CLOSED, is_avoided=True)
    assert (await state(trips, worker, 2**45 + 1_000)).is_avoided is False
    await tell(trips, other, Kind.RETRY, calls=100)
    assert (await state(trips, worker)).gate is not Gate.CLOSED
