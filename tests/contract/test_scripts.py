"""The scripts of pace and breakers: their second body in memory against the real one in a real Redis.

Random histories on a clock of their own: the server runs the real text, only its question for the time is replaced.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from redis.asyncio import Redis

from consumers import breaker, limits, throttles
from deploy import redis_client
from schemas.trips import Epoch, Script
from streams import grants
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_redis import MemoryRedis

ASKED_TIME = "redis.call('TIME')"
STEPS = 150
Command = tuple[Script, tuple[Any, ...]]


class History:
    """The same commands to both bodies."""

    def __init__(self, client: Redis, key: str) -> None:
        self.clock = ManualClock()
        self.client = client
        self.key = key
        self.memory = MemoryRedis(self.clock, is_strict=True)

    async def both(self, script: Script, *args: Any) -> tuple[Any, Any]:
        """(what the real script answers, what the double does)."""
        now_ms = self.clock.now_ms()
        assert ASKED_TIME in script.source
        text = script.source.replace(ASKED_TIME, f"{{{now_ms // 1000}, {now_ms % 1000 * 1000}}}")
        touched = (self.key, f"{self.key}2") if script is throttles.NOTE else (self.key,)
        real = await self.client.eval(text, len(touched), *touched, *args)  # type: ignore[misc]
        return real, self.memory.run(script, touched, *args)

    async def stored(self, key: str) -> tuple[Any, Any]:
        return await self.client.hgetall(key), self.memory.reply("HGETALL", key)  # type: ignore[misc]


@pytest.fixture
async def history(redis_url: str, request: pytest.FixtureRequest) -> Any:
    client = redis_client.connect(redis_url, Epoch())
    key = f"{{scripts {request.node.name}}}"
    await client.delete(key, f"{key}2")
    yield History(client, key)
    await client.delete(key, f"{key}2")
    await client.aclose()


def tokens(rng: random.Random) -> Command:
    """Three workers of one provider ask for, hold and give back tokens."""
    worker = rng.choice(("a/bulk", "b/bulk", "c/transactional"))
    held, wanted = rng.choice((0, 0, 1, 3)), rng.choice((0, 1, 2, 10, 60))
    lane, rank = rng.choice(("push", "push", "sms")), 1_000_000 + rng.choice((0, 15, 30, 500))
    return limits.TAKE, (worker, worker[2:], held, wanted, 40.0, 20, 0.3, 200, lane, rank)


def throttled(rng: random.Random) -> Command:
    """The same, while the provider says now and then that it is too much."""
    if rng.random() < 0.7:
        return tokens(rng)
    slower, pause = int(rng.random() < 0.7), rng.choice((0, 0, 1_000, 20_000))
    told = [word for number in range(rng.choice((0, 1, 3))) for word in (f"r:{number}", rng.choice((500, 9_000)))]
    return throttles.NOTE, (slower, pause, *told)


def takes(rng: random.Random) -> Command:
    """Kept for ever: the server's own clock, by which keys end, does not move with ours."""
    return grants.TAKE, (rng.choice(("a", "b")), rng.randrange(40), 2**40)


def breaks(rng: random.Random) -> Command:
    """Calls, mostly failing, with probes of those that noticed the open breaker."""
    if rng.random() < 0.2:
        return breaker.PROBE, (3, 3_000)
    results = "".join(rng.choice("01112") for _ in range(rng.randrange(9)))
    probes = "".join(rng.choice("0001") for _ in range(rng.choice((0, 0, 3))))
    hold, calls = int(rng.random() < 0.05), len(results) + len(probes)
    return breaker.RECORD, (results, probes, hold, 20, 8, 2_000, 8_000, 8_000, 3, calls, rng.randrange(calls + 1))


@pytest.mark.parametrize("drawn", [tokens, throttled, takes, breaks])
@pytest.mark.parametrize("seed", range(3))
async def test_the_double_answers_and_keeps_what_the_script_does(history: History, drawn: Any, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(STEPS):
        history.clock.advance(rng.choice((0, 1, 7, 40, 300, 2_500, 30_000)))
        if rng.random() < 0.05:
            history.clock.jump(-rng.choice((3, 2_000, 3_600_000)))
        script, args = drawn(rng)
        real, double = await history.both(script, *args)
        assert _plain(double) == _plain(real), (script.source.splitlines()[0], args)
    for key in (history.key, f"{history.key}2"):
        real, double = await history.stored(key)
        assert double == real


def _plain(reply: Any) -> Any:
    return list(reply) if isinstance(reply, (list, tuple)) else reply
