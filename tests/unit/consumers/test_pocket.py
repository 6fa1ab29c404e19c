"""A token is the right to one call for a moment only: a pocket that slept must not spend what is someone else's now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from consumers.limits import LimitOptions, Pocket, Rate
from schemas.messages import Priority
from schemas.trips import Script, Trip
from tests.doubles.manual_clock import ManualClock


class Generous:
    """A bucket that grants whatever is wanted, once it is open."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()

    def begin(self) -> Trip:
        return _Grant(self.open)


class _Grant:
    def __init__(self, open_: asyncio.Event) -> None:
        self._wanted = 0
        self._open = open_

    def execute_command(self, *args: Any) -> None:
        raise NotImplementedError("a pocket asks by its script alone")

    def run(self, script: Script, touched: Sequence[str | bytes], *args: Any) -> None:
        self._wanted = args[3]

    async def execute(self) -> list[Any]:
        await self._open.wait()
        return [[self._wanted, 0]]


async def test_a_token_that_is_too_old_makes_no_call() -> None:
    clock = ManualClock()
    pocket = Pocket(Generous(), clock, "gateway", Rate(100, 20), Priority.BULK, "w1", LimitOptions(token_life_s=0.2))
    fresh, old = await pocket.take(2, wait_s=0)
    clock.advance(150)
    assert pocket.spend(fresh)
    clock.advance(60)
    assert not pocket.spend(old)
    await pocket.close()


async def test_a_token_that_is_too_old_is_not_handed_out() -> None:
    clock = ManualClock()
    pocket = Pocket(Generous(), clock, "gateway", Rate(100, 20), Priority.BULK, "w1", LimitOptions(token_life_s=0.2))
    old = (await pocket.take(1, wait_s=0))[0]
    pocket.give_back(old)
    clock.advance(200)
    (fresh,) = await pocket.take(1, wait_s=0)
    assert fresh is not old and pocket.spend(fresh)
    await pocket.close()


async def test_what_lies_longest_in_the_lane_gets_the_next_tokens_whoever_asked_first() -> None:
    bucket, order = Generous(), list[int]()
    bucket.open.clear()
    pocket = Pocket(bucket, ManualClock(), "gateway", Rate(100, 20), Priority.BULK, "w1", LimitOptions())

    async def batch(written_ms: int) -> None:
        await pocket.take(1, wait_s=5, rank=written_ms)
        order.append(written_ms)

    async with asyncio.timeout(5), asyncio.TaskGroup() as batches:
        for written_ms in (90, 30, 10, 20):
            batches.create_task(batch(written_ms))
        await asyncio.sleep(0)  # the first asks the bucket; the others wait
        bucket.open.set()
    assert order == [90, 10, 20, 30]
    await pocket.close()


class Slow:
    """A bucket whose every answer takes a while: what it grants is dead when it comes."""

    def __init__(self, clock: ManualClock, takes_ms: int) -> None:
        self._clock = clock
        self._takes_ms = takes_ms
        self.asked = 0

    def begin(self) -> Trip:
        return _SlowGrant(self)

    def answered(self) -> None:
        self.asked += 1
        assert self.asked < 100, "asked for ever"
        self._clock.advance(self._takes_ms)


class _SlowGrant(_Grant):
    def __init__(self, bucket: Slow) -> None:
        super().__init__(asyncio.Event())
        self._open.set()
        self._bucket = bucket

    async def execute(self) -> list[Any]:
        self._bucket.answered()
        return await super().execute()


async def test_while_redis_is_slow_nobody_waits_longer_for_a_token_than_they_said() -> None:
    clock = ManualClock()
    began_s, bucket = clock.steady_s(), Slow(clock, takes_ms=300)
    pocket = Pocket(bucket, clock, "gateway", Rate(100, 20), Priority.BULK, "w1", LimitOptions(token_life_s=0.2))
    assert await pocket.take(1, wait_s=0.5) == []
    assert bucket.asked == 2
    assert clock.steady_s() - began_s == pytest.approx(0.6), "at most the answer on its way more"
    await pocket.close()
