"""The engine on a log in memory passes the tests that the engine on Kafka does: its side to the log is to be trusted.

The tests are those of `tests/integration/engine`; only the bench is another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from consumers.engine import Engine
from consumers.loop.options import KafkaOptions
from retry_topics.dead_letters import DeadLetters
from schemas.clock import SystemClock
from schemas.gaps import Gap
from schemas.records import Done, Handler, LogReader, Publisher, Record
from schemas.topics import Topics
from tests.conftest import CreateTopics
from tests.doubles.memory_engine import MemoryEngine, MemorySide
from tests.doubles.memory_groups import Membership, MemoryGroups
from tests.doubles.memory_log import MemoryLog
from tests.integration.engine.bench import Bench, Told, running
from tests.integration.engine.test_engine import (
    test_a_slow_record_keeps_the_commit_below_it_while_others_go_on,
    test_one_answer_too_large_for_the_log_takes_none_of_the_others_down,
    test_poison_is_parked_byte_for_byte_and_the_lane_keeps_moving,
    test_the_commit_never_passes_what_is_not_published_yet,
    test_what_is_done_is_committed_and_not_handled_again,
)
from tests.integration.engine.test_rebalance import (
    test_a_hanging_record_is_given_up_in_time_and_comes_again_elsewhere,
    test_a_second_worker_in_the_middle_loses_nothing_and_doubles_nothing,
)

__all__ = [
    "test_a_hanging_record_is_given_up_in_time_and_comes_again_elsewhere",
    "test_a_second_worker_in_the_middle_loses_nothing_and_doubles_nothing",
    "test_a_slow_record_keeps_the_commit_below_it_while_others_go_on",
    "test_one_answer_too_large_for_the_log_takes_none_of_the_others_down",
    "test_poison_is_parked_byte_for_byte_and_the_lane_keeps_moving",
    "test_the_commit_never_passes_what_is_not_published_yet",
    "test_what_is_done_is_committed_and_not_handled_again",
]


@dataclass
class MemoryBench(Bench):
    """members: those that joined so far."""

    log: MemoryLog = field(default_factory=MemoryLog)
    groups: MemoryGroups = field(init=False)
    members: list[Membership] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.groups = MemoryGroups(self.log.partitions_of)

    def engine(
        self,
        handler: Handler,
        publisher: Publisher | None = None,
        reader: LogReader | None = None,
        gap: Gap = lambda name: None,
        **changes: object,
    ) -> Engine:
        options = replace(self.options, **changes)  # type: ignore[arg-type]
        park = DeadLetters(self.topics, self.clock).parked
        to_the_log: Publisher = publisher or self.log

        def side(kafka: KafkaOptions) -> MemorySide:
            return MemorySide(self.log, self.groups, kafka, self.clock, gap, joined=self.members.append)

        return MemoryEngine(handler, to_the_log, options, park, side, rng=Random(1), clock=self.clock, reader=reader)

    async def committed(self) -> list[int]:
        await asyncio.sleep(0.005)  # others get their turn between two looks
        group = self.groups.offsets(self.group)
        return [at.offset if (at := group.get((self.topic, number))) else -1001 for number in range(self.partitions)]

    async def read_all(self, topic: str, partition: int = 0) -> list[Record]:
        return self.log.records(topic)


@pytest.fixture
def bench() -> MemoryBench:
    topics, log = Topics("memory."), MemoryLog()
    topic = topics.lane("push", "bulk")
    group = topics.group("work push.bulk")
    return MemoryBench({}, log, topics, topic, group, 2, SystemClock(), log)  # type: ignore[arg-type]


@pytest.fixture
def create_topics() -> CreateTopics:
    """All topics exist."""
    nothing: Callable[..., Any] = lambda *specs, partitions=1: None  # noqa: E731
    return nothing


async def test_whoever_falls_silent_loses_its_partitions_and_commits_nothing_more(bench: MemoryBench) -> None:
    """What the broker does when a session runs out; on Kafka a process that stands still shows it (`tests/kills`)."""
    await bench.write(b"1", b"2")
    first, second = Told(lambda record: None), Told()
    async with running(bench.engine(first)):
        await first.until_got(2)
        bench.members[0].silent()
        async with running(bench.engine(second)):
            await second.until_got(1)
            for answer in list(first.open.values()):
                answer(Done())
    assert not bench.members[0].commit({})
