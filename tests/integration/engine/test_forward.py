"""Tiers on a real broker: each record goes on at its time, however many wait and whatever fits in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from consumers.loop.deferred import DeferredOptions
from retry_topics.forwarder import NOT_BEFORE, Forwarder
from schemas.records import Outgoing, Record
from streams.log_reader import KafkaLogReader
from tests.conftest import CreateTopics
from tests.integration.engine.bench import Bench, running

WAITING = 400


@pytest.mark.parametrize("kept", [5_000, 20], ids=["all in memory", "most as places only"])
async def test_waiting_records_go_on_at_their_time_and_unchanged(
    bench: Bench, create_topics: CreateTopics, kept: int
) -> None:
    tier, lane = bench.topics.tier("push", "bulk", "10s"), bench.topic
    create_topics(tier, partitions=2)
    start_ms = bench.clock.now_ms()
    dues = [start_ms + 1_500 + (n * 7919) % 3_000 for n in range(WAITING)]
    await bench.publisher.publish(
        [
            Outgoing(tier, b"k%d" % n, b"\x00%d" % n, ((NOT_BEFORE, b"%d" % due), ("x", b"y")))
            for n, due in enumerate(dues)
        ]
    )
    reader = KafkaLogReader(bench.kafka)
    options = replace(bench.options.kafka, topics=(tier,), group=bench.topics.group("forward"))
    deferred = DeferredOptions(records=kept)
    forwarder = Forwarder(bench.topics, bench.clock)
    async with running(bench.engine(forwarder, reader=reader, kafka=options, deferred=deferred)):
        forwarded = await all_of(bench, lane)
    await reader.close()
    assert sorted(record.value or b"" for record in forwarded) == sorted(b"\x00%d" % n for n in range(WAITING))
    for record in forwarded:
        assert record.value is not None
        due_ms = dues[int(record.value[1:])]
        assert record.header("x") == b"y"
        assert due_ms <= record.timestamp_ms <= due_ms + 2_000


async def all_of(bench: Bench, topic: str) -> list[Record]:
    """What arrives, once all of it has."""
    reader = KafkaLogReader(bench.kafka)
    async with asyncio.timeout(30):
        while True:
            ends = [(await reader.offsets(topic, partition))[1] for partition in range(bench.partitions)]
            if sum(ends) >= WAITING:
                break
    await reader.close()
    return [record for partition in (0, 1) for record in await bench.read_all(topic, partition)]
