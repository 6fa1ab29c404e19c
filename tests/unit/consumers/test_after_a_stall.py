"""What waited together for connections, through a stall of a resolver or a handshake, does not go out together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from consumers.limits import LimitOptions, Pocket, Rate
from schemas.messages import Priority
from schemas.records import Answer, Record
from schemas.trips import Script, Trip
from tests.doubles import deliveries
from tests.doubles.memory_redis import MemoryRedis
from tests.doubles.sender_bench import SenderBench

RATE = Rate(per_s=50, burst=20)
CALLS = 40
STALL_MS = 3_000


class Bucket:
    """Trips to the provider's bucket, and to nothing else."""

    def __init__(self, redis: MemoryRedis) -> None:
        self.redis = redis

    def begin(self) -> Trip:
        return _BucketTrip(self.redis)


class _BucketTrip:
    def __init__(self, redis: MemoryRedis) -> None:
        self._redis = redis
        self._replies: list[Any] = []

    def execute_command(self, *args: Any) -> None:
        self._replies.append(self._redis.reply(*args))

    def run(self, script: Script, touched: Sequence[str | bytes], *args: Any) -> None:
        self._replies.append(self._redis.run(script, touched, *args))

    async def execute(self) -> list[Any]:
        return self._replies


class Stalled:
    """A worker whose calls all wait for their connections; time passes only while it waits for tokens, or is told."""

    def __init__(self, folder: Path) -> None:
        self.bench = bench = SenderBench(folder)
        self.is_over = asyncio.Event()
        self.all_wait = asyncio.Event()
        self.reaching = 0
        self.answers: list[Answer] = []
        self.called_ms: list[int] = []
        bucket = Bucket(MemoryRedis(bench.clock, is_strict=True))
        self.pocket = Pocket(
            bucket, bench.clock, "gateway", RATE, Priority.TRANSACTIONAL, "w1", LimitOptions(), sleep=self.sleep
        )
        bench.tokens = self.pocket  # type: ignore[assignment]
        bench.provider.reaching = self.reach
        bench.gap = self.passed

    async def sleep(self, seconds: float) -> None:
        self.bench.clock.advance(seconds * 1000)
        await asyncio.sleep(0)

    async def reach(self) -> None:
        self.reaching += 1
        self.looked()
        await self.is_over.wait()

    def answer(self, record: Record, given: Answer) -> None:
        self.answers.append(given)
        self.looked()

    def looked(self) -> None:
        """Whoever got no token in time went back to the lane; the others are all there."""
        if self.reaching + len(self.answers) == CALLS:
            self.all_wait.set()

    async def passed(self, gap: str) -> None:
        if gap == "before_send":
            self.called_ms.append(self.bench.clock.now_ms())


async def test_after_a_stall_of_connections_calls_go_out_at_the_rate_and_not_all_at_once(tmp_path: Path) -> None:
    stalled = Stalled(tmp_path)
    bench = stalled.bench
    worker = bench.worker()
    async with asyncio.timeout(5):
        await worker.handle([bench.record(deliveries.single(event_id=f"e{n}")) for n in range(CALLS)], stalled.answer)
        await stalled.all_wait.wait()
        waited = stalled.reaching
        bench.clock.advance(STALL_MS)
        stalled.is_over.set()
        await worker.close()
    await stalled.pocket.close()
    assert waited > RATE.burst and len(stalled.called_ms) > RATE.burst
    for first, since_ms in enumerate(stalled.called_ms):
        for count, at_ms in enumerate(stalled.called_ms[first:], 1):
            assert count <= RATE.per_s * (at_ms - since_ms) / 1000 + RATE.burst
