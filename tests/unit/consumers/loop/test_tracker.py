"""The low watermark: never past unfinished work, always as far as the work is finished."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from consumers.loop.tracker import Tracker
from schemas.records import Record


def record(offset: int, value: bytes = b"v") -> Record:
    return Record("lane", 0, offset, None, value, (), offset * 10)


def tracker_with(*offsets: int, start: int = 0) -> Tracker:
    tracker = Tracker("lane", 0, start)
    tracker.receive([record(offset) for offset in offsets])
    return tracker


@given(st.sets(st.integers(0, 60), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_the_watermark_is_the_lowest_unfinished_offset_whatever_the_order(offsets: set[int], rng: Random) -> None:
    """Gaps between received offsets (compaction, markers) count as done."""
    ordered = sorted(offsets)
    tracker = tracker_with(*ordered)
    shuffled = list(ordered)
    rng.shuffle(shuffled)
    unfinished = set(ordered)
    for offset in shuffled:
        tracker.finish(offset)
        unfinished.remove(offset)
        assert tracker.watermark == min(unfinished, default=ordered[-1] + 1)
        assert tracker.done_above == sum(1 for o in ordered if o not in unfinished and o > tracker.watermark)
        assert tracker.unfinished == len(unfinished)


def test_an_idle_partition_stays_where_it_began() -> None:
    assert Tracker("lane", 0, 17).watermark == 17


def test_a_slow_record_keeps_the_watermark_while_others_finish() -> None:
    tracker = tracker_with(5, 6, 7, start=5)
    tracker.finish(6)
    tracker.finish(7)
    assert (tracker.watermark, tracker.done_above) == (5, 2)
    tracker.finish(5)
    assert (tracker.watermark, tracker.done_above) == (8, 0)


def test_the_age_shown_is_that_of_the_oldest_unfinished_record() -> None:
    tracker = tracker_with(1, 2)
    tracker.finish(1)
    assert tracker.oldest_ms() == 20
    tracker.finish(2)
    assert tracker.oldest_ms() is None


def test_nothing_is_kept_of_a_partition_that_was_taken_away() -> None:
    tracker = tracker_with(1, 2, 3)
    tracker.finish(2)
    tracker.die()
    assert (len(tracker.pending), tracker.unfinished, tracker.done_above) == (0, 0, 0)
