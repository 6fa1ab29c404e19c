"""Facts of made-up messages, for stories that are compared word for word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from producers.explaining.facts import Asked, Facts, Told, Way
from schemas.backstage import ProviderState, ProviderView
from schemas.messages import Channel, EventKind, StatusEvent
from schemas.policies import MessageClass, TemplatePolicy
from schemas.stores import DeliveryView, SlotView

NINE_MS = 1_796_029_200_000
"""2026-11-30 09:00:00 UTC."""
CODE = TemplatePolicy("login-code", MessageClass.TRANSACTIONAL, (), (Channel.SMS, Channel.EMAIL))
NEWS = TemplatePolicy("news", MessageClass.MARKETING, (Channel.EMAIL, Channel.PUSH))
SERVES = {Channel.SMS: ("texter",), Channel.EMAIL: ("mail",), Channel.PUSH: ("gateway", "spare")}
WELL = {name: ProviderView(ProviderState.WELL) for name in ("texter", "mail", "gateway", "spare")}


def facts(deliveries: Sequence[DeliveryView] = (), events: Sequence[StatusEvent] = (), **more: Any) -> Facts:
    """A login code for mia in Berlin, asked for at nine and looked at ten seconds later. Its status is the first's."""
    slot = None
    if deliveries:
        status, reason = deliveries[0].state, deliveries[0].reason
        slot = SlotView(status, reason, "", "mia", "login-code", NINE_MS, tuple(deliveries))
    asked = Asked(Way.HTTP, "mia", "login-code", NINE_MS, expires_at_ms=NINE_MS + 600_000)
    given: dict[str, Any] = {
        "notification_id": "nabc",
        "now_ms": NINE_MS + 10_000,
        "tries_most": 8,
        "asked": asked,
        "policy": CODE,
        "slot": slot,
        "told": Told(tuple(events)),
        "zone": "Europe/Berlin",
        "providers": WELL,
        "serves": SERVES,
    }
    return Facts(**{**given, **more})


def delivery(state: str, channel: str = "sms", **more: Any) -> DeliveryView:
    given: dict[str, Any] = {
        "channel": channel,
        "device": "",
        "state": state,
        "reason": "",
        "detail": "",
        "provider": "",
        "calls": 0,
        "sent_at_ms": 0,
        "waits_until_ms": 0,
        "possible_duplicates": 0,
    }
    return DeliveryView(**{**given, **more})


def event(kind: EventKind, after_ms: int, delivery: str = "sms", **more: Any) -> StatusEvent:
    return StatusEvent(0, kind, NINE_MS + after_ms, delivery, **more)
