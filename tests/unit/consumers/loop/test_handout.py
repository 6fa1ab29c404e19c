"""Which records go to the handler: due ones first, in batches worth a round trip, never more than may be in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, cast

import pytest

from consumers.loop.batches import Caller
from consumers.loop.deferred import Deferred, DeferredOptions
from consumers.loop.handout import Handout, HandoutOptions
from consumers.loop.kafka_side import KafkaSide
from consumers.loop.tracker import Tracker
from retry_topics.dead_letters import DeadLetters
from schemas.records import Answer, AnswerTo, Record
from schemas.topics import Topics
from tests.doubles.manual_clock import ManualClock


class Thread:
    """Stands in for the Kafka thread."""

    def give_room(self) -> None:
        pass


class Table:
    """A hand-out whose handler only notes what it is given."""

    def __init__(self, partitions: int = 1, **options: Any) -> None:
        self.clock = ManualClock()
        self.batches: list[list[tuple[int, int]]] = []
        self.given = asyncio.Event()
        self.broken: list[BaseException] = []
        park = DeadLetters(Topics(), self.clock).parked
        caller = Caller(self, "group", park, Random(1), self.clock, 30.0)
        self.deferred = Deferred(DeferredOptions(records=50))
        self.handout = Handout(
            HandoutOptions(**options),
            caller,
            self.deferred,
            cast(KafkaSide, Thread()),
            park,
            self.clock,
            self._answered,
            self.broken.append,
        )
        self.handout.trackers = [Tracker("tier", number, 0) for number in range(partitions)]

    async def handle(self, records: Sequence[Record], answer: AnswerTo) -> None:
        self.batches.append([(record.partition, record.offset) for record in records])
        self.given.set()

    def receive(self, partition: int, count: int, written_ms: int = 0) -> None:
        tracker = self.handout.trackers[partition]
        first = tracker.next_offset
        tracker.receive([Record("tier", partition, first + n, None, b"v", (), written_ms) for n in range(count)])

    async def handed_out(self) -> list[list[tuple[int, int]]]:
        self.handout.hand_out()
        await asyncio.sleep(0)
        assert not self.broken, self.broken
        return self.batches

    def finish(self, partition: int, count: int) -> None:
        for _ in range(count):
            self.handout.release(self.handout.trackers[partition])

    def _answered(self, tracker: Tracker, record: Record, answer: Answer) -> None:
        raise AssertionError("this handler answers nothing")


async def test_records_go_out_in_batches_up_to_what_may_be_in_flight() -> None:
    table = Table(batch=4, in_flight=10)
    table.receive(0, 30)
    assert [len(batch) for batch in await table.handed_out()] == [4, 4, 2]
    assert table.handout.in_flight == 10


async def test_a_full_house_waits_until_half_a_batch_fits_before_it_hands_out_again() -> None:
    table = Table(batch=4, in_flight=10)
    table.receive(0, 30)
    await table.handed_out()
    table.finish(0, 1)
    assert len(await table.handed_out()) == 3
    table.finish(0, 1)
    assert len((await table.handed_out())[3]) == 2


async def test_a_lone_record_goes_out_at_once() -> None:
    table = Table(batch=4, in_flight=10)
    table.receive(0, 1)
    assert await table.handed_out() == [[(0, 0)]]


async def test_partitions_take_turns_at_going_first() -> None:
    table = Table(partitions=2, batch=2, in_flight=4)
    table.receive(0, 10)
    table.receive(1, 10)
    batches = await table.handed_out()
    assert {batch[0][0] for batch in batches} == {0, 1}


async def test_what_was_written_together_to_several_partitions_is_handed_out_together() -> None:
    """Pages of a campaign: their status events then fill records of their own, instead of being scattered over many."""
    table = Table(partitions=4, batch=200, in_flight=800)
    for partition in (2, 0, 3, 1):
        for page in range(8):
            table.receive(partition, 25, written_ms=page)
    batches = await table.handed_out()
    pages = [{offset // 25 for _, offset in batch} for batch in batches]
    assert len(batches) == 4
    assert all(len(together) <= 4 for together in pages), pages


async def test_a_partition_whose_records_come_from_a_fast_clock_is_not_left_out() -> None:
    table = Table(partitions=2, batch=4, in_flight=8)
    table.receive(0, 100, written_ms=1_000)
    table.receive(1, 100, written_ms=9_000)
    assert {partition for batch in await table.handed_out() for partition, _ in batch} == {0, 1}


async def test_nothing_of_a_partition_that_is_going_away_is_handed_out() -> None:
    table = Table(partitions=2)
    table.receive(0, 1)
    table.receive(1, 1)
    table.handout.trackers[0].draining = True
    assert await table.handed_out() == [[(1, 0)]]


async def test_due_records_go_before_fresh_ones_and_fresh_ones_wait_while_the_waiting_room_is_full() -> None:
    table = Table()
    tracker = table.handout.trackers[0]
    now_ms = table.clock.now_ms()
    table.receive(0, 60)
    for _ in range(50):
        table.deferred.add(tracker, tracker.take(), now_ms + 1_000)
    assert await table.handed_out() == []
    table.clock.advance(1_000)
    (batch,) = await table.handed_out()
    assert [offset for _, offset in batch] == list(range(60))
    table.handout.close()


async def test_records_too_young_to_be_due_are_not_looked_at_yet() -> None:
    table = Table(read_behind_ms={"tier": 10_000})
    table.receive(0, 1, written_ms=table.clock.now_ms() - 9_999)
    assert await table.handed_out() == []
    table.clock.advance(1)
    assert await table.handed_out() == [[(0, 0)]]
    table.handout.close()


async def test_a_timer_that_fires_a_little_early_is_set_again() -> None:
    """An event loop may call a timer before its time, by its clock's resolution: here half a second."""
    table = Table()
    cast(Any, asyncio.get_running_loop())._clock_resolution = 0.5
    tracker = table.handout.trackers[0]
    table.receive(0, 1)
    table.deferred.add(tracker, tracker.take(), table.clock.now_ms() + 20)
    assert await table.handed_out() == []
    for _ in range(5):
        await asyncio.sleep(0.001)
    table.clock.advance(20)
    async with asyncio.timeout(5):
        await table.given.wait()
    assert table.batches == [[(0, 0)]]


async def test_nothing_is_forgotten_by_a_loop_whose_timers_do_not_tell_their_time() -> None:
    """As uvloop's for what is due at once: here every timer is."""
    table = Table(partitions=2, read_behind_ms={"tier": 10_000})
    loop = cast(Any, asyncio.get_running_loop())
    loop.call_at = lambda _, callback: loop.call_soon(callback)
    waiting, young = table.handout.trackers
    table.receive(0, 1)
    table.deferred.add(waiting, waiting.take(), table.clock.now_ms() + 20)
    table.receive(1, 1, written_ms=table.clock.now_ms() - 9_990)
    assert await table.handed_out() == []
    table.clock.advance(20)
    for _ in range(5):
        await asyncio.sleep(0)
    del loop.call_at
    assert (table.batches, table.broken, young.taken) == ([[(0, 0), (1, 0)]], [], 1)
    table.handout.close()


async def test_an_error_amid_handing_out_ends_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table()
    table.receive(0, 1)
    fault = RuntimeError("a bug")

    def give_room() -> None:
        raise fault

    monkeypatch.setattr(Thread, "give_room", staticmethod(give_room))
    table.handout.schedule()
    await asyncio.sleep(0)
    assert table.broken == [fault]
