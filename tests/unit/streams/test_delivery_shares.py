"""Goal: the alarm speaks of those who had their ten minutes, against the week before, when there are enough."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams import delivery_shares
from streams.delivery_shares import HOURS, Share, ShareOptions

OPTIONS = ShareOptions()
NOW_MS = 1_796_000_000_000
NOW = NOW_MS // 60_000
WEEK = {NOW // 60 - back: (1_000, 900) for back in range(1, HOURS + 40)}


def judged(sent: int, soon: int) -> Share:
    return delivery_shares.share({NOW - 15: (sent, soon)}, WEEK, NOW_MS, OPTIONS)


def test_a_share_below_four_fifths_of_the_usual_one_is_low_and_above_nine_tenths_well() -> None:
    assert [judged(1_000, soon).is_low(OPTIONS) for soon in (0, 719, 721, 1_000)] == [True, True, False, False]
    assert [judged(1_000, soon).is_well(OPTIONS) for soon in (719, 721, 809, 811)] == [False, False, False, True]


def test_with_few_messages_nothing_is_said() -> None:
    assert judged(199, 0) == Share(None, 0.9)
    assert judged(200, 0).is_low(OPTIONS)
    first_day = delivery_shares.share({NOW - 15: (500, 0)}, {NOW // 60 - 2: (199, 199)}, NOW_MS, OPTIONS)
    assert (first_day.usual, first_day.is_low(OPTIONS), first_day.is_well(OPTIONS)) == (None, False, False)


@given(st.dictionaries(st.integers(-40, 5), st.integers(0, 50)), st.integers(0, 59_999))
def test_only_minutes_that_are_over_for_ten_minutes_count(sent: dict[int, int], into_minute_ms: int) -> None:
    now_ms = NOW * 60_000 + into_minute_ms
    counts = {NOW + at: (count * 100, 0) for at, count in sent.items()}
    within = [at for at in counts if 10 * 60_000 <= now_ms - (at + 1) * 60_000 < 20 * 60_000]
    total = sum(counts[at][0] for at in within)
    found = delivery_shares.share(counts, {}, now_ms, OPTIONS)
    assert found.share == (0.0 if total >= OPTIONS.least else None)


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_the_hour_that_is_judged_does_not_count_as_usual_and_nothing_older_than_a_week_does(now: int, old: int) -> None:
    judged_hour = (NOW - 20) // 60
    usual = {judged_hour: (10_000, now), judged_hour - HOURS - 1: (10_000, old), judged_hour - HOURS: (1_000, 300)}
    assert delivery_shares.share({}, usual, NOW_MS, OPTIONS).usual == 0.3


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=10))
def test_a_share_is_never_above_one_whatever_a_crash_lost(counted: list[tuple[int, int]]) -> None:
    counts = {NOW - 20 + number: counts for number, counts in enumerate(counted)}
    share = delivery_shares.share(counts, {}, NOW_MS, OPTIONS).share
    assert share is None or 0 <= share <= 1
