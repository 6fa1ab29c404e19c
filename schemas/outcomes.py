"""What a provider's answer means (closed list); one vocabulary for every adapter.

`retry_topics/ladder.py` is the one place where every kind is matched to a verdict.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """Classes of answers: whether the message was accepted, and whose fault it is when not."""

    DONE = "done"
    RETRY = "retry"
    NOT_PROCESSED = "not_processed"
    THROTTLE = "throttle"
    DROP = "drop"
    DEAD_ADDRESS = "dead_address"
    SOFT_BOUNCE = "soft_bounce"
    SUPPRESS = "suppress"
    BLOCKED = "blocked"
    AUTH_CONFIG = "auth_config"
    UNKNOWN = "unknown"


class Scope(StrEnum):
    """What a throttled call was one too many for: all we send there, the sender's number, or whom it went to."""

    LANE = "lane"
    SENDER = "sender"
    RECIPIENT = "recipient"
    DOMAIN = "domain"


class Outcome(NamedTuple):
    """One answer. provider_id: the provider's message id; retry_after_ms: its own wish, already clamped.

    scope: of a THROTTLE. detail is at most 200 characters, for people; it never holds a body, an address or a token.
    """

    kind: Kind
    provider_id: str = ""
    detail: str = ""
    retry_after_ms: int | None = None
    scope: Scope = Scope.LANE
