"""The script that hands out money: its second body in memory against the real one in a real Redis."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from consumers import spend
from tests.doubles.memory_money import MemoryMoney

BUDGET = 250_000_000


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()


@pytest.mark.parametrize("seed", range(3))
async def test_the_double_answers_and_keeps_what_the_script_does(redis: Redis, seed: int) -> None:
    """Workers draw, give back, and sometimes know more than an account that was lost."""
    rng, memory, key = random.Random(seed), MemoryMoney(), f"{{spend test {seed}}}"
    await redis.delete(key)
    seen = [0, 0]
    for _ in range(200):
        if rng.random() < 0.03:
            await redis.delete(key)
            memory.accounts.clear()
        wanted = rng.choice((0, 50_000, 2_500_000))
        least = rng.choice((0, 50_000, 700_001)) if wanted else 0
        returned = 0 if wanted else rng.choice((0, 1, 1_234_567))
        words = (BUDGET, max(wanted, least), least, *rng.choice((seen, (0, 0))), returned, 60_000)
        real = await redis.eval(spend.DRAW.source, 1, key, *words)  # type: ignore[misc]
        assert real == memory.draw(key, *words)
        seen = real[1:]
    stored = await redis.hgetall(key)  # type: ignore[misc]
    assert {name.decode(): int(value) for name, value in stored.items()} == memory.accounts[key]
    assert 0 < await redis.pttl(key) <= 60_000
    await redis.delete(key)
