"""What a worker sends by itself while nobody can be asked: never above its part, over any time."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from consumers.limits import Rate
from consumers.local_rate import LocalTokens
from tests.doubles.manual_clock import ManualClock

WISHES = st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 50)), min_size=1, max_size=40)
"""(ms since the last wish, how many tokens) each."""


def taking(rate: Rate, share: float, wishes: list[tuple[int, int]]) -> list[tuple[float, int]]:
    """(seconds, tokens got) of each wish that does not wait."""
    clock = ManualClock()
    tokens = LocalTokens(rate, lambda: share, clock)

    async def take() -> list[tuple[float, int]]:
        taken = []
        for pause_ms, wanted in wishes:
            clock.advance(pause_ms)
            taken.append((clock.steady_s(), len(await tokens.take(wanted, 0))))
        return taken

    return asyncio.run(take())


@given(WISHES, st.floats(0.01, 1.0), st.integers(1, 500), st.integers(0, 100))
def test_in_no_window_more_than_its_part_of_the_rate_and_of_the_burst(
    wishes: list[tuple[int, int]], share: float, per_s: int, burst: int
) -> None:
    taken = taking(Rate(per_s, burst), share, wishes)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            seconds = taken[last][0] - taken[first][0]
            most = per_s * share * seconds + max(1.0, burst * share)
            assert sum(count for _, count in taken[first : last + 1]) <= most + 1e-6


def test_it_begins_empty_since_the_shared_bucket_may_have_been_used_up_a_moment_before() -> None:
    assert taking(Rate(100.0, 50), 1.0, [(0, 10), (100, 50)]) == [(1_000.0, 0), (1_000.1, 10)]


def test_a_worker_without_a_part_of_the_lane_sends_nothing() -> None:
    assert [count for _, count in taking(Rate(100.0, 50), 0.0, [(0, 1), (60_000, 1)])] == [0, 0]


def test_a_token_that_was_not_used_at_once_is_no_right_to_a_call_any_more() -> None:
    """Else all that waited for connections would go out together."""
    clock = ManualClock()
    tokens = LocalTokens(Rate(100.0, 10), lambda: 1.0, clock)

    async def spent() -> list[bool]:
        await tokens.take(1, 0)
        clock.advance(100)
        early, late = await tokens.take(2, 0)
        clock.advance(150)
        is_right = [tokens.spend(early)]
        clock.advance(100)
        return [*is_right, tokens.spend(late)]

    assert asyncio.run(spent()) == [True, False]


def test_what_was_not_used_goes_back() -> None:
    clock = ManualClock()
    tokens = LocalTokens(Rate(10.0, 10), lambda: 1.0, clock)

    async def again() -> int:
        await tokens.take(1, 0)
        clock.advance(500)
        got = await tokens.take(5, 0)
        for token in got:
            tokens.give_back(token)
        return len(await tokens.take(5, 0))

    assert asyncio.run(again()) == 5
