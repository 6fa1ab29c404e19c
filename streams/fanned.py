"""Which pages of a campaign have reached the lanes: one bit a page in Redis.

Fan-out marks, dispatch counts what it released and what is not there yet. Only a measure of the backlog: when
it is lost, dispatch takes the count of planned recipients from `campaign.progress` instead.
"""

from __future__ import annotations

from schemas import keys
from schemas.messages import ReleasedPage
from schemas.trips import Trip

KEPT_S = 86_400


def ask_mark(trip: Trip, page: ReleasedPage) -> None:
    """Appends two commands."""
    key = keys.redis_fanned(page.tenant, page.campaign_id)
    trip.execute_command("SETBIT", key, page.page, 1)
    trip.execute_command("EXPIRE", key, KEPT_S)
