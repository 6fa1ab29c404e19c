"""How many recipients of a campaign stand where: sums of what its rows' slots say, never increments of events.

A vector covers one campaign in one status partition. It is rebuilt from the rows on assignment and then moved
by the difference each changed slot makes; what is published are absolute numbers.
"""

from __future__ import annotations

from collections import Counter

from schemas import rows, slots, states
from schemas.messages import CampaignProgress
from schemas.slots import Tally

_HAS_REASON = (states.FAILED, states.SUPPRESSED, states.CANCELLED, states.EXPIRED)
NOTHING = Tally()


class Vector:
    """Counts of one campaign in one partition."""

    def __init__(self) -> None:
        self.planned = 0
        self.finished = 0
        self.sent = 0
        self.delivered = 0
        self.doubled = 0
        self._outcomes: Counter[tuple[int, int]] = Counter()

    def move(self, before: Tally, after: Tally) -> None:
        """A slot that stood at `before` now stands at `after`."""
        self._add(before, -1)
        self._add(after, 1)

    def add_row(self, row: rows.Row) -> None:
        for slot in row.slots():
            self._add(slots.tally(slot), 1)

    def progress(self, tenant: str, campaign_id: str, partition: int, version: int) -> CampaignProgress:
        """The counts as they are published."""
        outcomes: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        for (kind, reason), number in self._outcomes.items():
            outcomes[states.STATES[kind]] += number
            if reason and kind in _HAS_REASON:
                reasons[states.REASON_TEXTS[reason]] += number
        return CampaignProgress(
            tenant,
            campaign_id,
            partition,
            version,
            self.planned,
            self.finished,
            self.sent,
            self.delivered,
            {state: number for state, number in outcomes.items() if number},
            {reason: number for reason, number in reasons.items() if number},
            self.doubled,
        )

    def _add(self, tally: Tally, sign: int) -> None:
        planned, sent, delivered, outcome, reason, doubled = tally
        self.planned += sign * planned
        self.sent += sign * sent
        self.delivered += sign * delivered
        self.doubled += sign * doubled
        if outcome:
            self.finished += sign
            self._outcomes[outcome, reason] += sign
