"""Goal: whoever waits for a digest goes in exactly one, with all who came before its window ended, whatever the order
in which the log tells of them.
"""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from streams.digest_groups import MOST_MEMBERS, Gathered, Groups

WINDOW_MS = 300
FOR_EVER = 10**9


class Waits(NamedTuple):
    hold_id: bytes
    gathered: Gathered


def waits(number: int, held_at_ms: int, group: str = "ada", window_ms: int = WINDOW_MS) -> Waits:
    return Waits(b"%d" % number, Gathered(group.encode(), held_at_ms + window_ms, held_at_ms))


def holding(members: Sequence[Waits]) -> Groups:
    groups = Groups()
    for member in members:
        groups.add(member)
    return groups


def let_go(groups: Groups, now_ms: int = FOR_EVER, most: int = 10_000) -> list[list[Waits]]:
    """What goes out, look by look, until nothing is due any more."""
    gone: list[list[Waits]] = []
    while windows := groups.due(now_ms, most):
        for window in windows:
            for member in window:
                groups.remove(member)
            gone.append([member for member in window if isinstance(member, Waits)])
    return gone


def by_hand(members: Sequence[Waits]) -> list[list[Waits]]:
    """The windows of one group as one would lay them on a table: the first to end takes whoever is there by then."""
    left, windows = sorted(members, key=lambda one: (one.gathered.held_at_ms, one.hold_id)), []
    while left:
        ends_ms = min(one.gathered.due_ms for one in left)
        windows.append([one for one in left if one.gathered.held_at_ms <= ends_ms])
        left = [one for one in left if one not in windows[-1]]
    return windows


MOMENTS = st.lists(
    st.tuples(st.integers(0, 2_000), st.sampled_from(["ada", "bea"]), st.sampled_from([100, WINDOW_MS])), max_size=30
)


@given(MOMENTS, st.randoms(use_true_random=False), st.integers(1, 10))
def test_everybody_goes_once_and_the_windows_are_the_same_in_whatever_order_the_log_tells(
    moments: list[tuple[int, str, int]], rng: object, most: int
) -> None:
    members = [waits(number, at_ms, group, long) for number, (at_ms, group, long) in enumerate(moments)]
    shuffled = list(members)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    found = let_go(holding(shuffled), most=most)
    for group in (b"ada", b"bea"):
        own = [member for member in members if member.gathered.group == group]
        assert [window for window in found if window[0].gathered.group == group] == by_hand(own)
    assert sorted(itertools.chain(*found)) == sorted(members)


@given(MOMENTS)
def test_nobody_waits_longer_than_a_window_nor_goes_before_its_first_one_waited_so_long(
    moments: list[tuple[int, str, int]],
) -> None:
    """Looked at every 10 ms."""
    groups = Groups()
    coming = sorted(waits(number, at_ms, group) for number, (at_ms, group, _) in enumerate(moments))
    for now_ms in range(0, 2_400, 10):
        for member in [one for one in coming if now_ms - 10 < one.gathered.held_at_ms <= now_ms]:
            groups.add(member)
        for window in let_go(groups, now_ms):
            waited_ms = now_ms - min(member.gathered.held_at_ms for member in window)
            assert WINDOW_MS <= waited_ms < WINDOW_MS + 10
    assert len(groups) == 0


def test_five_of_the_same_second_go_out_as_one() -> None:
    """N47."""
    five = [waits(number, number * 200) for number in range(5)]
    groups = holding([waits(number, at_ms) for number, at_ms in enumerate(range(0, 250, 50))])
    assert groups.due(WINDOW_MS - 1, 100) == []
    assert [len(window) for window in let_go(groups, WINDOW_MS)] == [5]
    assert [len(window) for window in let_go(holding(five))] == [2, 2, 1], "who comes after its end opens the next"


def test_what_is_not_let_go_comes_up_again() -> None:
    groups = holding([waits(1, 0), waits(2, 1)])
    assert groups.due(FOR_EVER, 100) == groups.due(FOR_EVER, 100) != []


def test_a_look_takes_whole_windows_and_not_many_more_than_it_wants() -> None:
    groups = holding([waits(number, number // 3, f"user{number // 3}") for number in range(30)])
    assert [len(window) for window in groups.due(FOR_EVER, 4)] == [3, 3]


def test_more_than_a_digest_holds_go_in_several_right_behind_each_other() -> None:
    groups = holding([waits(number, number % 7) for number in range(MOST_MEMBERS + 5)])
    assert [len(window) for window in let_go(groups, WINDOW_MS + 6)] == [MOST_MEMBERS, 5]


def test_it_is_told_for_how_long_a_window_has_been_over() -> None:
    groups = holding([waits(1, 0), waits(2, 100, "bea")])
    assert [groups.overdue_ms(now_ms) for now_ms in (0, WINDOW_MS, WINDOW_MS + 40)] == [0, 0, 40]
    let_go(groups, WINDOW_MS)
    assert groups.overdue_ms(WINDOW_MS + 40) == 0


def test_a_group_that_comes_and_goes_leaves_nothing_behind() -> None:
    groups = Groups()
    tracemalloc.start()
    for turn in range(30_000):
        member = waits(1, turn)
        groups.add(member)
        groups.due(0, 1)
        groups.remove(member)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(groups) == 0
    assert kept < 500_000
