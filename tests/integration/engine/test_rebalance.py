"""Partitions that change hands: nothing is lost, nothing done is done again, waiting records keep their time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient

from schemas.records import Answer, Defer, Done, Record
from tests.integration.engine.bench import Bench, Told, eventually, running

LEAVES_S = 3.0


async def test_a_second_worker_in_the_middle_loses_nothing_and_doubles_nothing(bench: Bench) -> None:
    """Work begun is finished and committed before its partition goes."""

    async def later(handler: Told) -> None:
        while True:
            await asyncio.sleep(0.02)
            for place in list(handler.open)[:5]:
                handler.open.pop(place)(Done())

    await bench.write(*(b"%d" % n for n in range(1_500)))
    first, second = Told(lambda record: None), Told(lambda record: None)
    async with running(bench.engine(first)):
        await first.until_got(200)
        working = [asyncio.create_task(later(handler)) for handler in (first, second)]
        async with running(bench.engine(second)):
            await bench.committed_reaches([750, 750])
    for task in working:
        task.cancel()
    times = Counter(first.places() + second.places())
    assert set(times) == {(partition, offset) for partition in (0, 1) for offset in range(750)}
    assert second.got, "the second worker had its share"
    assert max(times.values()) == 1


async def test_a_hanging_record_is_given_up_in_time_and_comes_again_elsewhere(bench: Bench) -> None:
    await bench.write(b"hangs", b"hangs")
    first, second = Told(lambda record: None), Told()
    async with running(bench.engine(first, kafka=bench.impatient())):
        await first.until_got(2)
        async with running(bench.engine(second)):
            await second.until_got(1)
            late = next(answer for place, answer in first.open.items() if place == second.places()[0])
            late(Done())  # too late: it belongs to the other one now


async def test_a_waiting_record_keeps_its_time_through_rebalances(bench: Bench) -> None:
    """A second worker joins and leaves before the record is due."""
    clock = bench.clock
    due_ms = clock.now_ms() + 4_000
    done_at_ms: list[int] = []

    def reply(record: Record) -> Answer:
        if clock.now_ms() < due_ms:
            return Defer(due_ms)
        done_at_ms.append(clock.now_ms())
        return Done()

    await bench.write(b"later", b"later")
    first, second = Told(reply), Told(reply)
    async with running(bench.engine(first)) as engine:
        await engine.signals.reached("deferred", 2)
        async with running(bench.engine(second)):
            await second.until_got(1)
        await engine.signals.reached("assigned", 2)
        await bench.committed_reaches([1, 1])
    assert len(done_at_ms) == 2
    assert all(due_ms <= at_ms <= due_ms + 2_000 for at_ms in done_at_ms)


async def test_a_worker_gets_nothing_more_of_a_partition_that_it_has_given_away(bench: Bench) -> None:
    """K20: records come all the time, and partitions change hands in the middle of reading them."""
    stopping = asyncio.Event()

    async def write() -> int:
        rounds = 0
        while not stopping.is_set():
            await bench.write(*(b"%d" % n for n in range(100)))
            rounds += 1
        return rounds

    first, second = Told(), Told()
    async with running(bench.engine(first)):
        writing = asyncio.create_task(write())
        for _ in range(3):
            got = len(second.got)
            async with running(bench.engine(second)):
                await second.until_got(got + 200)
        stopping.set()
        written = 50 * await writing
        await bench.committed_reaches([written, written])
    times = Counter(first.places() + second.places())
    assert set(times) == {(partition, offset) for partition in (0, 1) for offset in range(written)}
    assert max(times.values()) == 1, "both worked on one record"


@pytest.mark.long
async def test_work_that_takes_longer_than_the_poll_limit_keeps_its_partitions(bench: Bench) -> None:
    """K15: everything in flight hangs, and nothing more may be read."""
    limit_s = 6.5
    await bench.write(*(b"%d" % n for n in range(400)))
    handler = Told(lambda record: None)
    kafka = replace(bench.options.kafka, max_poll_interval_s=limit_s)
    async with running(bench.engine(handler, kafka=kafka)) as engine:
        await handler.until_got(200)
        await asyncio.sleep(limit_s + 1.5)
        handler.reply = lambda record: Done()
        for late in list(handler.open.values()):
            late(Done())
        await bench.committed_reaches([200, 200])
        assert (engine.signals.counts["assigned"], engine.signals.counts["revoked"]) == (1, 0)
    assert len(handler.got) == 400


@pytest.mark.parametrize("times", [pytest.param(5), pytest.param(30, marks=pytest.mark.timeout(300))])
@pytest.mark.long
async def test_an_idle_lane_commits_nothing_beyond_its_end(bench: Bench, times: int) -> None:
    """K18: one record, many rebalances."""
    await bench.write(b"only", partition=0)
    handler = Told()
    async with running(bench.engine(handler)):
        for _ in range(times):
            async with running(bench.engine(handler)):
                pass
    assert await bench.committed() == [1, 0]
    assert handler.places() == [(0, 0)]


@pytest.mark.long
async def test_a_pause_does_not_outlive_its_assignment(bench: Bench) -> None:
    """A partition given away while it was paused is read again when it comes back."""
    await bench.write(*(b"%d" % n for n in range(4_000)), partition=0)
    stuck = Told(lambda record: None)
    async with running(bench.engine(stuck, kafka=bench.impatient())) as engine:
        await eventually(lambda: any(tracker.pause_cause for tracker in engine.trackers))
        async with running(bench.engine(Told(lambda record: None), kafka=bench.impatient())):
            pass
        await engine.signals.reached("assigned", 2)
        stuck.reply = lambda record: Done()
        for answer in list(stuck.open.values()):
            answer(Done())
        await bench.committed_reaches([4_000, 0])


async def test_a_worker_without_a_partition_leaves_the_group_when_it_is_stopped(bench: Bench) -> None:
    """A member that stays until its session ends holds up the next rebalance, and all commits with it."""
    admin = AdminClient(dict(bench.kafka))

    assert bench.options.kafka.session_timeout_s > LEAVES_S
    engines = [bench.engine(Told()) for _ in range(bench.partitions + 1)]
    async with contextlib.AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(running(engine))
        await eventually(lambda: sorted(len(engine.trackers) for engine in engines) == [0] + bench.partitions * [1])
        await _members_are(bench, admin, bench.partitions + 1)
        await next(engine for engine in engines if not engine.trackers).stop()
        async with asyncio.timeout(LEAVES_S):
            await _members_are(bench, admin, bench.partitions)


async def _members_are(bench: Bench, admin: AdminClient, count: int) -> None:
    """Returns once the broker says so, which it tells only to those who ask."""

    def members() -> int:
        return len(admin.describe_consumer_groups([bench.group])[bench.group].result().members)

    while await asyncio.to_thread(members) != count:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
