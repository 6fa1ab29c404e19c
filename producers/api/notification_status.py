"""What became of a notification, as GET tells it: from its row, or from the log while there is no row yet."""

from __future__ import annotations

from typing import Any

from producers.api import bodies
from producers.api.parts import ApiParts
from schemas import keys
from schemas.keys import Address
from schemas.messages import EventKind
from schemas.reasons import Reason
from schemas.stores import DeliveryView, SlotView

ACCEPTED = "accepted"
WAITS = frozenset({EventKind.SCHEDULED, EventKind.QUEUED, EventKind.HELD, EventKind.RETRYING})
FOLLOWS_MAX = 3
"""A duplicate points at the first of its intent, which cannot be a duplicate itself; more is a fault in the data."""


async def find(parts: ApiParts, tenant: str, notification_id: str) -> dict[str, Any] | None:
    """The answer to GET; None when there is no such notification. Raises Transient while nobody can know."""
    address = parts.ids.address(tenant, notification_id)
    if address is None:
        return None
    slot, shown_id = await parts.reads.slot(tenant, address), notification_id
    for _ in range(FOLLOWS_MAX):
        first_id = None if slot is None else duplicate_of(slot)
        first = None if first_id is None else parts.ids.address(tenant, first_id)
        if first_id is None or first is None:
            break
        slot, address, shown_id = await parts.reads.slot(tenant, first), first, first_id
    answer = await _told(parts, tenant, address, notification_id, slot)
    if answer is not None and shown_id != notification_id:
        answer["duplicate_of"] = shown_id
    return answer


async def _told(
    parts: ApiParts, tenant: str, address: Address, notification_id: str, slot: SlotView | None
) -> dict[str, Any] | None:
    if slot is not None:
        return slot_answer(notification_id, slot)
    if await is_accepted(parts, tenant, address):
        return {"notification_id": notification_id, "status": ACCEPTED, "deliveries": []}
    return None


async def is_accepted(parts: ApiParts, tenant: str, address: Address) -> bool:
    """Whether the log holds the accepted record of this address. Raises Transient."""
    if keys.is_campaign_row(address.row):
        campaign_id, page = keys.campaign_of_row(address.row)
        found = await parts.campaigns.find_now(tenant, keys.decoded(campaign_id))
        return found is not None and found.requested is not None and page < found.requested.pages
    epoch, partition, offset = keys.single_place(address)
    topic = parts.entries.topic(epoch)
    if topic is None:
        return False
    first, end = await parts.log.offsets(topic, partition)
    return first <= offset < end


def slot_answer(notification_id: str, slot: SlotView) -> dict[str, Any]:
    """A slot as JSON; absent parts are left out. Without any delivery the slot itself says why, and until when."""
    answer: dict[str, Any] = {"notification_id": notification_id, "status": slot.status or ACCEPTED}
    if not slot.deliveries:
        waits = slot.status in WAITS
        said = {"waits_for" if waits else "reason": slot.reason, "detail": slot.detail}
        said["waits_until"] = bodies.instant(slot.waits_until_ms) if waits and slot.waits_until_ms else ""
        answer.update({name: value for name, value in said.items() if value})
    answer["deliveries"] = [delivery_answer(delivery) for delivery in slot.deliveries]
    return answer


def delivery_answer(delivery: DeliveryView) -> dict[str, Any]:
    """A delivery as JSON. While it waits, its reason says for what."""
    waits = delivery.state in WAITS
    answer: dict[str, Any] = {"channel": delivery.channel, "device": delivery.device, "state": delivery.state}
    answer["reason"] = "" if waits else delivery.reason
    answer["detail"] = delivery.detail
    answer["provider"] = delivery.provider
    answer["sent_at"] = bodies.instant(delivery.sent_at_ms) if delivery.sent_at_ms else ""
    answer["waits_for"] = delivery.reason if waits else ""
    answer["waits_until"] = bodies.instant(delivery.waits_until_ms) if waits and delivery.waits_until_ms else ""
    answer["possible_duplicate"] = delivery.possible_duplicates > 0
    return {"calls": delivery.calls, **{name: value for name, value in answer.items() if value}}


def delivery_states(slot: SlotView) -> list[tuple[str, str]]:
    """(delivery suffix, "waiting" | "sent") as the row knows them; deliveries that ended unsent are left out."""
    states = []
    for one in slot.deliveries:
        waits = one.state in WAITS or one.state == ACCEPTED
        if waits or one.calls:
            states.append((keys.shown_suffix(one.channel, one.device), "waiting" if waits else "sent"))
    return states


def duplicate_of(slot: SlotView) -> str | None:
    """The id this one repeats; None when it is no repeat."""
    parts = [(slot.reason, slot.detail), *((one.reason, one.detail) for one in slot.deliveries)]
    named = [detail.rpartition(" ")[2] for reason, detail in parts if reason == Reason.DUPLICATE_OF and detail]
    return named[0] if named else None
