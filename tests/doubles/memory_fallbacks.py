"""The fallbacks in memory: same port, same answers (`tests/contract/test_fallbacks.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from consumers import fallbacks
from consumers.claims import Entry, VerdictClass
from consumers.fallbacks import Found, Question, Standing, Wish
from schemas import keys
from schemas.clock import Clock
from schemas.messages import Delivery
from schemas.trips import Trip
from tests.doubles.memory_claims import MemoryClaims


@dataclass
class _Known:
    since_ms: int
    asked: bool = False
    given_up: set[str] = field(default_factory=set)
    started: str = ""
    never: bool = False

    def packed(self) -> bytes:
        """As the script keeps it."""
        if self.never or self.started:
            return b"N" if self.never else f"S{self.started}".encode()
        head = f"{'A' if self.asked else '-'}{self.since_ms}"
        return ",".join((head, *sorted(self.given_up))).encode()


class MemoryFallbacks:
    """Decides over the claims of a `MemoryClaims`."""

    def __init__(self, claims: MemoryClaims, clock: Clock) -> None:
        self._claims = claims
        self._clock = clock
        self.known: dict[tuple[str, str], _Known] = {}

    def ask_standing(self, trip: Trip, delivery: Delivery) -> None:
        trip.execute_command(lambda: self._packed(delivery))

    def read_standing(self, reply: Any, delivery: Delivery) -> Standing:
        return fallbacks.standing(reply, delivery)

    def ask(self, trip: Trip, question: Question) -> None:
        trip.execute_command(lambda: self.decide(question))

    def read(self, reply: Any, question: Question) -> Found:
        known, left_ms = reply
        return Found(fallbacks.standing(known, question.delivery), left_ms)

    def _packed(self, delivery: Delivery) -> bytes:
        known = self.known.get(_place(delivery))
        return b"" if known is None else known.packed()

    def decide(self, question: Question) -> tuple[bytes, int]:
        """What is known then, and what is left until it may start."""
        left_ms = self._asked(question)
        return self._packed(question.delivery), left_ms

    def _asked(self, question: Question) -> int:
        """What is left of the time that the channel must have been asked for."""
        delivery, wish, after_ms = question
        now_ms, place = self._clock.now_ms(), _place(delivery)
        known = self.known.get(place, _Known(now_ms))
        if known.started or known.never:
            return 0
        early_ms = after_ms - (now_ms - known.since_ms)
        if wish is Wish.CHANNEL and after_ms and early_ms > 0:
            self.known[place] = known
            return early_ms
        siblings = [(name.partition("/")[0], self._entry(delivery, name)) for name in delivery.siblings]
        known.never = wish is Wish.NEVER or any(entry and entry.verdict is VerdictClass.SENT for _, entry in siblings)
        known.given_up |= {delivery.channel.value} if wish is Wish.CHANNEL else set()
        known.asked |= wish is not Wish.NOTHING
        if known.never or known.asked:
            self.known[place] = known
        if not any(_goes_on(entry, channel in known.given_up) for channel, entry in siblings) and known.asked:
            known.started = fallbacks.asker(delivery)
        return 0

    def _entry(self, delivery: Delivery, name: str) -> Entry | None:
        key = keys.redis_claim(delivery.tenant, delivery.user_id, f"{delivery.intent}:{name}")
        return self._claims.entries.get(key)


def _goes_on(entry: Entry | None, is_given_up: bool) -> bool:
    """Whether it is being called, or still may be."""
    if entry is not None and entry.verdict is VerdictClass.ENDED:
        return False
    return (entry is not None and entry.is_open()) or not is_given_up


def _place(delivery: Delivery) -> tuple[str, str]:
    return delivery.intent, delivery.fallback[0]
