"""Caps and the marks of look-alikes in memory: same ports, same answers (`tests/contract/test_guards.py`)."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from consumers.caps import Place, Reserved
from consumers.lookalikes import WITHIN_MS, InTheWay, Mark, in_the_way
from schemas.clock import Clock
from schemas.trips import Trip
from tests.doubles.memory_claims import MemoryClaims


class MemoryCaps:
    """sets: key -> member -> end of its lease, infinite once it counts for good."""

    def __init__(self, held: MemoryClaims, clock: Clock) -> None:
        self.sets: defaultdict[str, dict[bytes, float]] = defaultdict(dict)
        self._held = held
        self._clock = clock

    def ask_reserve(self, trip: Trip, claim_key: bytes, token: bytes, place: Place) -> None:
        trip.execute_command(lambda: self._reserve(claim_key, token, place))

    def read_reserve(self, reply: Any, place: Place) -> Reserved:
        assert isinstance(reply, Reserved)
        return reply

    def ask_settle(self, trip: Trip, claim_key: bytes, token: bytes, place: Place, is_sent: bool) -> None:
        trip.execute_command(lambda: self._settle(claim_key, token, place, is_sent))

    def _reserve(self, claim_key: bytes, token: bytes, place: Place) -> Reserved:
        entry = self._held.entries.get(claim_key)
        if entry is None or entry.token != token:
            return Reserved(wait_ms=1)
        wait_ms = 0
        for cap in place.caps:
            groups = self._groups(cap.key, len(place.group))
            if place.group in groups or len(groups) < cap.most:
                continue
            if sum(ends == math.inf for ends in groups.values()) >= cap.most:
                return Reserved(full=cap)
            ends_ms = [ends for ends in self.sets[cap.key].values() if self._clock.now_ms() < ends < math.inf]
            wait_ms = max(wait_ms, int(min(ends_ms)) - self._clock.now_ms())
        if wait_ms:
            return Reserved(wait_ms=wait_ms)
        for cap in place.caps:
            there = self.sets[cap.key].get(place.member, entry.lease_end_ms)
            self.sets[cap.key][place.member] = there if there == entry.lease_end_ms else math.inf
        return Reserved()

    def _groups(self, key: str, length: int) -> dict[bytes, float]:
        """What counts once, infinite where it counts for good: sent, or its lease ran out."""
        found: dict[bytes, float] = {}
        for member, ends in self.sets[key].items():
            group = member[:length]
            found[group] = max(found.get(group, 0.0), math.inf if ends <= self._clock.now_ms() else ends)
        return found

    def _settle(self, claim_key: bytes, token: bytes, place: Place, is_sent: bool) -> int:
        entry = self._held.entries.get(claim_key)
        for cap in place.caps:
            if is_sent:
                self.sets[cap.key].update({place.member: math.inf} if place.member in self.sets[cap.key] else {})
            elif entry is not None and entry.token == token and self.sets[cap.key].get(place.member) != math.inf:
                self.sets[cap.key].pop(place.member, None)
        return 1


class MemoryLookalikes:
    """marks: key -> (value, when it ends)."""

    def __init__(self, held: MemoryClaims, clock: Clock) -> None:
        self.marks: dict[bytes, tuple[bytes, int]] = {}
        self._held = held
        self._clock = clock

    def ask_mark(self, trip: Trip, mark: Mark) -> None:
        trip.execute_command(lambda: self._mark(mark))

    def read_mark(self, reply: Any, mark: Mark) -> InTheWay | None:
        return in_the_way(reply, mark)

    def ask_sent(self, trip: Trip, mark: Mark) -> None:
        trip.execute_command(lambda: self._leave(mark))

    def ask_withdraw(self, trip: Trip, claim_key: bytes, token: bytes, mark: Mark) -> None:
        trip.execute_command(lambda: self._withdraw(claim_key, token, mark))

    def _mark(self, mark: Mark) -> bytes | None:
        there, ends_ms = self.marks.get(mark.key, (b"", 0))
        if self._clock.now_ms() < ends_ms:
            return there
        self._leave(mark)
        return None

    def _leave(self, mark: Mark) -> None:
        self.marks[mark.key] = (mark.value, self._clock.now_ms() + WITHIN_MS)

    def _withdraw(self, claim_key: bytes, token: bytes, mark: Mark) -> int:
        entry = self._held.entries.get(claim_key)
        if entry is None or entry.token != token or self.marks.get(mark.key, (b"", 0))[0] != mark.value:
            return 0
        del self.marks[mark.key]
        return 1
