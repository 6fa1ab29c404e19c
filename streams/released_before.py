"""Pages that a leader may have let go without noting it: it died, or the log did not answer, before the cursor.

They go again under the same ids, and plans and claims absorb that for a day. So it has to be known since when they may
be under way: `at_ms` of a campaign's cursor says it. Among the pages that may be concerned it stands still, whoever
leads and however often that changes; behind them it is the moment of each move. What goes again more than an hour after
that makes fan-out ask its row. Used by `streams/dispatch.py`.

Which pages these are: those that this leader tried to let go and got no answer for; and, of a campaign that could
begin before it led alone, as many behind the cursor as another leader may have let go unnoted. Of a campaign that began
under it, however slow, there are none else.
"""

from __future__ import annotations

from collections.abc import Collection

from schemas.messages import CampaignRequested
from streams.campaigns import Campaign
from streams.holds import NEVER_MS
from streams.letting_go import LONG_AGO_MS

ROWS_KNOW_AFTER_MS = 3_600_000
"""Plans are kept for 24 h. So long after a page may have gone its row is asked, as fan-out may be late once more."""
OTHERS_MS = 60_000
"""So long after a leader began another one may still act that does not know of it, and clocks may differ."""


class ReleasedBefore:
    """Knows it of the campaigns of a leader. pages: so many behind a cursor may have been let go by another one."""

    def __init__(self, pages: int) -> None:
        self._pages = pages
        self._alone_from_ms = NEVER_MS
        self._sure_from: dict[str, int] = {}

    def start_over(self, now_ms: int) -> None:
        """A new leader, which knows all that was in the log now."""
        self._alone_from_ms = now_ms + OTHERS_MS
        self._sure_from.clear()

    def tried(self, campaign: Campaign, page: int) -> None:
        """This page, or a piece of it, may be in the log, and is not noted."""
        self._sure_from[campaign.key] = max(self._sure_from.get(campaign.key, 0), page + 1)

    def keep_only(self, keys: Collection[str]) -> None:
        """Forgets other campaigns."""
        for key in [key for key in self._sure_from if key not in keys]:
            del self._sure_from[key]

    def since_ms(self, campaign: Campaign, request: CampaignRequested, page: int, now_ms: int) -> int:
        """The earliest moment at which this page, one behind the campaign's cursor, may have been let go; now_ms for
        one that never was.
        """
        began_ms = max(request.accepted_at_ms, request.send_at_ms)  # nothing goes before
        of_others = self._pages if began_ms < self._alone_from_ms else 0
        if page >= self._sure_from.setdefault(campaign.key, campaign.next_page + of_others):
            return now_ms
        return campaign.cursor.at_ms if campaign.cursor is not None else began_ms

    def released_at_ms(self, campaign: Campaign, request: CampaignRequested, page: int, now_ms: int) -> int:
        """What fan-out is told: now, or so long ago that it asks the row whether the page went before."""
        since_ms = self.since_ms(campaign, request, page, now_ms)
        return now_ms if now_ms - since_ms < ROWS_KNOW_AFTER_MS else now_ms - LONG_AGO_MS
