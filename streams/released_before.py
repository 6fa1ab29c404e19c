"""Pages that a leader may have let go without noting it: it died, or the log did not answer, before the cursor.

They go again under the same ids, and plans and claims absorb that for a day. So it has to be known since when they may
be under way: `at_ms` of a campaign's cursor says it. Among the pages that may be concerned it stands still, whoever
leads and however often that changes; behind them it is the moment of each move. What goes again later than that makes
fan-out ask its row. Used by `streams/dispatch.py`.
"""

from __future__ import annotations

from collections.abc import Collection

from schemas.messages import CampaignCursor, CampaignRequested
from streams.campaigns import Campaign
from streams.letting_go import LONG_AGO_MS

ROWS_KNOW_AFTER_MS = 3_600_000
"""Plans are kept for 24 h. So long after a page may have gone its row is asked, as fan-out may be late once more."""


class ReleasedBefore:
    """Knows it of the campaigns of a leader. pages: so many behind a cursor may have been let go by somebody else."""

    def __init__(self, pages: int) -> None:
        self._pages = pages
        self._sure_from: dict[str, int] = {}

    def start_over(self) -> None:
        """A new leader, or one that does not know what became of its last look."""
        self._sure_from.clear()

    def keep_only(self, keys: Collection[str]) -> None:
        """Forgets other campaigns."""
        for key in [key for key in self._sure_from if key not in keys]:
            del self._sure_from[key]

    def since_ms(self, campaign: Campaign, request: CampaignRequested, page: int, now_ms: int) -> int:
        """The earliest moment at which this page, one behind the campaign's cursor, may have been let go; now_ms for
        one that never was.
        """
        sure_from = self._sure_from.setdefault(campaign.key, campaign.next_page + self._pages)
        return now_ms if page >= sure_from else _moved_ms(campaign.cursor, request)

    def released_at_ms(self, campaign: Campaign, request: CampaignRequested, page: int, now_ms: int) -> int:
        """What fan-out is told: now, or so long ago that it asks the row whether the page went before."""
        since_ms = self.since_ms(campaign, request, page, now_ms)
        return now_ms if now_ms - since_ms < ROWS_KNOW_AFTER_MS else now_ms - LONG_AGO_MS


def _moved_ms(cursor: CampaignCursor | None, request: CampaignRequested) -> int:
    """Nothing goes before it is accepted, and due."""
    return cursor.at_ms if cursor is not None else max(request.accepted_at_ms, request.send_at_ms)
