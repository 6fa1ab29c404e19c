"""What waited together for connections, through a stall of a resolver or a handshake, does not go out together."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from consumers.lane_worker import LaneWorker
from consumers.limits import LimitOptions, Pocket, Rate
from consumers.local_rate import LocalTokens
from schemas.messages import Priority, Snapshot
from schemas.policies import WhenRedisIsDown
from schemas.records import Answer, Record
from tests.doubles import deliveries
from tests.doubles.campaign_road import StoredTrips
from tests.doubles.memory_redis import MemoryRedis
from tests.doubles.sender_bench import SenderBench

RATE = Rate(per_s=50, burst=20)
CALLS = 40
STALL_MS = 3_000


class Stalled:
    """A worker whose calls all wait for their connections; time passes only while it waits for tokens, or is told."""

    def __init__(self, folder: Path) -> None:
        self.bench = bench = SenderBench(folder)
        self.is_over = asyncio.Event()
        self.all_wait = asyncio.Event()
        self.reaching = 0
        self.answers: list[Answer] = []
        self.called_s: list[float] = []
        bucket = StoredTrips(MemoryRedis(bench.clock, is_strict=True))
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
            self.called_s.append(self.bench.clock.steady_s())

    async def send(self, worker: LaneWorker) -> None:
        """Its calls wait through the stall, and go out after it."""
        snapshot = Snapshot(self.bench.clock.now_ms(), "+4930123456")
        sent = [deliveries.single(event_id=f"e{number}", snapshot=snapshot) for number in range(CALLS)]
        async with asyncio.timeout(5):
            await worker.handle([self.bench.record(one) for one in sent], self.answer)
            await self.all_wait.wait()
            assert self.reaching > RATE.burst
            self.bench.clock.advance(STALL_MS)
            self.is_over.set()
            await worker.close()
        await self.pocket.close()

    def assert_went_at_the_rate(self) -> None:
        assert len(self.called_s) > RATE.burst
        for first, since_s in enumerate(self.called_s):
            for count, at_s in enumerate(self.called_s[first:], 1):
                assert count <= RATE.per_s * (at_s - since_s) + RATE.burst + 1e-6


async def test_after_a_stall_of_connections_calls_go_out_at_the_rate_and_not_all_at_once(tmp_path: Path) -> None:
    stalled = Stalled(tmp_path)
    await stalled.send(stalled.bench.worker())
    stalled.assert_went_at_the_rate()


async def test_nor_do_those_that_a_worker_makes_by_itself_while_redis_is_away_too(tmp_path: Path) -> None:
    stalled = Stalled(tmp_path)
    bench, has_noticed = stalled.bench, asyncio.Event()
    bench.policy = replace(bench.policy, when_redis_is_down=WhenRedisIsDown.SEND)
    bench.alone = [LocalTokens(RATE, lambda: 1.0, bench.clock, stalled.sleep)]
    bench.trips.down = True
    worker = bench.worker()
    await worker.handle([bench.record(deliveries.single())], lambda record, answer: has_noticed.set())
    await has_noticed.wait()
    bench.clock.advance(2_000)
    await stalled.send(worker)
    stalled.assert_went_at_the_rate()
