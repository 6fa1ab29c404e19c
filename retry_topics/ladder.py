"""What follows from a provider's answer: sent, a later try and where it waits, or an end.

The one place where every kind of outcome is matched. Decides, talks to nobody; `consumers` carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import assert_never

from schemas.messages import Channel, EventKind
from schemas.outcomes import Kind, Outcome
from schemas.policies import OnUnknown
from schemas.reasons import ParkReason, Reason
from schemas.topics import TIERS

TRIES_MOST = 8
BASE_MS = 1_000
CEILING_MOST_MS = 300_000
HOLD_ABOVE_MS = max(TIERS.values())
"""Who has to wait longer than the longest tier waits in hold."""
CONFIG_WAIT_MS = (10_000, 60_000)
"""A person mends a wrong setting; meanwhile its deliveries come back this late, to be failed over or kept again."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A delivery and the call just made. call: its number, from 1; tries: counted calls before this one."""

    channel: Channel
    call: int
    tries: int
    expires_at_ms: int
    on_unknown: OnUnknown


@dataclass(frozen=True, slots=True)
class Verdict:
    """kind: SENT, RETRYING (in tier until until_ms), HELD (longer than any tier), UNCONFIRMED for good, or an end.

    tries: what the next record carries. park: the error class under which the record goes to the DLQ as well.
    suppress: the address must not be used again. is_unknown: the call may have been accepted although it is repeated.
    A HELD verdict names the longest tier too, for where there is no hold.
    """

    kind: EventKind
    reason: Reason = Reason.NONE
    tries: int = 0
    until_ms: int = 0
    tier: str = ""
    park: str = ""
    suppress: bool = False
    is_unknown: bool = False


def judge(outcome: Outcome, attempt: Attempt, now_ms: int, rng: Random, *, over_budget: bool = False) -> Verdict:
    """What becomes of the delivery. over_budget: retries use more than their share of the provider's sends.

    A wait that would end at or after the expiry is never begun: the delivery is expired.
    """
    match outcome.kind:
        case Kind.DONE:
            return Verdict(EventKind.SENT, tries=attempt.tries)
        case Kind.RETRY:
            return _counted(outcome, attempt, now_ms, rng, Reason.PROVIDER_ERROR, over_budget)
        case Kind.UNKNOWN:
            return _unknown(outcome, attempt, now_ms, rng, over_budget)
        case Kind.NOT_PROCESSED:
            return _uncounted(outcome, attempt, now_ms, rng, Reason.PROVIDER_DOWN)
        case Kind.THROTTLE:
            return _uncounted(outcome, attempt, now_ms, rng, Reason.PROVIDER_THROTTLED)
        case Kind.AUTH_CONFIG:
            wait_ms = max(int(rng.uniform(*CONFIG_WAIT_MS)), outcome.retry_after_ms or 0)
            return _waiting(attempt, attempt.tries, now_ms, wait_ms, Reason.PROVIDER_CONFIG)
        case Kind.DROP:
            return Verdict(EventKind.FAILED, Reason.REFUSED_BY_PROVIDER, attempt.tries, park=ParkReason.REFUSED)
        case Kind.DEAD_ADDRESS:
            dead = Reason.DEAD_DEVICE if attempt.channel is Channel.PUSH else Reason.ADDRESS_REFUSED
            return Verdict(EventKind.FAILED, dead, attempt.tries)
        case Kind.SUPPRESS:
            return Verdict(EventKind.FAILED, Reason.ADDRESS_REFUSED, attempt.tries, suppress=True)
        case Kind.BLOCKED:
            return Verdict(EventKind.FAILED, Reason.BLOCKED_BY_PROVIDER, attempt.tries)
        case _:
            assert_never(outcome.kind)


def ceiling_ms(number: int) -> int:
    """The longest wait after the number-th failure: 1, 2, 4 ... 256 s, then 5 min."""
    return min(CEILING_MOST_MS, BASE_MS << min(number - 1, 16)) if number > 0 else BASE_MS


def tier_for(wait_ms: int) -> str:
    """The shortest tier whose range covers the wait; the longest one for what exceeds all."""
    return next((tier for tier, longest_ms in TIERS.items() if wait_ms <= longest_ms), _longest_tier())


def range_ms(tier: str) -> tuple[int, int]:
    """(shortest, longest) wait of a tier."""
    names = list(TIERS)
    position = names.index(tier)
    return (TIERS[names[position - 1]] if position else 0), TIERS[tier]


def _counted(
    outcome: Outcome, attempt: Attempt, now_ms: int, rng: Random, reason: Reason, over_budget: bool
) -> Verdict:
    wait_ms = _jittered(attempt.tries + 1, outcome, rng)
    if over_budget:
        return _waiting(attempt, attempt.tries, now_ms, _in_longer_tier(wait_ms, rng), reason)
    tries = attempt.tries + 1
    if tries >= TRIES_MOST:
        return Verdict(EventKind.FAILED, Reason.TRIES_USED_UP, tries, park=ParkReason.TRIES_USED_UP)
    return _waiting(attempt, tries, now_ms, wait_ms, reason)


def _unknown(outcome: Outcome, attempt: Attempt, now_ms: int, rng: Random, over_budget: bool) -> Verdict:
    """The call may have been accepted: the template says whether a repeat or a loss is worse."""
    if attempt.on_unknown is OnUnknown.RISK_LOSS:
        return Verdict(EventKind.UNCONFIRMED, Reason.UNKNOWN_OUTCOME, attempt.tries)
    verdict = _counted(outcome, attempt, now_ms, rng, Reason.UNKNOWN_OUTCOME, over_budget)
    repeats = verdict.kind in (EventKind.RETRYING, EventKind.HELD)
    return Verdict(
        verdict.kind, verdict.reason, verdict.tries, verdict.until_ms, verdict.tier, verdict.park, is_unknown=repeats
    )


def _uncounted(outcome: Outcome, attempt: Attempt, now_ms: int, rng: Random, reason: Reason) -> Verdict:
    """The provider never looked at the message: no try is used up; only the expiry ends this."""
    return _waiting(attempt, attempt.tries, now_ms, _jittered(attempt.call, outcome, rng), reason)


def _waiting(attempt: Attempt, tries: int, now_ms: int, wait_ms: int, reason: Reason) -> Verdict:
    until_ms = now_ms + wait_ms
    if until_ms >= attempt.expires_at_ms:
        return Verdict(EventKind.EXPIRED, Reason.EXPIRED, tries)
    kind = EventKind.HELD if wait_ms > HOLD_ABOVE_MS else EventKind.RETRYING
    return Verdict(kind, reason, tries, until_ms, tier_for(wait_ms))


def _jittered(number: int, outcome: Outcome, rng: Random) -> int:
    """Full jitter below the ceiling, never before the provider's own wish."""
    return max(int(rng.uniform(0, ceiling_ms(number))), outcome.retry_after_ms or 0)


def _in_longer_tier(wait_ms: int, rng: Random) -> int:
    """A wait in the tier above the one that would cover wait_ms, and never shorter than it."""
    names = list(TIERS)
    longer = names[min(names.index(tier_for(wait_ms)) + 1, len(names) - 1)]
    return max(wait_ms, int(rng.uniform(*range_ms(longer))))


def _longest_tier() -> str:
    return list(TIERS)[-1]
