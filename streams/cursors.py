"""How far a campaign is, and which of its pages the log does not hold. Pure; `streams/dispatch.py` writes it down.

A page is missing when it was too old for the log, or could not be read (then it lies in a dead letter topic). What
lies behind it goes out all the same. How many recipients a missing page had is known only as a sum: those of the
request less those of all other pages. So missing pages are noted in the cursor, and their recipients are ended
after the last page, when that sum is known: they fill the slots of the missing pages in order, as an upload does.
Who they were nobody can say any more; their number is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from schemas.messages import CampaignCursor, CampaignRequested
from schemas.rows import CAMPAIGN_SLOTS
from streams.page_reader import PageAt


def moved(cursor: CampaignCursor | None, request: CampaignRequested, page: PageAt | None) -> CampaignCursor:
    """Behind this page; None: behind the last one, as the log holds no more of them."""
    before = cursor or CampaignCursor(request.tenant, request.campaign_id, 0, 0, request.first_offset, 0, 0)
    if page is None:
        missing = _with_gap(before.missing, before.next_page, request.pages)
        return replace(before, next_page=request.pages, next_offset=request.last_offset + 1, missing=missing)
    return replace(
        before,
        next_page=page.page.page + 1,
        next_offset=page.offset + 1,
        released=before.released + len(page.page.recipients),
        missing=_with_gap(before.missing, before.next_page, page.page.page),
    )


def shares(cursor: CampaignCursor, request: CampaignRequested, most: int) -> list[tuple[int, int]]:
    """(page, recipients) of the first missing pages, at most so many. Only once all other pages are out."""
    left, found = request.recipients - cursor.released, []
    for page in islice(_pages(cursor.missing), most):
        count = max(0, min(left, CAMPAIGN_SLOTS))
        left -= count
        found.append((page, count))
    return found


def ended(cursor: CampaignCursor, shares: list[tuple[int, int]]) -> CampaignCursor:
    """With the recipients of these, its first missing pages, ended."""
    missing = cursor.missing
    for _ in shares:
        missing = missing[2:] if missing[0] + 1 == missing[1] else (missing[0] + 1, *missing[1:])
    return replace(cursor, released=cursor.released + sum(count for _, count in shares), missing=missing)


def _with_gap(missing: tuple[int, ...], first: int, after: int) -> tuple[int, ...]:
    return (*missing, first, after) if first < after else missing


def _pages(missing: tuple[int, ...]) -> Iterator[int]:
    for first, after in zip(missing[::2], missing[1::2], strict=True):
        yield from range(first, after)
