"""What a provider's callback says, read into one form: the seam between its reader and `route callbacks`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

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
