"""Bulk singles that wait for their pace: none is looked at before there is a token for it, the oldest go first.

`route bulk` puts a planned single here when there is no token for it, and answers the engine that it waits. While
somebody waits, tokens are asked for a few times a second, in one question per (tenant, lane) for all of them; for
each that can be paid one single is recalled, read and planned once more, and finds its tokens put aside. So waiting
costs nothing, however many wait, and dispatch hears how many they are.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import NamedTuple

from schemas.clock import Clock
from schemas.errors import StoreDown
from schemas.records import Recall, Record
from streams.grants import Flow, Purse

log = logging.getLogger(__name__)

ASK_FIRST_S, ASK_LAST_S = 0.1, 0.3
"""Tokens are asked for after a pause between these. By chance: of several processes none is always the first."""
KEPT_ASIDE_S = 10.0
"""Tokens of a single that was recalled and does not come (its partition went to somebody else) are used again."""
SHARED_MOST = 250
"""So many tokens of a lane are asked for, at most, for singles that need another lane too. That one may be slow, and
what is held here for nothing would come at once when others of this lane come."""

Flows = tuple[Flow, ...]
"""What a single needs: a token for each of its deliveries."""


class Place(NamedTuple):
    """Which record, in the order of age."""

    written_ms: int
    topic: str
    partition: int
    offset: int


def place(record: Record) -> Place:
    return Place(record.timestamp_ms, record.topic, record.partition, record.offset)


_Line = list[tuple[Place, Recall]]
"""Singles that need the same, oldest first."""


class SinglesQueue:
    """The waiting singles of one `route bulk`. `run` goes on beside its engine."""

    def __init__(self, purse: Purse, clock: Clock, rng: Random) -> None:
        self._purse = purse
        self._clock = clock
        self._rng = rng
        self._lines: dict[Flows, _Line] = {}
        self._aside: dict[Place, tuple[Flows, float]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._somebody = asyncio.Event()

    async def run(self) -> None:
        """Recalls those for whom there are tokens, for ever."""
        while True:
            await self._somebody.wait()
            await asyncio.sleep(self._rng.uniform(ASK_FIRST_S, ASK_LAST_S))
            try:
                await self._ask()
            except StoreDown as error:
                log.warning("grants.ask_failed", extra={"error": str(error)})

    async def admit(self, asking: Mapping[Place, Flows], in_hand: Iterable[Place]) -> dict[Place, Recall]:
        """Those of asking that have to wait, and how they are recalled; the others have spent their tokens and may go.

        in_hand: all that came together, also those that need nothing now: what lies aside for them is used again.
        Older ones that wait have the first turn. Raises StoreDown; what lies aside then goes on lying there.
        """
        in_hand = frozenset(in_hand)
        async with self._one_at_a_time:
            self._drop_gone(in_hand)
            fresh = [flows for where, flows in asking.items() if where not in self._aside]
            named = {flow for flows in fresh for flow in flows}
            await self._purse.fill({flow: count for flow, count in self._wanted(fresh).items() if flow in named})
            paid = self._paid(asking, in_hand)
            recalls = {where: Recall() for where in asking if where not in paid}
            for where, recall in recalls.items():
                insort(self._lines.setdefault(asking[where], []), (where, recall), key=_age)
            self._serve()
            return {where: recall for where, recall in recalls.items() if self._aside.pop(where, None) is None}

    async def _ask(self) -> None:
        """For all that wait; a last time when nobody does any more, so that their wish does not stay."""
        async with self._one_at_a_time:
            self._drop_gone(frozenset())
            await self._purse.fill(self._wanted(()))
            self._serve()
            self._lines = {flows: line for flows, line in self._lines.items() if line}
            if not self._lines and not self._aside:
                self._somebody.clear()

    def _drop_gone(self, in_hand: frozenset[Place]) -> None:
        """Whoever came by themselves, or is somebody else's now, waits here no more."""
        for flows, line in self._lines.items():
            self._lines[flows] = [one for one in line if not one[1].is_over and one[0] not in in_hand]
        lost_s = self._clock.steady_s() - KEPT_ASIDE_S
        lost = [where for where, (_, since_s) in self._aside.items() if since_s < lost_s and where not in in_hand]
        for where in lost:
            self._purse.put_back(self._aside.pop(where)[0])

    def _wanted(self, fresh: Iterable[Flows]) -> dict[Flow, int]:
        """Tokens needed by these and by all that wait; 0 where nobody waits any more."""
        needed = Counter(fresh)
        for flows, line in self._lines.items():
            needed[flows] += len(line)
        alone: Counter[Flow] = Counter()
        shared: Counter[Flow] = Counter()
        for flows, count in needed.items():
            for flow in flows:
                (shared if len(set(flows)) > 1 else alone)[flow] += count
        return {flow: alone[flow] + min(shared[flow], SHARED_MOST) for flow in {**alone, **shared}}

    def _paid(self, asking: Mapping[Place, Flows], in_hand: frozenset[Place]) -> set[Place]:
        """Those for whom enough lay aside. What lay there for one that needs it no more is back in the purse."""
        paid = set()
        for where in [where for where in self._aside if where in in_hand]:
            self._purse.put_back(self._aside.pop(where)[0])
            if where in asking and self._purse.spend(asking[where]):
                paid.add(where)
        return paid

    def _serve(self) -> None:
        """Puts tokens aside, oldest first, and recalls whom they are for.

        The oldest of those who need several, and for whom there are only some, keeps these from the younger: it would
        wait for ever beside many that need only one.
        """
        kept: list[Flow] = []
        served: Counter[Flows] = Counter()
        heads = [(line[0][0], flows) for flows, line in self._lines.items() if line]
        heapq.heapify(heads)
        while heads:
            where, flows = heapq.heappop(heads)
            line, at = self._lines[flows], served[flows]
            if line[at][1].is_over or self._pay(where, flows, line[at][1]):
                served[flows] += 1
                if at + 1 < len(line):
                    heapq.heappush(heads, (line[at + 1][0], flows))
            else:
                kept += self._purse.set_aside(flows)
        self._purse.put_back(kept)
        for flows, count in served.items():
            del self._lines[flows][:count]
        if self._aside or any(self._lines.values()):
            self._somebody.set()

    def _pay(self, where: Place, flows: Flows, recall: Recall) -> bool:
        if not self._purse.spend(flows):
            return False
        self._aside[where] = flows, self._clock.steady_s()
        recall.sooner()
        return True


def _age(one: tuple[Place, Recall]) -> Place:
    return one[0]
