"""What dispatch writes of a page, or of some of its slots: that they were let go, or how their recipients ended."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from schemas import codec, keys, metrics
from schemas.messages import CampaignRequested, EventKind, Recipient, ReleasedPage
from schemas.reasons import Reason
from schemas.records import Headers, Outgoing
from schemas.topics import MAX_MESSAGE_BYTES, Topics
from streams import page_status
from streams.release import Candidate

log = logging.getLogger(__name__)

End = tuple[EventKind, Reason]
"""What becomes of recipients to whom nothing is sent."""
LOST: End = (EventKind.FAILED, Reason.AUDIENCE_LOST)
TOO_LARGE: End = (EventKind.FAILED, Reason.TOO_LARGE)
MOST_BYTES = MAX_MESSAGE_BYTES - 16_384
"""Of a record of `campaign.pages`: the delivery of a recipient who is alone in one takes a little more."""
_NOBODY = Recipient("")


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
    now_ms: int,
) -> list[Outgoing]:
    """The record for `campaign.pages`, or several where that would be too large; whoever fits into none has failed.

    slots: those that are due, () = all; recipients: by position.
    """
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
    outgoing, too_large = _that_fit(topics, message, headers)
    if too_large:
        users = [(slot, recipients[slot].user_id) for slot in too_large]
        outgoing += ended(topics, request, page, users, TOO_LARGE, now_ms)
        metrics.RECIPIENTS_TOO_LARGE.labels(request.tenant).inc(len(users))
        campaign = keys.campaign_key(request.tenant, request.campaign_id)
        log.error("campaign.recipients_too_large", extra={"campaign": campaign, "page": page, "slots": too_large})
    return outgoing


def ended(
    topics: Topics, request: CampaignRequested, page: int, users: Iterable[tuple[int, str]], end: End, at_ms: int
) -> Iterator[Outgoing]:
    """Status records of recipients of a page to whom nothing is sent. users: (position, user)."""
    kind, reason = end
    events = page_status.ends(users, kind, reason, request.template, request.accepted_at_ms, at_ms)
    return page_status.records(topics.status, request.tenant, request.campaign_id, page, events)


def _that_fit(topics: Topics, page: ReleasedPage, headers: Headers) -> tuple[list[Outgoing], list[int]]:
    """The page in as few halves, quarters and so on as fit, and the slots that do not even fit alone.

    Which these are does not depend on the pieces in which it goes: another leader finds the same ones.
    """
    key = keys.page_key(page.tenant, page.campaign_id, page.page).encode()
    outgoing: list[Outgoing] = []
    too_large: list[int] = []
    parts = [page]
    while parts:
        part = parts.pop()
        record = Outgoing(topics.pages, key, codec.encode(part), headers)
        due = part.slots or range(len(part.recipients))
        middle = len(due) // 2
        if record.size <= MOST_BYTES:
            outgoing.append(record)
        elif not middle:
            too_large += due
        else:
            parts += [_only(part, due[middle:]), _only(part, due[:middle])]
    return outgoing, too_large


def _only(page: ReleasedPage, slots: Sequence[int]) -> ReleasedPage:
    """The page with these slots due, and nobody else in it."""
    kept = frozenset(slots)
    recipients = [one if slot in kept else _NOBODY for slot, one in enumerate(page.recipients)]
    return replace(page, slots=tuple(slots), recipients=tuple(recipients))
