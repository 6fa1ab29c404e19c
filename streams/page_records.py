"""What dispatch writes of a page, or of some of its slots: that they were let go, or how their recipients ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from schemas import codec, keys
from schemas.messages import CampaignRequested, EventKind, Recipient, ReleasedPage
from schemas.reasons import Reason
from schemas.records import Headers, Outgoing
from schemas.topics import Topics
from streams import page_status
from streams.release import Candidate

End = tuple[EventKind, Reason]
"""What becomes of recipients to whom nothing is sent."""
LOST: End = (EventKind.FAILED, Reason.AUDIENCE_LOST)


def released(
    topics: Topics,
    candidate: Candidate,
    page: int,
    source_offset: int,
    hop: int,
    slots: tuple[int, ...],
    recipients: tuple[Recipient, ...],
    headers: Headers,
    released_at_ms: int,
) -> Outgoing:
    """The record for `campaign.pages`. slots: those that are due, () = all; recipients: by position."""
    request = candidate.request
    message = ReleasedPage(
        tenant=request.tenant,
        campaign_id=request.campaign_id,
        page=page,
        template=request.template,
        params=request.params,
        channels=request.channels,
        priority=candidate.use.priority,
        accepted_at_ms=request.accepted_at_ms,
        released_at_ms=released_at_ms,
        expires_at_ms=request.expires_at_ms,
        source_offset=source_offset,
        hop=hop,
        slots=slots,
        recipients=recipients,
        send_at_local=request.send_at_local,
        send_on=request.send_on,
    )
    key = keys.page_key(request.tenant, request.campaign_id, page)
    return Outgoing(topics.pages, key.encode(), codec.encode(message), headers)


def ended(
    topics: Topics, request: CampaignRequested, page: int, users: Iterable[tuple[int, str]], end: End, at_ms: int
) -> Iterator[Outgoing]:
    """Status records of recipients of a page to whom nothing is sent. users: (position, user)."""
    kind, reason = end
    events = page_status.ends(users, kind, reason, request.template, request.accepted_at_ms, at_ms)
    return page_status.records(topics.status, request.tenant, request.campaign_id, page, events)
