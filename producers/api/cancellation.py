"""DELETE of one notification: the log first, then the flag that every claim meets, then what can be told at once.

What waits in a tier or hold meets the flag when it comes back; what has no plan yet meets it at its first claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from producers.api import accepted_records, notification_status
from producers.api.accepted_records import OfCampaign, Single
from producers.api.parts import ApiParts
from schemas import codec, keys, messages
from schemas.keys import Address
from schemas.messages import EventKind, StatusEvent
from schemas.reasons import Reason
from schemas.records import Headers, Outgoing

Accepted = Single | OfCampaign
WAITING, SENDING, SENT = "waiting", "sending", "sent"


async def cancel(parts: ApiParts, tenant: str, notification_id: str, headers: Headers) -> dict[str, Any] | None:
    """What is stopped and what is not; None when there is no such notification.

    Raises Transient when the log or Redis is away: then the cancel may or may not hold, and must be repeated.
    """
    address = parts.ids.address(tenant, notification_id)
    wish = None if address is None else await accepted_records.at(parts, tenant, address)
    if address is None or wish is None:
        return None
    now_ms = parts.clock.now_ms()
    order = messages.NotificationCancelled(tenant, notification_id, wish.intent, wish.user_id, now_ms)
    key = keys.notification_key(tenant, notification_id).encode()
    await parts.publisher.publish([Outgoing(parts.topics.control, key, codec.encode(order), headers)])
    deliveries = await _stopped(parts, tenant, address, wish)
    events = _events(address.slot, now_ms, deliveries)
    if events:
        await _publish_status(parts, tenant, address.row, events, headers)
    return _answer(notification_id, deliveries)


async def _stopped(parts: ApiParts, tenant: str, address: Address, wish: Accepted) -> Sequence[tuple[str, str]] | None:
    """What the flag still meets. A plan is kept for a day; after that the row says what became of it."""
    deliveries = await parts.cancellations.cancel(tenant, wish.user_id, wish.intent)
    if deliveries is not None:
        return deliveries
    slot = await parts.reads.slot(tenant, address)
    return notification_status.delivery_states(slot) if slot is not None and slot.deliveries else None


def _events(slot: int, now_ms: int, deliveries: Sequence[tuple[str, str]] | None) -> tuple[StatusEvent, ...]:
    """Without a plan the whole slot is cancelled; else each delivery that still waits."""
    stopped = [""] if deliveries is None else [suffix for suffix, state in deliveries if state == WAITING]
    return tuple(
        StatusEvent(slot, EventKind.CANCELLED, now_ms, delivery=suffix, reason=Reason.CANCELLED_BY_CALLER)
        for suffix in stopped
    )


async def _publish_status(
    parts: ApiParts, tenant: str, row: str, events: tuple[StatusEvent, ...], headers: Headers
) -> None:
    batch = messages.StatusBatch(tenant, row, events)
    key = keys.row_key(tenant, row).encode()
    await parts.publisher.publish([Outgoing(parts.topics.status, key, codec.encode(batch), headers)])


def _answer(notification_id: str, deliveries: Sequence[tuple[str, str]] | None) -> dict[str, Any]:
    named: dict[str, list[dict[str, str]]] = {WAITING: [], SENDING: [], SENT: []}
    for suffix, state in deliveries or ():
        named[state].append(_delivery_name(suffix))
    is_stopped = not named[SENDING] and not named[SENT]
    return {
        "notification_id": notification_id,
        "status": "cancelled" if is_stopped else "partly_cancelled" if named[WAITING] else "not_cancelled",
        "cancelled": named[WAITING],
        "sending": named[SENDING],
        "sent": named[SENT],
    }


def _delivery_name(suffix: str) -> dict[str, str]:
    channel, _, device = suffix.partition("/")
    return {"channel": channel, "device": device} if device else {"channel": channel}
