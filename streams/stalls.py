"""Campaigns that stand still: asks what keeps them, and says so when it lasts.

Part of dispatch's look. What a campaign waits for goes out with its state (`streams/campaigns.py`); here are the
alarm and the log.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from schemas import metrics, standstill
from schemas.messages import CampaignState
from schemas.standstill import WaitsFor
from streams.campaigns import Campaign
from streams.release import Candidate, Releases

log = logging.getLogger(__name__)
_UNKNOWN = "unknown"


class Stalls:
    """Remembers which campaigns stand still, so that each is logged once."""

    def __init__(self, releases: Releases) -> None:
        self._releases = releases
        self._stalled: set[str] = set()

    async def ask(self, running: Iterable[Candidate], now_ms: int) -> None:
        """Looks after the providers of those that do not move. Raises Transient."""
        for candidate in running:
            campaign = candidate.campaign
            is_still = _still_ms(campaign, now_ms) >= standstill.WAITS_AFTER_MS
            campaign.has_provider = not is_still or await self._releases.has_provider(candidate)

    def tell(self, unfinished: Iterable[Campaign], now_ms: int) -> None:
        """Counts and logs those that have stood still for too long."""
        found = {
            campaign.key: campaign.state
            for campaign in unfinished
            if campaign.state is not None and _is_stalled(campaign.state, now_ms)
        }
        for key, state in found.items():
            if key not in self._stalled:
                log.warning("campaign.stalled", extra={"campaign": key, **_told(state, now_ms)})
        for key in self._stalled - set(found):
            log.info("campaign.stall_ended", extra={"campaign": key})
        self._stalled = set(found)
        by_cause = Counter(state.waits_for or _UNKNOWN for state in found.values())
        for cause in (*WaitsFor, _UNKNOWN):
            metrics.CAMPAIGNS_STALLED.labels(cause).set(by_cause[cause])


def _still_ms(campaign: Campaign, now_ms: int) -> int:
    state = campaign.state
    return now_ms - state.progress_at if state is not None and state.progress_at is not None else 0


def _is_stalled(state: CampaignState, now_ms: int) -> bool:
    progress_at = state.progress_at if state.progress_at is not None else state.at
    is_finished = state.finished_at is not None
    return standstill.stalled_since_ms(state.status, is_finished, state.waits_for, progress_at, now_ms) is not None


def _told(state: CampaignState, now_ms: int) -> dict[str, object]:
    left = state.expected - state.finished
    since_s = (now_ms - (state.progress_at or state.at)) // 1000
    return {"waits_for": state.waits_for or _UNKNOWN, "for_s": since_s, "recipients_left": left}
