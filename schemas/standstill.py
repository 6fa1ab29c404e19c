"""When a campaign counts as stalled, and what one that does not move waits for. Said by dispatch, shown by the API."""

from __future__ import annotations

from enum import StrEnum

from schemas.messages import CampaignStatus

STALLED_AFTER_MS = 15 * 60_000
"""Longer than anything that is well lasts without an end: the longest tier holds a retry for 10 minutes, and at the
lowest pace, one a second, a page of 250 goes every 4 minutes.
"""
WAITS_AFTER_MS = 10_000
"""A campaign that was still for less is not said to wait: a look at the lanes, a page and its sends take seconds."""


class WaitsFor(StrEnum):
    """start: its time has not come. resume: it is paused. hold: all that is left was put off (quiet hours, local
    start times). provider: none that it could use is usable. fan_out: pages that were let go got no plan.
    senders: deliveries in lanes or tiers are not finished. room: its lanes are full of others, or its own pace is slow.
    log, redis: nothing is begun while these do not answer; said by the API alone, as dispatch cannot write then, or
    does not know.
    """

    START = "start"
    RESUME = "resume"
    HOLD = "hold"
    PROVIDER = "provider"
    FAN_OUT = "fan_out"
    SENDERS = "senders"
    ROOM = "room"
    LOG = "log"
    REDIS = "redis"


WANTED = frozenset({WaitsFor.START, WaitsFor.RESUME, WaitsFor.HOLD})
"""What somebody asked for: no trouble, however long it lasts."""
_OPEN = frozenset({CampaignStatus.RUNNING, CampaignStatus.CANCELLED, CampaignStatus.EXPIRED})


def stalled_since_ms(
    status: CampaignStatus, is_finished: bool, waits_for: str | None, progress_at_ms: int, now_ms: int
) -> int | None:
    """Since when a campaign that should move has not; None while all is well. One that was stopped must still end."""
    if is_finished or status not in _OPEN or waits_for in WANTED:
        return None
    return progress_at_ms if now_ms - progress_at_ms >= STALLED_AFTER_MS else None
