"""Consumer groups over a log in memory: who reads which partition, and from where. Rebalances come when told.

As the broker does it for cooperative members: a partition that moves is first given up by its owner, then handed to
the next one; only a member whose session ran out loses its partitions without being asked, and its commits are
refused from then on. Contract: `tests/contract/test_engine_in_memory.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

Place = tuple[str, int]
"""Topic and partition."""


class Committed(NamedTuple):
    offset: int
    metadata: str = ""


class Reader(Protocol):
    """What a member is told, on its own event loop."""

    def assigned(self, places: Sequence[Place]) -> None: ...

    def revoked(self, places: Sequence[Place]) -> None:
        """To be given up: finish what was begun, commit, then call `Membership.release`."""
        ...

    def lost(self, places: Sequence[Place]) -> None:
        """Taken away already; nothing can be committed any more."""
        ...


@dataclass(eq=False, slots=True)
class Membership:
    """One member. owned: what is its own; asked: of that, what it was told to give up."""

    group: _Group
    reader: Reader
    instance: str
    context: contextvars.Context
    owned: set[Place] = field(default_factory=set)
    asked: set[Place] = field(default_factory=set)
    is_in: bool = True

    def release(self, places: Iterable[Place]) -> None:
        """These are given up."""
        self.group.release(self, places)

    def leave(self) -> None:
        """Everything is given up, for good."""
        self.group.leave(self)

    def silent(self) -> None:
        """The session ran out without a sign of life: others get its partitions."""
        self.group.evict(self)

    def committed(self, place: Place) -> Committed | None:
        return self.group.offsets.get(place)

    def commit(self, offsets: Mapping[Place, Committed]) -> bool:
        """Whether the group took them; it takes nothing from who is not its member, and only what is the member's."""
        if not self.is_in:
            return False
        self.group.offsets.update({place: at for place, at in offsets.items() if place in self.owned})
        return True


class MemoryGroups:
    """All groups of one log. partitions_of: how many a topic has. shuffled orders members before each assignment."""

    def __init__(
        self, partitions_of: Callable[[str], int], shuffled: Callable[[list[Membership]], None] = lambda members: None
    ) -> None:
        self._partitions_of = partitions_of
        self._groups: dict[str, _Group] = {}
        self._shuffled = shuffled

    def join(self, group: str, topics: Sequence[str], reader: Reader, instance: str = "") -> Membership:
        """A new member; with the fixed name of one that is there, it takes that one's place at once."""
        places = [(topic, number) for topic in topics for number in range(self._partitions_of(topic))]
        found = self._groups.setdefault(group, _Group(places, self._shuffled))
        return found.join(reader, instance)

    def names(self) -> list[str]:
        return list(self._groups)

    def offsets(self, group: str) -> Mapping[Place, Committed]:
        """What was committed."""
        return self._groups[group].offsets

    def behind(self, end: Callable[[str, int], int]) -> list[Place]:
        """Where not all before the end is committed, of all groups but those that never commit anything."""
        return [place for group in self._groups.values() for place in group.behind(end)]

    def rebalance(self, group: str) -> None:
        """Partitions move among the members that are there."""
        self._groups[group].assign(afresh=True)

    def rewind(self, group: str, offset: int = 0) -> None:
        """Everything is read again from this offset on, by whoever is assigned next."""
        found = self._groups[group]
        found.offsets = {place: Committed(offset) for place in found.offsets}


class _Group:
    def __init__(self, places: Sequence[Place], shuffled: Callable[[list[Membership]], None]) -> None:
        self._places = places
        self._shuffled = shuffled
        self._wanted: dict[Place, Membership] = {}
        self.members: list[Membership] = []
        self.offsets: dict[Place, Committed] = {}

    def behind(self, end: Callable[[str, int], int]) -> list[Place]:
        if not self.offsets:
            return []
        return [place for place in self._places if self.offsets.get(place, Committed(0)).offset < end(*place)]

    def join(self, reader: Reader, instance: str) -> Membership:
        member = Membership(self, reader, instance, contextvars.copy_context())
        before = next((one for one in self.members if instance and one.instance == instance), None)
        self.members.append(member)
        if before is not None:
            self._wanted = {place: member if owner is before else owner for place, owner in self._wanted.items()}
            self._drop(before)
            self._hand_out()
        else:
            self.assign()
        return member

    def release(self, member: Membership, places: Iterable[Place]) -> None:
        member.owned.difference_update(places)
        member.asked.difference_update(places)
        self._hand_out()

    def leave(self, member: Membership) -> None:
        member.owned.clear()
        self._gone(member)

    def evict(self, member: Membership) -> None:
        if member.is_in:
            self._gone(member)

    def assign(self, *, afresh: bool = False) -> None:
        """Evenly, and as far as possible as it was, unless afresh."""
        if not self.members:
            self._wanted = {}
            return
        order = list(self.members)
        self._shuffled(order)
        most = -(-len(self._places) // len(order))
        share: dict[int, int] = defaultdict(int)
        wanted: dict[Place, Membership] = {}
        for place in self._places:
            owner = self._wanted.get(place)
            if not afresh and owner is not None and owner.is_in and share[id(owner)] < most:
                wanted[place] = owner
                share[id(owner)] += 1
        for place in self._places:
            if place not in wanted:
                owner = min(order, key=lambda member: share[id(member)])
                wanted[place] = owner
                share[id(owner)] += 1
        self._wanted = wanted
        self._ask_back()
        self._hand_out()

    def _ask_back(self) -> None:
        for member in self.members:
            back = [p for p in self._places if p in member.owned and self._wanted[p] is not member]
            back = [place for place in back if place not in member.asked]
            if back:
                member.asked.update(back)
                _tell(member, member.reader.revoked, back)

    def _hand_out(self) -> None:
        taken = {place for member in self.members for place in member.owned}
        fresh: dict[int, list[Place]] = defaultdict(list)
        for place, member in self._wanted.items():
            if place not in taken:
                member.owned.add(place)
                fresh[id(member)].append(place)
        for member in self.members:
            if id(member) in fresh:
                _tell(member, member.reader.assigned, fresh[id(member)])

    def _gone(self, member: Membership) -> None:
        self._drop(member)
        self.assign()

    def _drop(self, member: Membership) -> None:
        lost = [place for place in self._places if place in member.owned]
        member.is_in = False
        member.owned.clear()
        if member in self.members:
            self.members.remove(member)
        if lost:
            _tell(member, member.reader.lost, lost)


def _tell(member: Membership, method: Callable[[Sequence[Place]], None], places: Sequence[Place]) -> None:
    asyncio.get_running_loop().call_soon(method, places, context=member.context)
