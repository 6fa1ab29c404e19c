"""One campaign as the log tells it: its request, orders, cursor and counts, and what follows from them.

Kept by `campaign_view.py`, shown by `api/campaign_answers.py`. Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas import forgetting, messages, standstill
from schemas.counts import Totals, totals
from schemas.given_orders import GivenOrders
from schemas.messages import CampaignOrder, CampaignStatus
from schemas.standstill import WaitsFor

SAMPLE_EVERY_MS = 500
SAMPLES_MAX = 40
"""20 s of progress."""


class First(NamedTuple):
    """What the first request of an id asked for: every later one is answered by it."""

    upload_id: str
    content_hash: str
    recipients: int


UNKNOWN = First("", "", 0)
"""Of an id that was used, by a request that the log does not hold any more: no other is the same as it."""


@dataclass(slots=True)
class Campaign:
    """One campaign as the log tells it; any part may still be missing.

    progress_ms: partition -> when its counts were told. heard_ms: when the newest record about it was written.
    """

    tenant: str
    campaign_id: str
    requested: messages.CampaignRequested | None = None
    state: messages.CampaignState | None = None
    cursor: messages.CampaignCursor | None = None
    orders: GivenOrders = field(default_factory=GivenOrders)
    progress: dict[int, messages.CampaignProgress] = field(default_factory=dict)
    progress_ms: dict[int, int] = field(default_factory=dict)
    heard_ms: int = 0
    samples: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))

    @property
    def is_known(self) -> bool:
        """Whether it was accepted, as opposed to a stray count of one that is long gone."""
        return self.requested is not None or self.state is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of it but its id."""
        return not (self.is_known or self.cursor or self.progress or self.orders)

    @property
    def is_cancelled(self) -> bool:
        return self.orders.is_cancelled

    @property
    def first(self) -> First | None:
        """What it was asked for; None while its request is not known."""
        asked = self.requested
        return None if asked is None else First(asked.upload_id, asked.content_hash, asked.recipients)

    @property
    def accepted_at_ms(self) -> int:
        if self.requested is not None:
            return self.requested.accepted_at_ms
        return self.state.accepted_at if self.state is not None else 0

    @property
    def expected(self) -> int:
        if self.requested is not None:
            return self.requested.recipients
        return self.state.expected if self.state is not None else 0

    @property
    def released(self) -> int:
        return max(
            self.cursor.released if self.cursor is not None else 0,
            self.state.released if self.state is not None else 0,
        )

    @property
    def finished_at_ms(self) -> int:
        """0 while it runs."""
        return (self.state.finished_at or 0) if self.state is not None else 0

    def counts(self) -> Totals:
        """The newest vectors summed; those of the public state once the partitions' own are gone."""
        state = self.state
        if self.progress or state is None:
            return totals(self.progress.values())
        return Totals(
            finished=state.finished,
            sent=state.sent,
            delivered=state.delivered,
            possible_duplicates=state.possible_duplicates,
            outcomes=state.outcomes,
            reasons=state.reasons,
        )

    def status(self, now_ms: int) -> CampaignStatus:
        """Dispatch's word where it has spoken; an order that it has not carried out yet counts at once."""
        if self.state is not None and self.state.finished_at:
            return self.state.status
        if self.is_cancelled:
            return CampaignStatus.CANCELLED
        if self.state is not None and self.state.status is CampaignStatus.EXPIRED:
            return CampaignStatus.EXPIRED
        if self.orders.is_paused:
            return CampaignStatus.PAUSED
        if self.state is not None and self.state.status is not CampaignStatus.PAUSED:
            return self.state.status
        return self._status_before_dispatch(now_ms)

    def objection(self, order: CampaignOrder, now_ms: int) -> str:
        """Why this order comes too late; "" when it may be given. One that changes nothing may always be given."""
        if order is CampaignOrder.CANCELLED:
            too_late = self.finished_at_ms and not self.is_cancelled
            return f"{self.campaign_id} has ended already: {self.status(now_ms)}" if too_late else ""
        if self.is_cancelled:
            return f"{self.campaign_id} was cancelled, which cannot be undone"
        status = self.status(now_ms)
        if self.finished_at_ms or status is CampaignStatus.EXPIRED:
            return f"{self.campaign_id} has ended already: {status}"
        return ""

    @property
    def pace_limit_per_s(self) -> int | None:
        """Its own limit, as last ordered or requested; None without one."""
        if self.orders.pace_per_s is not None:
            return self.orders.pace_per_s or None
        return (self.requested.pace_per_s or None) if self.requested is not None else None

    @property
    def weight(self) -> int:
        """As last ordered or requested."""
        if self.orders.weight is not None:
            return self.orders.weight
        return self.requested.weight if self.requested is not None else 1

    def waits_for(self, now_ms: int, away: WaitsFor | None = None) -> WaitsFor | str | None:
        """What a campaign that does not move waits for; None while it moves, or when nobody knows.

        away: what every campaign waits for now, whatever was last told of this one.
        """
        match self.status(now_ms):
            case CampaignStatus.PAUSED:
                return WaitsFor.RESUME
            case CampaignStatus.SCHEDULED:
                return WaitsFor.START
        told = self.state.waits_for if self.state is not None and not self.finished_at_ms else None
        if away is not None and not self.finished_at_ms and told != WaitsFor.HOLD:
            return away
        return None if told in (WaitsFor.RESUME, WaitsFor.START) else told

    def stalled_since_ms(self, now_ms: int) -> int | None:
        """By this clock, so that it is told as well when nobody leads dispatch any more."""
        started_ms = self.accepted_at_ms
        if self.requested is not None:
            started_ms = max(started_ms, self.requested.send_at_ms)
        told = self.state.progress_at if self.state is not None else None
        since_ms = max(started_ms, told or 0)
        is_finished = bool(self.finished_at_ms)
        return standstill.stalled_since_ms(self.status(now_ms), is_finished, self.waits_for(now_ms), since_ms, now_ms)

    def lose_cursor(self, at_ms: int) -> None:
        """A tombstone was written then for its cursor."""
        if self.cursor is not None and forgetting.is_old(self.cursor.at_ms, at_ms):
            self.cursor = None

    def lose_state(self, at_ms: int) -> None:
        """A tombstone was written then for its public state."""
        if self.state is not None and forgetting.is_old(self.state.at, at_ms):
            self.state = None

    def lose_counts(self, partition: str, at_ms: int) -> None:
        """A tombstone was written then for the counts of this partition."""
        number = int(partition) if partition.isdecimal() else -1
        if number in self.progress and forgetting.is_old(self.progress_ms[number], at_ms):
            del self.progress[number], self.progress_ms[number]

    def note_progress(self, at_ms: int) -> None:
        """Takes a sample for the pace, unless one was just taken."""
        if not self.samples or at_ms >= self.samples[-1][0] + SAMPLE_EVERY_MS:
            self.samples.append((at_ms, sum(vector.finished for vector in self.progress.values())))

    def pace_per_s(self, now_ms: int, window_ms: int) -> float:
        """Recipients finished per second lately; 0.0 when nothing moves."""
        if self.finished_at_ms or len(self.samples) < 2:
            return 0.0
        newest_ms, newest = self.samples[-1]
        oldest_ms, oldest = next(sample for sample in self.samples if sample[0] >= newest_ms - window_ms)
        if now_ms - newest_ms > 2 * window_ms or newest_ms <= oldest_ms:
            return 0.0
        return (newest - oldest) * 1000 / (newest_ms - oldest_ms)

    def _status_before_dispatch(self, now_ms: int) -> CampaignStatus:
        wanted = self.requested
        waits = wanted is not None and (wanted.send_at_ms > now_ms or bool(wanted.send_at_local))
        return CampaignStatus.SCHEDULED if waits and not self.released else CampaignStatus.RUNNING
