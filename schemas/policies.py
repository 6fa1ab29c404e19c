"""What a template decides: class, channels, fallback, expiry, caps, what to do when the outcome is unknown."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from schemas.messages import Channel, Priority

HOUR_MS = 3_600_000
TRANSACTIONAL_EXPIRY_MS = 20 * HOUR_MS
MARKETING_EXPIRY_MS = 72 * HOUR_MS


class MessageClass(StrEnum):
    """A template without one is marketing."""

    TRANSACTIONAL = "transactional"
    MARKETING = "marketing"


class OnUnknown(StrEnum):
    """What to do when a call may have been accepted: call again, or end `unconfirmed`."""

    RISK_REPEAT = "risk_repeat"
    RISK_LOSS = "risk_loss"


@dataclass(frozen=True, slots=True)
class TemplatePolicy:
    """template.toml, checked. channels: all of these are sent; fallback: tried in order; at least one is given."""

    name: str
    message_class: MessageClass
    channels: tuple[Channel, ...]
    fallback: tuple[Channel, ...] = ()
    expires_ms: int = 0
    caps: dict[str, int] = field(default_factory=dict)
    content_check: str = "template"
    on_unknown: OnUnknown = OnUnknown.RISK_REPEAT

    def priority(self, requested: str) -> Priority:
        """The lane for a request: a request may lower the class (priority "bulk"), never raise it."""
        if self.message_class is MessageClass.TRANSACTIONAL and requested != Priority.BULK:
            return Priority.TRANSACTIONAL
        return Priority.BULK

    def expiry_ms(self) -> int:
        """How long a message stays worth sending, from its acceptance."""
        if self.expires_ms:
            return self.expires_ms
        return TRANSACTIONAL_EXPIRY_MS if self.message_class is MessageClass.TRANSACTIONAL else MARKETING_EXPIRY_MS


Policies = dict[str, TemplatePolicy]
"""Template name -> policy; loaded once, shared by API, route, fan-out and workers."""
