"""Processes that are killed: what they had not committed comes again, and a record that kills is found and parked."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from deploy import children
from tests.conftest import CreateTopics
from tests.integration.engine.bench import PATIENCE_S, Bench, Told, running

ROOT = Path(__file__).resolve().parents[3]
SPAN = 5_000
"""Records between the oldest unfinished one and the newest taken: the engine's own limit."""
BATCH_AND_ASSIGNED = 501
LOOK_S = 0.02


class Worker:
    """An engine in a process of its own (engine_process.py)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def says(self, count: int) -> None:
        """Waits until it has printed so many lines."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while len(self.lines) < count and (line := await self.process.stdout.readline()):
                self.lines.append(line.decode().strip())

    async def stands_still(self, for_s: float) -> None:
        """Waits until it has printed nothing for so long."""
        assert self.process.stdout is not None
        while True:
            try:
                async with asyncio.timeout(for_s):
                    self.lines.append((await self.process.stdout.readline()).decode().strip())
            except TimeoutError:
                return

    async def ends(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode


@contextlib.asynccontextmanager
async def worker(bench: Bench) -> AsyncIterator[Worker]:
    arguments = (bench.kafka["bootstrap.servers"], bench.topics.prefix)
    process = await children.begin(
        sys.executable,
        "-m",
        "tests.integration.engine.engine_process",
        *arguments,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Worker(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.fixture
def out(bench: Bench, create_topics: CreateTopics) -> str:
    lane = bench.topics.lane("sms", "bulk")
    create_topics(lane)
    return lane


async def test_what_a_killed_worker_had_not_finished_is_done_by_the_next(bench: Bench, out: str) -> None:
    values = [b"%d" % n for n in range(300)]
    await bench.write(*values[:100], b"slow", b"slow", *values[100:])
    async with worker(bench) as first:
        await first.says(100)
        first.process.kill()
        await first.ends()
        assert sum(await bench.committed()) < 302
    async with worker(bench) as second:
        await bench.committed_reaches([151, 151])
        second.process.send_signal(signal.SIGTERM)
        assert await second.ends() == 0
    assert set(values) <= {record.value for record in await bench.read_all(out)}


@pytest.mark.long
async def test_a_record_that_kills_its_process_is_found_and_parked(bench: Bench, out: str) -> None:
    """It lies behind harmless ones of the same batch: those are done, and only it is parked."""
    values = [b"%d" % n for n in range(20)]
    await bench.write(*values[:12], b"kill", *values[12:], partition=0)
    codes: list[int] = []
    while len(codes) < 6:
        async with worker(bench) as process:
            ended = asyncio.create_task(process.ends())
            through = asyncio.create_task(bench.committed_reaches([21, 0]))
            await asyncio.wait([ended, through], return_when=asyncio.FIRST_COMPLETED)
            if through.done():
                ended.cancel()
                break
            through.cancel()
            codes.append(ended.result())
    assert codes == [9, 9, 9]
    (letter,) = await bench.read_all(bench.topics.dlq("push"))
    assert letter.value == b"kill"
    assert letter.header("tid-error-class") == b"crashes_worker"
    assert {record.value for record in await bench.read_all(out)} == set(values)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_million_records_behind_one_that_hangs_are_neither_read_nor_kept_in_memory(
    bench: Bench, out: str
) -> None:
    """K17."""
    await bench.write(b"hangs", partition=0)
    for _ in range(100):
        await bench.write(*(b"%0200d" % n for n in range(10_000)), partition=0)
    async with worker(bench) as process:
        await process.says(SPAN)
        settled_kb = peak_kb(process)
        await process.stands_still(10)
        assert len(process.lines) <= SPAN + BATCH_AND_ASSIGNED
        assert peak_kb(process) < settled_kb + 20_000 < 300_000
        assert await bench.committed() == [0, 0]
        await process.says(2 * SPAN)
        assert (await bench.committed())[0] > SPAN


def peak_kb(worker: Worker) -> int:
    """The most memory the process ever held."""
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


async def test_clean_stops_at_one_place_never_look_like_crashes(bench: Bench) -> None:
    await bench.write(b"waits", partition=0)
    for _ in range(5):
        async with running(bench.engine(Told(lambda record: None), kafka=bench.impatient())) as engine:
            assert all(tracker.alone_left == 0 for tracker in engine.trackers)


@pytest.mark.parametrize(
    "rounds", [pytest.param(1), pytest.param(20, marks=(pytest.mark.long, pytest.mark.timeout(900)))]
)
async def test_a_stop_in_the_middle_of_a_rebalance_ends_in_time_with_everything_committed(
    bench: Bench, out: str, rounds: int
) -> None:
    """K41."""
    for number in range(1, rounds + 1):
        await stopped_in_a_rebalance(bench, number)
    assert len(await bench.read_all(out)) == 40 * rounds, "nothing is left out, and nothing was done twice"


async def stopped_in_a_rebalance(bench: Bench, number: int) -> None:
    """Two workers, 40 records; one is told to stop just as the other joins."""
    await bench.write(*(b"slow" for _ in range(40)))
    async with worker(bench) as first:
        await first.says(2)
        async with worker(bench) as second:
            await until_it_rebalances(bench)
            first.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(15):
                assert await first.ends() == 0
            await bench.committed_reaches([20 * number, 20 * number])
            await second.says(1)
            second.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(15):
                assert await second.ends() == 0


async def until_it_rebalances(bench: Bench) -> None:
    """Asked again and again, as nobody announces it; it lasts until the first worker's next heartbeat."""
    admin = AdminClient(dict(bench.kafka))
    async with asyncio.timeout(PATIENCE_S):
        while True:
            described = admin.describe_consumer_groups([bench.group])[bench.group]
            group = await asyncio.to_thread(described.result)
            if group.state is ConsumerGroupState.PREPARING_REBALANCING:
                return
            await asyncio.sleep(LOOK_S)
