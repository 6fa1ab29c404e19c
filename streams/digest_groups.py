"""Who waits for the same digest, and when its window ends: a part of the index in `streams/holds.py`.

A group is one user, template, channel and lane. Its first member opens a window, which ends when that member is due;
whoever was put into hold until then goes along, whoever came later opens the next one. Pure, and the same in whatever
order the records of `hold` come. Small: most groups of a campaign have one member.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from schemas import keys
from schemas.messages import Held
from schemas.reasons import Reason

MOST_MEMBERS = 1_000
"""Of one digest. Whoever comes after them in the same window goes in another one right behind it."""
DEAD_IN_HEAP = 1_000
"""So many more than live ones the heap may hold of windows that are gone."""


class Gathered(NamedTuple):
    """How something in hold waits for a digest. due_ms: when its window ends if it opened one; held_at_ms: when it was
    put in, never later than that.
    """

    group: bytes
    due_ms: int
    held_at_ms: int


class Member(Protocol):
    """What the index keeps of something held."""

    @property
    def hold_id(self) -> bytes: ...

    @property
    def gathered(self) -> Gathered | None: ...


def gathered(held: Held) -> Gathered | None:
    """None where it waits for something else, or is a digest itself."""
    one = held.delivery
    if held.reason != Reason.DIGEST or one is None or one.digest_of:
        return None
    group = keys.digest_group(one.tenant, one.user_id, one.template, one.channel, one.priority)
    return Gathered(group, max(held.due_ms, held.held_at_ms), held.held_at_ms)


class Groups:
    """All of them, by the ends of their windows."""

    def __init__(self) -> None:
        self._groups: dict[bytes, list[Member]] = {}
        self._ends: list[tuple[int, bytes]] = []
        self._changed: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, member: Member) -> None:
        group = _of(member).group
        self._groups.setdefault(group, []).append(member)
        self._changed.add(group)

    def remove(self, member: Member) -> None:
        """One that was added."""
        group = _of(member).group
        self._groups[group].remove(member)
        self._changed.add(group)
        if not self._groups[group]:
            del self._groups[group]

    def overdue_ms(self, now_ms: int) -> int:
        """For how long the window that ended first has been over; 0 where none is."""
        self._sort()
        return max(0, now_ms - self._ends[0][0]) if self._ends else 0

    def due(self, now_ms: int, most: int) -> list[list[Member]]:
        """The windows that are over, those that ended first first: at least one, if any is, and no more when they have
        so many members. Each is whole, up to MOST_MEMBERS. They come up again until their members are removed.
        """
        self._sort()
        found: dict[bytes, list[Member]] = {}
        passed: list[tuple[int, bytes]] = []
        while self._ends and self._ends[0][0] <= now_ms and most > 0:
            ends_ms, group = heapq.heappop(self._ends)
            if self._ends_ms(group) == ends_ms and group not in found:
                passed.append((ends_ms, group))
                found[group] = _inside(self._groups[group], ends_ms)
                most -= len(found[group])
        for entry in passed:
            heapq.heappush(self._ends, entry)
        return list(found.values())

    def _ends_ms(self, group: bytes) -> int | None:
        """When its window does; None where nobody waits in it."""
        members = self._groups.get(group)
        return min(_of(member).due_ms for member in members) if members else None

    def _sort(self) -> None:
        """Gives each group that changed its place; what is first afterwards is so still."""
        for group in self._changed:
            if (ends_ms := self._ends_ms(group)) is not None:
                heapq.heappush(self._ends, (ends_ms, group))
        self._changed.clear()
        if len(self._ends) > 2 * len(self._groups) + DEAD_IN_HEAP:
            self._ends = [(ends_ms, group) for group in self._groups if (ends_ms := self._ends_ms(group)) is not None]
            heapq.heapify(self._ends)
        while self._ends and self._ends_ms(self._ends[0][1]) != self._ends[0][0]:
            heapq.heappop(self._ends)


def _inside(members: Sequence[Member], ends_ms: int) -> list[Member]:
    """Who goes along with the window that ends then: first come, first served."""
    came = sorted([member for member in members if _of(member).held_at_ms <= ends_ms], key=_came)
    return came[:MOST_MEMBERS]


def _came(member: Member) -> tuple[int, bytes]:
    return _of(member).held_at_ms, member.hold_id


def _of(member: Member) -> Gathered:
    found = member.gathered
    assert found is not None, "only what waits for a digest is in a group"
    return found
