"""Turning to the next channel: once for each channel of the list, decided by one script over all who may ask.

What is known of it lies under one key per intent and channel, beside the claims of the deliveries it is about. It
says who started it, so that the same is told again after a crash, and when a provider was first found away.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from schemas import keys
from schemas.messages import Delivery, Priority
from schemas.trips import Trip, script_beside

ASK = script_beside(__file__, "claim_entry.lua", "fallback_ask.lua")
KEEP_S = 86_400
"""As long as claims: what is older is refused by its age."""


class Wish(Enum):
    """What somebody who asks wants.

    DELIVERY: it cannot be reached itself; another of its siblings still may. CHANNEL: none of its channel can be
    reached for now, so those that wait are given up. NOTHING: it ended for a reason of its own, and may be the last.
    NEVER: nobody knows whether it was sent, or it must not be sent elsewhere.
    """

    DELIVERY = "D"
    CHANNEL = "C"
    NOTHING = "O"
    NEVER = "N"


class Standing(Enum):
    """What is known of the fallback, as one delivery sees it. GIVEN_UP: its channel was; nothing has started."""

    OPEN = "open"
    GIVEN_UP = "given_up"
    STARTED_HERE = "started_here"
    STARTED_ELSEWHERE = "started_elsewhere"


STARTED = frozenset({Standing.STARTED_HERE, Standing.STARTED_ELSEWHERE})


class Question(NamedTuple):
    """after_ms: how long ago somebody must first have asked for the channel; 0: at once."""

    delivery: Delivery
    wish: Wish
    after_ms: int = 0


class Found(NamedTuple):
    """left_ms: until it may start, where it is too early."""

    standing: Standing
    left_ms: int = 0


class Fallbacks(Protocol):
    """The port. Each ask* adds exactly one command to a trip; the read* of the same name reads its reply."""

    def ask_standing(self, trip: Trip, delivery: Delivery) -> None: ...

    def read_standing(self, reply: Any, delivery: Delivery) -> Standing: ...

    def ask(self, trip: Trip, question: Question) -> None:
        """Starts the fallback if it may start now; asked again by the same delivery the answer is the same."""
        ...

    def read(self, reply: Any, question: Question) -> Found: ...


class RedisFallbacks:
    """Body of `Fallbacks`."""

    def ask_standing(self, trip: Trip, delivery: Delivery) -> None:
        trip.execute_command("GET", _key(delivery))

    def read_standing(self, reply: Any, delivery: Delivery) -> Standing:
        if isinstance(reply, Exception):
            raise reply
        return standing(reply or b"", delivery)

    def ask(self, trip: Trip, question: Question) -> None:
        delivery, wish, after_ms = question
        claims = [keys.redis_claim(delivery.tenant, delivery.user_id, key) for key in sibling_keys(delivery)]
        channels = [sibling.partition("/")[0] for sibling in delivery.siblings]
        who = (asker(delivery), delivery.channel.value, wish.value)
        trip.run(ASK, (_key(delivery), *claims), *who, after_ms, KEEP_S, *channels)

    def read(self, reply: Any, question: Question) -> Found:
        known, left_ms = reply
        return Found(standing(known, question.delivery), int(left_ms))


def is_watched(delivery: Delivery) -> bool:
    """Whether its fallback may be started by anything but its own end: it must not be called afterwards."""
    return bool(delivery.fallback) and (bool(delivery.siblings) or may_wait_too_long(delivery))


def may_wait_too_long(delivery: Delivery) -> bool:
    """Whether it turns to the next channel when its provider is away: marketing waits."""
    return bool(delivery.fallback) and delivery.priority is Priority.TRANSACTIONAL


def asker(delivery: Delivery) -> str:
    """How it is named in what is known. A redrive is another asker: it starts nothing for a second time."""
    return f"{delivery.generation}:{keys.delivery_suffix(delivery.channel, delivery.device)}"


def sibling_keys(delivery: Delivery) -> Sequence[str]:
    """The delivery keys of its siblings."""
    return [f"{delivery.intent}:{sibling}" for sibling in delivery.siblings]


def standing(known: bytes, delivery: Delivery) -> Standing:
    """What this says to the delivery. What was started before it was redriven does not stop it."""
    match known[:1]:
        case b"S":
            generation, _, _ = known[1:].partition(b":")
            if int(generation) < delivery.generation:
                return Standing.OPEN
            is_own = known[1:].decode() == asker(delivery)
            return Standing.STARTED_HERE if is_own else Standing.STARTED_ELSEWHERE
        case b"A" if delivery.channel.value.encode() in known.split(b",")[1:]:
            return Standing.GIVEN_UP
    return Standing.OPEN


def _key(delivery: Delivery) -> str:
    return keys.redis_fallback(delivery.tenant, delivery.user_id, delivery.intent, delivery.fallback[0])
