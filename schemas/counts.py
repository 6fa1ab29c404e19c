"""How many recipients of a campaign stand where: sums of what slots say, never increments of events.

Each row keeps the vector of its own slots; the vector of a campaign in one status partition is the sum over its
rows, rebuilt on assignment and then moved as rows change. What is published are absolute numbers.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from schemas import states
from schemas.messages import CampaignProgress
from schemas.slots import Tally

PACKED_PAIRS_MAX = 100
"""Different (outcome, reason) pairs that a row keeps counts of; a row with more is counted slot by slot."""
_UNPACKED = 255
_HAS_REASON = (states.FAILED, states.SUPPRESSED, states.CANCELLED, states.EXPIRED)
_HEAD = struct.Struct("<BBBHB")


class Vector:
    """Counts of one row, or of one campaign in one partition. outcomes: by (kind, reason) codes."""

    def __init__(self) -> None:
        self.planned = 0
        self.sent = 0
        self.delivered = 0
        self.doubled = 0
        self.outcomes: Counter[tuple[int, int]] = Counter()

    def move(self, before: Tally, after: Tally) -> None:
        """A slot that stood at `before` now stands at `after`."""
        if before == after:
            return
        self.planned += after.planned - before.planned
        self.sent += after.sent - before.sent
        self.delivered += after.delivered - before.delivered
        self.doubled += after.doubled - before.doubled
        if before.outcome:
            self.outcomes[before.outcome, before.reason] -= 1
        if after.outcome:
            self.outcomes[after.outcome, after.reason] += 1

    def add(self, other: Vector, sign: int = 1) -> None:
        """Adds (or with sign -1 takes away) all of another vector."""
        self.planned += sign * other.planned
        self.sent += sign * other.sent
        self.delivered += sign * other.delivered
        self.doubled += sign * other.doubled
        for pair, number in other.outcomes.items():
            self.outcomes[pair] += sign * number

    def copy(self) -> Vector:
        same = Vector()
        same.add(self)
        return same

    def progress(self, tenant: str, campaign_id: str, partition: int, version: int) -> CampaignProgress:
        """The counts as they are published."""
        outcomes: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        for (kind, reason), number in self.outcomes.items():
            if number:
                outcomes[states.STATES[kind]] += number
            if number and reason and kind in _HAS_REASON:
                reasons[states.REASON_TEXTS[reason]] += number
        return CampaignProgress(
            tenant,
            campaign_id,
            partition,
            version,
            self.planned,
            self.outcomes.total(),
            self.sent,
            self.delivered,
            dict(outcomes),
            dict(reasons),
            self.doubled,
        )

    def pack(self) -> bytes:
        """The bytes of a row's counts, the same for the same content."""
        pairs = sorted((pair, number) for pair, number in self.outcomes.items() if number)
        doubled = min(self.doubled, 65_535)
        if len(pairs) > PACKED_PAIRS_MAX or doubled != self.doubled:
            return _HEAD.pack(0, 0, 0, 0, _UNPACKED)
        head = _HEAD.pack(self.planned, self.sent, self.delivered, doubled, len(pairs))
        return head + bytes(byte for (kind, reason), number in pairs for byte in (kind, reason, number))

    @staticmethod
    def unpack(raw: bytes, at: int) -> tuple[Vector | None, int]:
        """(the vector packed at this place, where it ends); None when it did not fit there."""
        vector = Vector()
        vector.planned, vector.sent, vector.delivered, vector.doubled, pairs = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        if pairs == _UNPACKED:
            return None, at
        for place in range(at, at + 3 * pairs, 3):
            vector.outcomes[raw[place], raw[place + 1]] = raw[place + 2]
        return vector, at + 3 * pairs


@dataclass(frozen=True, slots=True)
class Totals:
    """A campaign's recipients by what became of them, over all status partitions. planned: those that have a plan."""

    planned: int = 0
    finished: int = 0
    sent: int = 0
    delivered: int = 0
    possible_duplicates: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)


def totals(vectors: Collection[CampaignProgress]) -> Totals:
    """The sum of the partitions' newest vectors."""
    return Totals(
        planned=sum(vector.planned for vector in vectors),
        finished=sum(vector.finished for vector in vectors),
        sent=sum(vector.sent for vector in vectors),
        delivered=sum(vector.delivered for vector in vectors),
        possible_duplicates=sum(vector.possible_duplicates for vector in vectors),
        outcomes=_summed(vector.outcomes for vector in vectors),
        reasons=_summed(vector.reasons for vector in vectors),
    )


def _summed(vectors: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for vector in vectors:
        total.update(vector)
    return dict(total)
