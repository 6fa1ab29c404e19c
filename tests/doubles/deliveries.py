"""Builders of deliveries for the tests of the senders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from schemas import keys
from schemas.messages import Channel, Delivery, Priority
from tests.doubles.manual_clock import START_MS

EPOCH = "0a1b2c3d"


def single(user_id: str = "42", event_id: str = "order-1", offset: int = 35, **changes: Any) -> Delivery:
    """An SMS of one accepted request, released now, worth sending for a day."""
    address = keys.single_address(EPOCH, 3, offset)
    delivery = Delivery(
        tenant="default",
        user_id=user_id,
        intent=keys.single_intent("default", event_id),
        row=address.row,
        slot=address.slot,
        index=0,
        channel=Channel.SMS,
        device="",
        priority=Priority.TRANSACTIONAL,
        template="welcome",
        campaign_id="",
        params='{"name": "Ada"}',
        campaign_params="{}",
        to=None,
        accepted_at_ms=START_MS,
        released_at_ms=START_MS,
        expires_at_ms=START_MS + 86_400_000,
    )
    return replace(delivery, **changes)


def recipient(
    user_id: str = "42", campaign_id: str = "spring", page: int = 7, slot: int = 9, **changes: Any
) -> Delivery:
    """The same as a recipient of a campaign, in the bulk lane."""
    address = keys.recipient_address(campaign_id, page, slot)
    delivery = single(user_id, **{"priority": Priority.BULK, "campaign_id": campaign_id, **changes})
    intent = keys.recipient_intent("default", campaign_id, user_id)
    return replace(delivery, intent=intent, row=address.row, slot=address.slot)
