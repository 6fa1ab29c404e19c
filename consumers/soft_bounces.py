"""Addresses that may be right though a message was refused there: no route, a mailbox that is switched off.

The first such message of an address ends as refused, and the address is used again; the second within thirty days
suppresses it. Kept in Redis only: emptied, the counting begins anew.
"""

from __future__ import annotations

from typing import Any

from consumers.sending import Sending
from consumers.verdicts import Verdict
from schemas import keys
from schemas.trips import Trip

FIRST = "soft_bounce"
"""Cause of a verdict that nobody has looked up yet: never published, never kept with a claim."""
AGAIN = "bounced_again"
KEPT_S = 30 * 86_400


def is_one(verdict: Verdict) -> bool:
    return verdict.cause == FIRST


def without(verdict: Verdict) -> Verdict:
    """As the claim keeps it: whoever publishes it in a dead worker's place suppresses nothing."""
    return verdict._replace(cause="", address_hash="") if is_one(verdict) else verdict


def ask(trip: Trip, sending: Sending, verdict: Verdict) -> None:
    """Notes the message at its address; one command. Asked twice, it says the same."""
    delivery = sending.delivery
    key = keys.redis_soft_bounce(delivery.tenant, delivery.channel, verdict.address_hash)
    trip.execute_command("SET", key, sending.bid.delivery_key, "NX", "GET", "EX", KEPT_S)


def found(verdict: Verdict, sending: Sending, reply: Any) -> Verdict:
    """The verdict with what follows for the address; a reply that failed counts as the first one."""
    is_again = isinstance(reply, bytes) and reply.decode() != sending.bid.delivery_key
    return verdict._replace(cause=AGAIN) if is_again else without(verdict)
