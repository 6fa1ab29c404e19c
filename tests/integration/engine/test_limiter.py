"""A provider's rate, and partitions that change hands while their records wait for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from consumers import limits
from consumers.sending import WorkerOptions
from schemas import codec, keys
from schemas.messages import EventKind, StatusBatch
from tests.conftest import CreateTopics
from tests.integration.engine.bench import Bench, eventually, running
from tests.integration.test_lane_worker import RUN, Crew, fresh

SLOW = limits.Rate(12, 4)
PARTITION = 60


@pytest.fixture
async def crew(redis_url: str, tmp_path: Path) -> AsyncIterator[Crew]:
    async with Redis.from_url(redis_url) as client:
        before = await client.get(keys.REDIS_EPOCH)
        await client.set(keys.REDIS_EPOCH, RUN)
        yield Crew(client, tmp_path)
        await (client.delete(keys.REDIS_EPOCH) if before is None else client.set(keys.REDIS_EPOCH, before))


@pytest.mark.long
async def test_whoever_waits_for_the_rate_is_claimed_and_sent_once_although_their_partition_changes_hands(
    bench: Bench, crew: Crew, create_topics: CreateTopics
) -> None:
    """K21: nearly all wait for a token when the second worker comes, and nobody waits for them to get one."""
    create_topics(bench.topics.status)
    many = [fresh() for _ in range(2 * PARTITION)]
    await bench.write(*map(codec.encode, many))
    workers = [crew.worker(seed, rate=SLOW, options=WorkerOptions()) for seed in (1, 2)]
    calls = crew.provider.calls
    async with running(bench.engine(workers[0], kafka=bench.impatient())):
        await eventually(lambda: len(calls) > SLOW.burst)
        async with running(bench.engine(workers[1], kafka=bench.impatient())):
            assert len(calls) < PARTITION, "most of them waited when it came"
            await bench.committed_reaches([PARTITION, PARTITION])
    for worker in workers:
        await worker.close()
    assert Counter(call.user_id for call in calls) == Counter(one.user_id for one in many)
    told = [codec.decode(record.value, StatusBatch) for record in await bench.read_all(bench.topics.status)]
    assert [event.kind for batch in told for event in batch.events] == [EventKind.SENT] * len(many)
