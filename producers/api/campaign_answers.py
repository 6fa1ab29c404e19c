"""What campaigns look like from outside: one, and many."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from producers import auth
from producers.api import bodies
from producers.api.parts import PARTS, ApiParts
from producers.auth import Scope
from producers.campaign import Campaign
from schemas.errors import Refused
from schemas.messages import CampaignStatus

LIST_DEFAULT, LIST_MAX = 100, 1_000


async def get_all(request: web.Request) -> web.Response:
    tenant = auth.allow(request, Scope.READ)
    parts = request.app[PARTS]
    found = parts.campaigns.newest(tenant, limit(request.query.get("limit", str(LIST_DEFAULT)), LIST_MAX))
    return bodies.answer({"campaigns": [campaign_answer(parts, campaign) for campaign in found]})


async def get(request: web.Request) -> web.Response:
    parts = request.app[PARTS]
    return bodies.answer(campaign_answer(parts, await find(request, parts)))


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
        "waits_for": campaign.waits_for(now_ms, parts.away()),
        "stalled_since": _instant(campaign.stalled_since_ms(now_ms)),
    }


def _instant(at_ms: int | None) -> str | None:
    return bodies.instant(at_ms) if at_ms else None


async def find(request: web.Request, parts: ApiParts) -> Campaign:
    """The campaign that the path names. Raises Refused 403 and 404."""
    campaign_id = request.match_info["id"]
    found = await parts.campaigns.find_now(auth.allow(request, Scope.READ), campaign_id)
    if found is None:
        raise unknown(campaign_id)
    return found


def unknown(campaign_id: str) -> Refused:
    return Refused("", f"no such campaign: {campaign_id!r}, or it ended too long ago", 404)


def limit(text: str, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= most:
        raise Refused("limit", f"must be a number from 1 to {most}")
    return int(text[:9])
