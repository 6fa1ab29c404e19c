"""The start count in a commit's metadata survives anything that may lie there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumers.loop import starts


@given(st.integers(0, 10**7), st.integers(0, 2**62))
def test_what_is_written_is_read_back(count: int, offset: int) -> None:
    assert starts.read(starts.running(count)).starts == min(count, 999_999)
    assert starts.read(starts.alone(count, offset)).alone == offset


@given(st.none() | st.text(max_size=60))
def test_foreign_metadata_counts_as_a_clean_end(metadata: str | None) -> None:
    assert starts.read(metadata) == starts.Past()


def test_a_clean_end_leaves_no_trace() -> None:
    assert starts.read(starts.CLEAN) == starts.Past(0, None)
