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
    """Behind this page or piece of one; None: behind the last one, as the log holds no more of them."""
    before = cursor or CampaignCursor(request.tenant, request.campaign_id, 0, 0, request.first_offset, 0, 0)
    number = page.page.page if page is not None else request.pages
    if number > before.next_page:
        # A page lost after a piece of it went is missing as a whole.
        missing = (*before.missing, before.next_page, number)
        before = replace(before, missing=missing, released=before.released - before.next_slot, next_slot=0)
    if page is None:
        return replace(before, next_page=number, next_offset=request.last_offset + 1)
    released = before.released + page.size
    if not page.ends_page:
        return replace(before, next_page=number, next_offset=page.offset, released=released, next_slot=page.end)
    return replace(before, next_page=number + 1, next_offset=page.offset + 1, released=released, next_slot=0)


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


def _pages(missing: tuple[int, ...]) -> Iterator[int]:
    for first, after in zip(missing[::2], missing[1::2], strict=True):
        yield from range(first, after)
