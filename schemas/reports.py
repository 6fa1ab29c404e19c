"""What a provider says became of a message, by itself or when asked: one form for what its readers make of it.

Callbacks are read for `route callbacks`; providers with a status API are asked by `reconcile`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from schemas.messages import EventKind, RawCallback


class Report(NamedTuple):
    """One report on one message. kind: DELIVERED, UNDELIVERED, BOUNCED or COMPLAINED.

    reference: as we gave it to the provider; "" when it cannot carry one, then message_id finds the call.
    suppress: the address must not be written to again.
    """

    kind: EventKind
    reference: str
    message_id: str
    at_ms: int
    detail: str = ""
    suppress: bool = False


Reader = Callable[[RawCallback], Sequence[Report]]
"""Reads a verified callback; skips and counts what it does not know. Raises Poison for a body that is no callback."""


class Silence(StrEnum):
    """Why a provider that was asked told nothing. PENDING: it does not know yet; UNKNOWN: it knows no such message.

    UNASKED: the pace of asking had no place for it.
    """

    PENDING = "pending"
    UNKNOWN = "unknown"
    NO_ANSWER = "no_answer"
    UNASKED = "unasked"


class StatusApi(Protocol):
    """Where a provider can be asked what became of a message. Adapters of providers without one do not have this."""

    async def ask(self, message_id: str) -> Report | Silence:
        """message_id: the provider's own. Never raises for what the outside world does; ends within a time-out."""
        ...
