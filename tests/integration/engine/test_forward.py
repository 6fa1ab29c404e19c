"""Tiers on a real broker: each record goes on at its time, however many wait and whatever fits in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from consumers.loop.deferred import DeferredOptions
from consumers.loop.handout import HandoutOptions
from retry_topics.forwarder import NOT_BEFORE, Forwarder, read_behind_ms
from schemas.records import Outgoing, Record
from schemas.topics import TIERS
from streams.log_reader import KafkaLogReader
from tests.conftest import CreateTopics
from tests.integration.engine.bench import Bench, running

WAITING = 400
SHORT_TIERS = {"10s": 1_000, "1m": 12_000, "10m": 60_000}


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
        forwarded = await all_of(bench, lane, WAITING)
    await reader.close()
    assert sorted(record.value or b"" for record in forwarded) == sorted(b"\x00%d" % n for n in range(WAITING))
    for record in forwarded:
        assert record.value is not None
        due_ms = dues[int(record.value[1:])]
        assert record.header("x") == b"y"
        assert due_ms <= record.timestamp_ms <= due_ms + 2_000


@pytest.mark.long
async def test_a_record_goes_on_at_its_time_although_its_partition_changed_hands_before(
    bench: Bench, create_topics: CreateTopics
) -> None:
    """K10: both wait, paused; a second process comes and goes, and the first goes on with what it had before."""
    tier = bench.topics.tier("push", "bulk", "1m")
    create_topics(tier, partitions=2)
    due_ms = bench.clock.now_ms() + 8_000
    headers = ((NOT_BEFORE, b"%d" % due_ms),)
    await bench.publisher.publish([Outgoing(tier, b"k", b"%d" % n, headers, partition=n) for n in (0, 1)])
    options = waiting_room(bench, (tier,), SHORT_TIERS)
    async with running(bench.engine(Forwarder(bench.topics, bench.clock, SHORT_TIERS), **options)) as first:
        await first.signals.reached("deferred", 2)
        async with running(bench.engine(Forwarder(bench.topics, bench.clock, SHORT_TIERS), **options)) as second:
            await second.signals.reached("deferred")
        await first.signals.reached("assigned", 2)
        forwarded = await all_of(bench, bench.topic, 2)
    assert len(forwarded) == 2
    assert all(due_ms <= record.timestamp_ms <= due_ms + 2_000 for record in forwarded)


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("bench", [4], indirect=True)
async def test_five_hundred_records_due_within_a_minute_are_never_early_and_hardly_late(
    bench: Bench, create_topics: CreateTopics
) -> None:
    """K14: each in the tier of its wait, with the waits of production."""
    tiers = {name: bench.topics.tier("push", "bulk", name) for name in ("10s", "1m")}
    for tier in tiers.values():
        create_topics(tier, partitions=4)
    options = waiting_room(bench, tuple(tiers.values()), TIERS)
    async with running(bench.engine(Forwarder(bench.topics, bench.clock), **options)):
        start_ms = bench.clock.now_ms()
        dues = [start_ms + 60_000 * (n + 1) // 500 for n in range(500)]
        await bench.publisher.publish(
            [
                Outgoing(tiers["10s" if n < 83 else "1m"], b"k%d" % n, b"%d" % n, ((NOT_BEFORE, b"%d" % due),))
                for n, due in enumerate(dues)
            ]
        )
        forwarded = await all_of(bench, bench.topic, 500, within_s=100)
    late_ms = sorted(record.timestamp_ms - dues[int(record.value or b"")] for record in forwarded)
    assert len(late_ms) == 500
    assert late_ms[0] >= 0
    assert late_ms[494] <= 1_000


def waiting_room(bench: Bench, topics: tuple[str, ...], tiers: Mapping[str, int]) -> dict[str, Any]:
    """Options of an engine that waits as `tidings forward` does."""
    return {
        "kafka": replace(bench.options.kafka, topics=topics, group=bench.topics.group("forward")),
        "handout": HandoutOptions(read_behind_ms=read_behind_ms(bench.topics, tiers)),
    }


async def all_of(bench: Bench, topic: str, count: int, within_s: float = 30) -> list[Record]:
    """What arrives, once all of it has."""
    reader = KafkaLogReader(bench.kafka)
    async with asyncio.timeout(within_s):
        while True:
            ends = [(await reader.offsets(topic, partition))[1] for partition in range(bench.partitions)]
            if sum(ends) >= count:
                break
            await asyncio.sleep(0.1)
    await reader.close()
    return [record for partition in range(bench.partitions) for record in await bench.read_all(topic, partition)]
