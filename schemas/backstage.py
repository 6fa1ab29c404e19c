"""What senders know of a message and of their providers, for those who explain it: the port of `tidings explain`.

Only read. The body is in `consumers`, since claims and breakers are; it is handed over by `deploy`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from schemas import keys


class ClaimState(StrEnum):
    """FREE: nobody has it in hand. LAPSED: who had it did not come back. The others: what was decided last."""

    FREE = "free"
    SENDING = "sending"
    LAPSED = "lapsed"
    WAITING = "waiting"
    SENT = "sent"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A delivery's claim. call: the number it is about. until_ms: end of the lease.

    tries: of the calls, those that failed and count against the limit; None when the claim does not say it (any more).
    """

    state: ClaimState
    call: int
    until_ms: int
    tries: int | None = None


class ProviderState(StrEnum):
    """OPEN: no calls. TESTED: a few, to see whether it is back. REFUSES_US: a person must put our account right."""

    WELL = "well"
    OPEN = "open"
    TESTED = "tested"
    REFUSES_US = "refuses_us"


@dataclass(frozen=True, slots=True)
class ProviderView:
    """left_ms: until it is tested again."""

    state: ProviderState
    left_ms: int = 0


class Backstage(Protocol):
    """All raise StoreDown when Redis cannot be asked or trusted."""

    async def claims(self, tenant: str, user_id: str, intent: str, suffixes: Sequence[str]) -> Mapping[str, ClaimView]:
        """By delivery suffix, of those deliveries that have a claim."""
        ...

    async def place(self, tenant: str, user_id: str, intent: str) -> keys.Address | None:
        """Where this intent was planned; None when that is not known (any more)."""
        ...

    async def providers(self, names: Sequence[str]) -> Mapping[str, ProviderView]:
        """By name."""
        ...
