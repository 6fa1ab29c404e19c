"""The start count in a commit's metadata survives anything that may lie there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from consumers.loop import assignment, starts
from consumers.loop.tracker import ALONE_RECORDS


@given(st.integers(0, 10**7), st.integers(0, 2**62))
def test_what_is_written_is_read_back(count: int, offset: int) -> None:
    assert starts.read(starts.running(count)).starts == min(count, 999_999)
    assert starts.read(starts.alone(count, offset)).alone == offset


@given(st.none() | st.text(max_size=60))
def test_foreign_metadata_counts_as_a_clean_end(metadata: str | None) -> None:
    assert starts.read(metadata) == starts.Past()


def test_a_clean_end_leaves_no_trace() -> None:
    assert starts.read(starts.CLEAN) == starts.Past(0, None)


class Group:
    """A consumer whose group committed at 7 with this metadata, of a partition that ends at `end`."""

    def __init__(self, metadata: str, end: int) -> None:
        self._metadata = metadata
        self._ends = {OFFSET_BEGINNING: 0, OFFSET_END: end}

    def committed(self, places: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition(place.topic, place.partition, 7, self._metadata) for place in places]

    def offsets_for_times(self, places: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition(place.topic, place.partition, self._ends[place.offset]) for place in places]


@pytest.mark.parametrize(("end", "found", "alone"), [(7, 1, 0), (8, 3, ALONE_RECORDS)])
def test_deaths_over_other_partitions_cast_no_suspicion_on_one_where_nothing_lay(
    end: int, found: int, alone: int
) -> None:
    group = Group(starts.running(2), end)
    [tracker] = assignment.begin(group, group, [TopicPartition("push.transactional", 2)], strict_offsets=True)
    assert (tracker.watermark, tracker.starts, tracker.alone_left) == (7, found, alone)
