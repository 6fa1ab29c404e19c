"""Builders of accepted campaigns: their pages and their request, as the API writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from schemas import codec, keys
from schemas.messages import AudiencePage, CampaignRequested, Recipient
from schemas.records import Outgoing, Placed, Publisher
from schemas.topics import Topics
from tests.doubles.manual_clock import START_MS

PAGE = 250


async def accept(
    publisher: Publisher,
    topics: Topics,
    campaign_id: str,
    recipients: int | Sequence[str],
    upload_id: str = "upload-1",
    **changes: Any,
) -> CampaignRequested:
    """Writes the pages, then the request; recipients: how many, or who."""
    users = [f"{campaign_id}-{n}" for n in range(recipients)] if isinstance(recipients, int) else list(recipients)
    pages = _pages(topics, campaign_id, users, upload_id, PAGE)
    placed = [(await publisher.publish([page]))[0] for page in pages]
    wanted = _wanted(campaign_id, len(users), upload_id, placed, changes)
    await publisher.publish([request_record(topics, wanted)])
    return wanted


def written(
    append: Callable[[Outgoing], Placed],
    topics: Topics,
    campaign_id: str,
    users: Sequence[str],
    upload_id: str = "upload-1",
    page_size: int = PAGE,
    **changes: Any,
) -> CampaignRequested:
    """The same at one moment, in pages of any size."""
    placed = [append(page) for page in _pages(topics, campaign_id, users, upload_id, page_size)]
    wanted = _wanted(campaign_id, len(users), upload_id, placed, changes)
    append(request_record(topics, wanted))
    return wanted


def _pages(topics: Topics, campaign_id: str, users: Sequence[str], upload_id: str, size: int) -> list[Outgoing]:
    pages = [users[start : start + size] for start in range(0, len(users), size)]
    return [page_record(topics, campaign_id, upload_id, number, page) for number, page in enumerate(pages)]


def _wanted(
    campaign_id: str, recipients: int, upload_id: str, placed: Sequence[Placed], changes: Mapping[str, Any]
) -> CampaignRequested:
    wanted = request(
        campaign_id=campaign_id,
        upload_id=upload_id,
        partition=placed[0].partition,
        first_offset=placed[0].offset,
        last_offset=placed[-1].offset,
        pages=len(placed),
        recipients=recipients,
        content_hash=upload_id,
    )
    return replace(wanted, **changes)


def request_record(topics: Topics, wanted: CampaignRequested) -> Outgoing:
    key = keys.campaign_key(wanted.tenant, wanted.campaign_id).encode()
    return Outgoing(topics.campaign_requests, key, codec.encode(wanted))


def request(**changes: Any) -> CampaignRequested:
    """The request of campaign "spring": one page of 250, accepted now."""
    wanted = CampaignRequested(
        tenant="default",
        campaign_id="spring",
        template="offer",
        upload_id="upload-1",
        partition=0,
        first_offset=0,
        last_offset=0,
        pages=1,
        recipients=PAGE,
        content_hash="hash",
        accepted_at_ms=START_MS,
        expires_at_ms=START_MS + 72 * 3_600_000,
    )
    return replace(wanted, **changes)


def page_record(
    topics: Topics, campaign_id: str, upload_id: str, number: int, users: Sequence[str], partition: int | None = None
) -> Outgoing:
    """One page of an upload."""
    page = AudiencePage("default", campaign_id, upload_id, number, tuple(map(Recipient, users)))
    key = keys.campaign_key("default", campaign_id).encode()
    return Outgoing(topics.audience, key, codec.encode(page), partition=partition)
