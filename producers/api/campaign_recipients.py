"""Who of a campaign got which outcome, on which channel and why: as NDJSON, in the order of the upload.

Reads the campaign's status rows some at a time, so memory stays the same whatever its size. A list that was cut off
goes on behind the last line that arrived: `after` names its notification.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from producers.api import campaign_answers, notification_status, openapi
from producers.api.parts import PARTS, ApiParts
from producers.auth import Scope
from producers.campaign import Campaign
from schemas import keys
from schemas.errors import Refused, Transient
from schemas.messages import EventKind
from schemas.stores import SlotView

PATH = "/v1/campaigns/{id}/recipients"
DELIVERED = "delivered"
OUTCOMES = (
    DELIVERED,
    "sent",
    "unconfirmed",
    "undelivered",
    "bounced",
    "failed",
    "suppressed",
    "cancelled",
    "expired",
)
"""A finished recipient counts in one of these."""
LINES_MAX = 1_000_000
ROWS_AT_ONCE = 8
"""Rows asked for together: as many pages are in memory, whatever the campaign's size."""


def register(app: web.Application) -> None:
    app.router.add_get(PATH, get)
    openapi.describe(app, OPERATION)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What is listed. outcome "": all who have a plan or an end. page, slot: the first recipient to look at."""

    outcome: str
    page: int
    slot: int
    most: int


async def get(request: web.Request) -> web.StreamResponse:
    """One recipient a line. A failure in the middle breaks the connection: the list is not whole."""
    parts = request.app[PARTS]
    campaign = await campaign_answers.find(request, parts)
    lines = _lines(parts, campaign, _wish(request, parts, campaign))
    first = await anext(lines, b"")
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    try:
        await response.write(first)
        async for some in lines:
            await response.write(some)
    except Transient:
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof()
    return response


def _wish(request: web.Request, parts: ApiParts, campaign: Campaign) -> _Wish:
    if campaign.requested is None:
        raise Refused("", "the campaign's pages are not kept any more; its counts are", 410)
    outcome = request.query.get("outcome", "")
    if outcome and outcome not in OUTCOMES:
        raise Refused("outcome", f"must be one of {', '.join(OUTCOMES)}")
    page, slot = _behind(parts, campaign, request.query.get("after", ""))
    limit = request.query.get("limit")
    return _Wish(outcome, page, slot, sys.maxsize if limit is None else campaign_answers.limit(limit, LINES_MAX))


def _behind(parts: ApiParts, campaign: Campaign, after: str) -> tuple[int, int]:
    """(page, slot) of the recipient behind this one."""
    if not after:
        return 0, 0
    address = parts.ids.address(campaign.tenant, after)
    if address is None or not keys.is_campaign_row(address.row):
        raise Refused("after", "must be the notification_id of a recipient of this campaign")
    encoded, page = keys.campaign_of_row(address.row)
    if keys.decoded(encoded) != campaign.campaign_id:
        raise Refused("after", "names a recipient of another campaign")
    return page, address.slot + 1


async def _lines(parts: ApiParts, campaign: Campaign, wish: _Wish) -> AsyncIterator[bytes]:
    """The lines of some rows at a time; of the first ones also when there are none.

    Raises Transient while an owner cannot answer.
    """
    assert campaign.requested is not None
    pages, left = campaign.requested.pages, wish.most
    for start in range(wish.page, pages, ROWS_AT_ONCE):
        numbers = range(start, min(start + ROWS_AT_ONCE, pages))
        rows = await asyncio.gather(*(_row(parts, campaign, number) for number in numbers))
        found = [
            line
            for number, row in zip(numbers, rows, strict=True)
            for line in _of_page(parts, campaign, number, row, wish)
        ][:left]
        left -= len(found)
        if found or start == wish.page:
            yield b"".join(found)
        if not left:
            return


async def _row(parts: ApiParts, campaign: Campaign, page: int) -> Sequence[SlotView | None]:
    row = keys.recipient_address(campaign.campaign_id, page, 0).row
    return await parts.reads.row(campaign.tenant, row)


def _of_page(
    parts: ApiParts, campaign: Campaign, page: int, row: Sequence[SlotView | None], wish: _Wish
) -> Iterator[bytes]:
    first = wish.slot if page == wish.page else 0
    for position, slot in enumerate(row[first:], start=first):
        if slot is not None and (not wish.outcome or outcome_of(slot) == wish.outcome):
            answer = _recipient_answer(parts, campaign, page, position, slot)
            yield orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE)


def outcome_of(slot: SlotView) -> str:
    """A recipient's one outcome, as its row ranks its deliveries; "" while any of these is unfinished."""
    states = [one.state for one in slot.deliveries] or [slot.status]
    if not all(state in OUTCOMES or state == EventKind.COMPLAINED for state in states):
        return ""
    return DELIVERED if slot.status == EventKind.COMPLAINED else slot.status


def _recipient_answer(parts: ApiParts, campaign: Campaign, page: int, position: int, slot: SlotView) -> dict[str, Any]:
    address = keys.recipient_address(campaign.campaign_id, page, position)
    answer = notification_status.slot_answer(parts.ids.notification_id(campaign.tenant, address), slot)
    return {"user_id": slot.user_id, **answer}


OPERATION = openapi.Operation(
    "get",
    PATH,
    "Who got which outcome, and why, as NDJSON; a list that was cut off goes on `after` its last notification",
    Scope.READ,
    query=("outcome", "after", "limit"),
    answers={200: "one JSON object a line", 410: "too old: only its counts are kept"},
)
