"""Which released pages have reached the lanes: one short-lived key for each in Redis.

Fan-out marks, dispatch asks for those that it let go and has not seen marked. Only a measure of the backlog: when
it is lost, dispatch takes the count of planned recipients from `campaign.progress` instead.
"""

from __future__ import annotations

from schemas import keys
from schemas.messages import ReleasedPage
from schemas.trips import Trip

KEPT_S = 90
"""Longer than dispatch expects a page that nobody fans out (`streams/backlog.py`)."""


def ask_mark(trip: Trip, page: ReleasedPage) -> None:
    """Appends one command."""
    key = keys.redis_fanned(page.tenant, page.campaign_id, page.page, page.hop, min(page.slots, default=0))
    trip.execute_command("SET", key, b"", "EX", KEPT_S)
