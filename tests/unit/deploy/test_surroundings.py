"""A process that cannot go on says what it waits for, and stops saying so by itself."""

from __future__ import annotations

import asyncio

from deploy.surroundings import LogInSight, RedisInSight
from schemas import metrics
from schemas.trips import Epoch
from tests.doubles.memory_log import MemoryLog
from tests.doubles.memory_trips import RUN_ID, MemoryTrips


async def test_redis_is_missed_while_it_is_away_and_until_it_is_rebuilt() -> None:
    trips, epoch = MemoryTrips(), Epoch()
    epoch.run_id = RUN_ID
    sight = RedisInSight(trips, epoch)
    seen = []
    for trips.down, trips.epoch in (
        (False, RUN_ID),
        (True, RUN_ID),
        (False, None),
        (False, b"before"),
        (False, RUN_ID),
    ):
        await sight.look()
        seen.append((sight.trusted, metrics.REDIS_DOWN._value.get()))
    assert seen == [(True, 0), (False, 1), (False, 1), (False, 1), (True, 0)]


async def test_the_log_is_missed_while_it_does_not_answer() -> None:
    log = MemoryLog()
    sight = LogInSight(log, "delivery.status")
    seen = []
    for log.fail in (False, True, False):
        await sight.look()
        seen.append((sight.answers, metrics.LOG_DOWN._value.get()))
    assert seen == [(True, 0), (False, 1), (True, 0)]


class Silent(MemoryLog):
    """Takes the question, and never answers."""

    async def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


async def test_a_log_that_answers_nothing_at_all_is_missed_too() -> None:
    sight = LogInSight(Silent(), "delivery.status")
    async with asyncio.timeout(20):
        await sight.look()
    assert not sight.answers
