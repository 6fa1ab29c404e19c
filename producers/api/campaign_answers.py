"""What campaigns look like from outside: one, many, and their recipients by outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson
from aiohttp import web

from producers import auth
from producers.api import bodies, notification_status
from producers.api.parts import PARTS, ApiParts
from producers.auth import Scope
from producers.campaign import Campaign
from schemas import keys
from schemas.errors import Refused, Transient
from schemas.messages import CampaignStatus, EventKind
from schemas.stores import SlotView

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
"""A finished recipient counts in one of these; the furthest comes first."""
LIST_DEFAULT, LIST_MAX = 100, 1_000
ROWS_AT_ONCE = 8
"""Rows asked for together: as many pages are in memory, whatever the campaign's size."""


async def get_all(request: web.Request) -> web.Response:
    tenant = auth.allow(request, Scope.READ)
    parts = request.app[PARTS]
    found = parts.campaigns.newest(tenant, _limit(request.query.get("limit", str(LIST_DEFAULT))))
    return bodies.answer({"campaigns": [campaign_answer(parts, campaign) for campaign in found]})


async def get(request: web.Request) -> web.Response:
    parts = request.app[PARTS]
    return bodies.answer(campaign_answer(parts, await _find(request, parts)))


async def get_recipients(request: web.Request) -> web.StreamResponse:
    """NDJSON, one recipient a line. A failure in the middle breaks the connection: the list is not whole."""
    parts = request.app[PARTS]
    campaign = await _find(request, parts)
    outcome = request.query.get("outcome", "")
    if outcome and outcome not in OUTCOMES:
        raise Refused("outcome", f"must be one of {', '.join(OUTCOMES)}")
    lines = _recipient_lines(parts, campaign, outcome)
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


def campaign_answer(parts: ApiParts, campaign: Campaign) -> dict[str, Any]:
    """A campaign as JSON. ends_about is null while nothing moves, or nothing should."""
    now_ms = parts.clock.now_ms()
    status = campaign.status(now_ms)
    counts, pace = campaign.counts(), parts.campaigns.pace_per_s(campaign)
    left = campaign.expected - counts.finished
    ends_ms = now_ms + int(left / pace * 1000) if pace > 0 and left > 0 and status is CampaignStatus.RUNNING else 0
    return {
        "campaign_id": campaign.campaign_id,
        "status": status,
        "expected": campaign.expected,
        "progress": {
            "accepted": campaign.expected,
            "released": campaign.released,
            "sent": counts.sent,
            "delivered": counts.delivered,
        },
        "outcomes": counts.outcomes,
        "reasons": counts.reasons,
        "possible_duplicates": counts.possible_duplicates,
        "pace": round(pace, 1),
        "pace_per_s": campaign.pace_limit_per_s,
        "weight": campaign.weight,
        "ends_about": _instant(ends_ms),
        "finished_at": _instant(campaign.finished_at_ms),
        "waits_for": campaign.waits_for(now_ms),
        "stalled_since": _instant(campaign.stalled_since_ms(now_ms)),
    }


def _instant(at_ms: int | None) -> str | None:
    return bodies.instant(at_ms) if at_ms else None


async def _find(request: web.Request, parts: ApiParts) -> Campaign:
    found = await parts.campaigns.find_now(auth.allow(request, Scope.READ), request.match_info["id"])
    if found is None:
        raise unknown()
    return found


def unknown() -> Refused:
    return Refused("", "no such campaign, or it ended too long ago", 404)


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= LIST_MAX:
        raise Refused("limit", f"must be a number from 1 to {LIST_MAX}")
    return int(text)


async def _recipient_lines(parts: ApiParts, campaign: Campaign, outcome: str) -> AsyncIterator[bytes]:
    """Lines of some rows at a time, empty ones left out. Raises Transient while an owner cannot answer."""
    pages = 0 if campaign.requested is None else campaign.requested.pages
    for start in range(0, pages, ROWS_AT_ONCE):
        numbers = range(start, min(start + ROWS_AT_ONCE, pages))
        rows = await asyncio.gather(*(_row(parts, campaign, number) for number in numbers))
        lines = b"".join(
            _page_lines(parts, campaign, number, row, outcome) for number, row in zip(numbers, rows, strict=True)
        )
        if lines:
            yield lines


async def _row(parts: ApiParts, campaign: Campaign, page: int) -> Sequence[SlotView | None]:
    row = keys.recipient_address(campaign.campaign_id, page, 0).row
    return await parts.reads.row(campaign.tenant, row)


def _page_lines(parts: ApiParts, campaign: Campaign, page: int, row: Sequence[SlotView | None], outcome: str) -> bytes:
    return b"".join(
        orjson.dumps(_recipient_answer(parts, campaign, page, position, slot), option=orjson.OPT_APPEND_NEWLINE)
        for position, slot in enumerate(row)
        if slot is not None and (not outcome or outcome_of(slot) == outcome)
    )


def outcome_of(slot: SlotView) -> str:
    """A recipient's one outcome, by its furthest delivery; "" while any of its deliveries is unfinished."""
    states = [one.state for one in slot.deliveries] or [slot.status]
    outcomes = [DELIVERED if state == EventKind.COMPLAINED else state for state in states]
    if not all(outcome in OUTCOMES for outcome in outcomes):
        return ""
    return min(outcomes, key=OUTCOMES.index)


def _recipient_answer(parts: ApiParts, campaign: Campaign, page: int, position: int, slot: SlotView) -> dict[str, Any]:
    address = keys.recipient_address(campaign.campaign_id, page, position)
    answer = notification_status.slot_answer(parts.ids.notification_id(campaign.tenant, address), slot)
    return {"user_id": slot.user_id, **answer}
