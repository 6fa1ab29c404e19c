"""The arithmetic of the delivery-rate alarm: the share delivered within ten minutes, against what is usual. Pure.

The share now: of the messages sent in the ten minutes that ended eleven minutes ago, so each had its ten. The usual
share: of all that were sent in the seven days before, by hours, without the hour that is judged. Every message weighs
the same, so a night with few of them cannot move it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MINUTE_MS = 60_000
HOURS = 7 * 24

Counts = Mapping[int, tuple[int, int]]
"""Minute, or hour, since 1970 -> (sent, delivered within ten minutes)."""


@dataclass(frozen=True, slots=True)
class ShareOptions:
    """least: messages in the window, and in the week before it, without which nothing is said. alarm_below,
    well_from: parts of the usual share.
    """

    least: int = 200
    alarm_below: float = 0.8
    well_from: float = 0.9


@dataclass(frozen=True, slots=True)
class Share:
    """share, usual: None while there is too little to say so."""

    share: float | None
    usual: float | None

    def is_low(self, options: ShareOptions) -> bool:
        return self.share is not None and self.usual is not None and self.share < options.alarm_below * self.usual

    def is_well(self, options: ShareOptions) -> bool:
        """Between low and well things stay as they were."""
        return self.share is not None and self.usual is not None and self.share >= options.well_from * self.usual


def minutes(now_ms: int) -> range:
    """The minutes of the window: each is over for ten minutes."""
    now = now_ms // MINUTE_MS
    return range(now - 20, now - 10)


def hours(now_ms: int) -> range:
    """The hours of the usual share."""
    judged = minutes(now_ms)[0] // 60
    return range(judged - HOURS, judged)


def share(by_minute: Counts, by_hour: Counts, now_ms: int, options: ShareOptions) -> Share:
    return Share(_share(by_minute, minutes(now_ms), options.least), _share(by_hour, hours(now_ms), options.least))


def _share(counts: Counts, times: Sequence[int], least: int) -> float | None:
    found = [counts[at] for at in times if at in counts]
    sent = sum(one for one, _ in found)
    # A report may be counted where the count of its call was lost with a crash.
    return min(1.0, sum(soon for _, soon in found) / sent) if sent >= least else None
