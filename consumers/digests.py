"""Messages that go out as one: who waits for others, and until when at the latest.

Here a delivery is put into hold; there `streams/digests.py` makes one message of those of a user. That one, and a
delivery that nobody else came to join, come back with `digest_of` set and wait for nobody any more.
"""

from __future__ import annotations

from consumers.verdicts import Verdict
from retry_topics import hold
from schemas import keys
from schemas.messages import Delivery, EventKind
from schemas.policies import OverCap, TemplatePolicy
from schemas.reasons import Reason
from schemas.trips import Trip

MARK_KEPT_S = 86_400
_NEVER_MS = 2**62


def is_gathered(delivery: Delivery, policy: TemplatePolicy) -> bool:
    """Whether it waits for others. Not what was called already, before its template said so."""
    return policy.digest_ms > 0 and not delivery.digest_of and delivery.call == 1


def gathered(delivery: Delivery, policy: TemplatePolicy, quiet_until_ms: int, now_ms: int) -> Verdict:
    """Its wait for those who come within its template's time, and until the end of quiet hours, 0 outside of them.

    Where it would expire meanwhile, whoever waits goes out now. It passes through hold all the same: there it is known
    whether another copy of its record has gone out in a digest.
    """
    waits = _held(delivery, max(now_ms + policy.digest_ms, quiet_until_ms), now_ms)
    return waits or Verdict(
        EventKind.HELD, now_ms, Reason.DIGEST, until_ms=max(now_ms, quiet_until_ms), tries=delivery.tries
    )


def over_cap(delivery: Delivery, policy: TemplatePolicy, day_ends_ms: int, detail: str, now_ms: int) -> Verdict:
    """What becomes of a delivery whose cap is used up by what was sent. day_ends_ms: when the user's date does.

    It waits for the next day with all others of them, or is dropped: so too if it would expire before. A user's
    digests of all templates go at one moment, those of all users within half an hour: sooner where a message lives for
    less than an hour of that day.
    """
    if policy.over_cap is OverCap.DIGEST:
        spread_ms = hold.spread_ms(keys.user_key(delivery.tenant, delivery.user_id))
        delay_ms = hold.fitted_ms(spread_ms, day_ends_ms, delivery.expires_at_ms or _NEVER_MS)
        waits = _held(delivery, day_ends_ms + delay_ms, now_ms)
        if waits is not None:
            return waits._replace(detail=detail)
    return Verdict(EventKind.SUPPRESSED, now_ms, Reason.CAPPED, detail)


def may_be_in_one(delivery: Delivery, policy: TemplatePolicy) -> bool:
    """Whether another copy of its record may have been above a cap, and have gone out in a digest."""
    return policy.over_cap is OverCap.DIGEST and not delivery.digest_of


def ask_digest(trip: Trip, delivery: Delivery) -> None:
    """Asks in which it did; one command."""
    trip.execute_command("GET", _mark_key(delivery))


def in_digest(reply: bytes | None, now_ms: int) -> Verdict | None:
    """The end of a delivery that did; None where it went in none."""
    if reply is None or reply == keys.IN_NO_DIGEST:
        return None
    named = reply.decode().partition(" ")[2]
    return Verdict(EventKind.SUPPRESSED, now_ms, Reason.IN_DIGEST, f"in digest {named}".rstrip())


def ask_went_alone(trip: Trip, delivery: Delivery) -> None:
    """Keeps a copy that still waits out of the digest: this one was sent. One command."""
    trip.execute_command("SET", _mark_key(delivery), keys.IN_NO_DIGEST, "NX", "EX", MARK_KEPT_S)


def _mark_key(delivery: Delivery) -> str:
    return keys.redis_digest(delivery.tenant, delivery.user_id, delivery.intent, delivery.channel)


def _held(delivery: Delivery, until_ms: int, now_ms: int) -> Verdict | None:
    if until_ms >= (delivery.expires_at_ms or _NEVER_MS):
        return None
    return Verdict(EventKind.HELD, now_ms, Reason.DIGEST, until_ms=until_ms, tries=delivery.tries)
