"""Deferred records: earliest first, never early, and within a bound of memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.loop.deferred import REREAD_AHEAD_MS, Deferred, DeferredOptions
from consumers.loop.tracker import Tracker
from schemas.errors import Transient
from schemas.records import Outgoing, Recall, Record
from tests.doubles.memory_log import MemoryLog

NOW = 1_000_000


def record(offset: int) -> Record:
    return Record("tier", 0, offset, None, b"value", (), 0)


async def filled(log: MemoryLog, count: int) -> list[Record]:
    await log.publish([Outgoing("tier", None, b"%d" % n, partition=0) for n in range(count)])
    return log.records("tier")


@given(st.lists(st.integers(0, 1_000), max_size=50), st.integers(0, 1_000))
def test_exactly_what_is_due_comes_out_earliest_first(dues: list[int], now: int) -> None:
    deferred, tracker = Deferred(DeferredOptions()), Tracker("tier", 0, 0)
    for offset, due in enumerate(dues):
        deferred.add(tracker, record(offset), due)
    out = [dues[taken.offset] for _, taken in deferred.take_due(now)]
    assert out == sorted(due for due in dues if due <= now)
    assert tracker.deferred == len(deferred) == sum(due > now for due in dues)
    assert deferred.next_due_ms() == min((due for due in dues if due > now), default=None)


def test_it_is_full_at_its_bound_and_takes_more_only_as_records_leave() -> None:
    deferred, tracker = Deferred(DeferredOptions(records=2)), Tracker("tier", 0, 0)
    deferred.add(tracker, record(0), NOW)
    fullness = [deferred.full]
    deferred.add(tracker, record(1), NOW)
    fullness.append(deferred.full)
    deferred.take_due(NOW)
    assert [*fullness, deferred.full] == [False, True, False]


def test_the_bound_counts_bytes_as_well() -> None:
    deferred = Deferred(DeferredOptions(bytes=1_000))
    deferred.add(Tracker("tier", 0, 0), Record("tier", 0, 0, None, b"x" * 700, (), 0), NOW)
    assert deferred.full


async def test_beyond_the_bound_only_places_are_kept_and_their_records_are_read_again_before_they_are_due() -> None:
    log = MemoryLog()
    tracker = Tracker("tier", 0, 0)
    deferred = Deferred(DeferredOptions(records=2), log)
    records = await filled(log, 6)
    for each in records:
        deferred.add(tracker, each, NOW + each.offset)
    assert not deferred.full
    early = NOW - REREAD_AHEAD_MS - 1
    assert not deferred.needs_reading(early)
    assert deferred.needs_reading(NOW)
    assert await deferred.read_again(NOW) == []
    assert [taken for _, taken in deferred.take_due(NOW + 5)] == records
    assert (len(deferred), tracker.deferred) == (0, 0)


async def test_a_record_that_left_the_log_meanwhile_is_named() -> None:
    log = MemoryLog()
    tracker = Tracker("tier", 0, 0)
    deferred = Deferred(DeferredOptions(records=0), log)
    for each in await filled(log, 4):
        deferred.add(tracker, each, NOW)
    log.expire("tier", 0, 3)
    assert await deferred.read_again(NOW) == [(tracker, 0), (tracker, 1), (tracker, 2)]
    assert [taken.offset for _, taken in deferred.take_due(NOW)] == [3]


async def test_nothing_is_forgotten_while_the_log_cannot_be_read() -> None:
    log = MemoryLog()
    deferred = Deferred(DeferredOptions(records=0), log)
    for each in await filled(log, 3):
        deferred.add(Tracker("tier", 0, 0), each, NOW)
    log.fail = True
    with pytest.raises(Transient):
        await deferred.read_again(NOW)
    log.fail = False
    assert await deferred.read_again(NOW) == []
    assert len(deferred.take_due(NOW)) == 3


def test_nothing_is_kept_of_partitions_that_were_taken_away() -> None:
    deferred, lost, kept = Deferred(DeferredOptions()), Tracker("tier", 0, 0), Tracker("tier", 1, 0)
    for tracker in (lost, kept, lost):
        deferred.add(tracker, record(0), NOW)
    lost.die()
    deferred.forget([lost])
    assert [tracker for tracker, _ in deferred.take_due(NOW)] == [kept]


def test_what_is_recalled_comes_at_once_and_before_what_is_due() -> None:
    told: list[str] = []
    deferred, tracker = Deferred(DeferredOptions(), on_recall=lambda: told.append("recalled")), Tracker("tier", 0, 0)
    recalls = [Recall() for _ in range(4)]
    for offset, recall in enumerate(recalls):
        deferred.add(tracker, record(offset), NOW + 30_000 - offset, recall)
    deferred.add(tracker, record(9), NOW)
    recalls[1].sooner()
    recalls[2].sooner()
    assert told
    assert [taken.offset for _, taken in deferred.take_due(NOW)] == [1, 2, 9]
    assert [recall.is_over for recall in recalls] == [False, True, True, False]
    assert tracker.deferred == len(deferred) == 2
    assert [taken.offset for _, taken in deferred.take_due(NOW + 30_000)] == [3, 0]
    assert all(recall.is_over for recall in recalls)


def test_one_recalled_before_it_is_kept_comes_at_once() -> None:
    deferred, recall = Deferred(DeferredOptions()), Recall()
    recall.sooner()
    deferred.add(Tracker("tier", 0, 0), record(0), NOW + 30_000, recall)
    assert len(deferred.take_due(NOW)) == 1


def test_a_recall_is_over_once_the_partition_is_gone_or_only_the_place_is_kept() -> None:
    tracker, recalls = Tracker("tier", 0, 0), [Recall(), Recall()]
    deferred = Deferred(DeferredOptions(records=1), MemoryLog())
    for offset, recall in enumerate(recalls):
        deferred.add(tracker, record(offset), NOW, recall)
    assert [recall.is_over for recall in recalls] == [False, True]
    deferred.forget([tracker])
    assert recalls[0].is_over
