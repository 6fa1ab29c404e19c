"""What follows from a provider's answer: sent, a later try and where it waits, or an end.

The one place where every kind of outcome is matched. Decides, talks to nobody; `consumers` carries it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import assert_never

from schemas.messages import Channel, EventKind
from schemas.outcomes import Kind, Outcome
from schemas.policies import OnUnknown
from schemas.reasons import ParkReason, Reason
from schemas.topics import TIERS

CONFIG_WAIT_MS = (10_000, 60_000)
"""A person mends a wrong setting; meanwhile its deliveries come back this late, to be failed over or kept again."""


@dataclass(frozen=True, slots=True)
class LadderOptions:
    """tries_most: counted calls of a delivery. base_ms, cap_ms: the longest wait after the first failure and after
    any. tiers: name -> its longest wait, shortest first; `forward` must be told the same.
    """

    tries_most: int = 8
    base_ms: int = 1_000
    cap_ms: int = 300_000
    tiers: Mapping[str, int] = field(default_factory=lambda: TIERS)

    @property
    def hold_above_ms(self) -> int:
        """Who has to wait longer than the longest tier waits in hold."""
        return self.tiers[self._longest_tier()]

    def ceiling_ms(self, number: int) -> int:
        """The longest wait after the number-th failure: doubling from the base up to the cap."""
        return min(self.cap_ms, self.base_ms << min(max(number - 1, 0), 16))

    def tier_for(self, wait_ms: int) -> str:
        """The shortest tier whose range covers the wait; the longest one for what exceeds all, and is held instead."""
        covering = (tier for tier, longest_ms in self.tiers.items() if wait_ms <= longest_ms)
        return next(covering, self._longest_tier())

    def range_ms(self, tier: str) -> tuple[int, int]:
        """(shortest, longest) wait of a tier."""
        names = list(self.tiers)
        position = names.index(tier)
        return (self.tiers[names[position - 1]] if position else 0), self.tiers[tier]

    def longer_tier(self, wait_ms: int) -> str:
        """The tier above the one that would cover the wait."""
        names = list(self.tiers)
        return names[min(names.index(self.tier_for(wait_ms)) + 1, len(names) - 1)]

    def _longest_tier(self) -> str:
        return list(self.tiers)[-1]


DEFAULT = LadderOptions()


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
    """kind: SENT, RETRYING (in tier until until_ms), HELD (until then, longer than any tier), UNCONFIRMED for good, or
    an end.

    tries: what the next record carries. park: the error class under which the record goes to the DLQ as well.
    suppress: the address must not be used again. is_unknown: the call may have been accepted although it is repeated,
    or, where the tries are used up, although the delivery failed.
    """

    kind: EventKind
    reason: Reason = Reason.NONE
    tries: int = 0
    until_ms: int = 0
    tier: str = ""
    park: str = ""
    suppress: bool = False
    is_unknown: bool = False


def judge(
    outcome: Outcome,
    attempt: Attempt,
    now_ms: int,
    rng: Random,
    options: LadderOptions = DEFAULT,
    *,
    over_budget: bool = False,
) -> Verdict:
    """What becomes of the delivery. over_budget: retries use more than their share of the provider's sends.

    A wait that would end at or after the expiry is never begun: the delivery is expired.
    """
    moment = _Moment(outcome, attempt, now_ms, rng, options, over_budget)
    match outcome.kind:
        case Kind.DONE:
            return Verdict(EventKind.SENT, tries=attempt.tries)
        case Kind.RETRY:
            return moment.counted(Reason.PROVIDER_ERROR)
        case Kind.UNKNOWN:
            return moment.unknown()
        case Kind.NOT_PROCESSED:
            return moment.uncounted(Reason.PROVIDER_DOWN)
        case Kind.THROTTLE:
            return moment.uncounted(Reason.PROVIDER_THROTTLED)
        case Kind.AUTH_CONFIG:
            wait_ms = max(int(rng.uniform(*CONFIG_WAIT_MS)), outcome.retry_after_ms or 0)
            return moment.waiting(attempt.tries, wait_ms, Reason.PROVIDER_CONFIG)
        case Kind.DROP:
            return Verdict(EventKind.FAILED, Reason.REFUSED_BY_PROVIDER, attempt.tries, park=ParkReason.REFUSED)
        case Kind.DEAD_ADDRESS:
            dead = Reason.DEAD_DEVICE if attempt.channel is Channel.PUSH else Reason.ADDRESS_REFUSED
            return Verdict(EventKind.FAILED, dead, attempt.tries)
        case Kind.SOFT_BOUNCE:
            return Verdict(EventKind.FAILED, Reason.ADDRESS_REFUSED, attempt.tries)
        case Kind.SUPPRESS:
            return Verdict(EventKind.FAILED, Reason.ADDRESS_REFUSED, attempt.tries, suppress=True)
        case Kind.BLOCKED:
            return Verdict(EventKind.FAILED, Reason.BLOCKED_BY_PROVIDER, attempt.tries)
        case _:
            assert_never(outcome.kind)


@dataclass(frozen=True, slots=True)
class _Moment:
    """What a verdict on a call that did not succeed is made from."""

    outcome: Outcome
    attempt: Attempt
    now_ms: int
    rng: Random
    options: LadderOptions
    over_budget: bool

    def counted(self, reason: Reason) -> Verdict:
        tries, wait_ms = self.attempt.tries + 1, self._jittered(self.attempt.tries + 1)
        if self.over_budget:
            return self.waiting(self.attempt.tries, self._in_longer_tier(wait_ms), reason)
        if tries >= self.options.tries_most:
            return Verdict(EventKind.FAILED, Reason.TRIES_USED_UP, tries, park=ParkReason.TRIES_USED_UP)
        return self.waiting(tries, wait_ms, reason)

    def unknown(self) -> Verdict:
        """The call may have been accepted: the template says whether a repeat or a loss is worse."""
        if self.attempt.on_unknown is OnUnknown.RISK_LOSS:
            return Verdict(EventKind.UNCONFIRMED, Reason.UNKNOWN_OUTCOME, self.attempt.tries)
        verdict = self.counted(Reason.UNKNOWN_OUTCOME)
        if verdict.kind is EventKind.EXPIRED:  # no call follows, so nobody will ever know what came of this one
            return Verdict(EventKind.UNCONFIRMED, Reason.UNKNOWN_OUTCOME, verdict.tries)
        return replace(verdict, is_unknown=True)

    def uncounted(self, reason: Reason) -> Verdict:
        """The provider never looked at the message: no try is used up; only the expiry ends this."""
        return self.waiting(self.attempt.tries, self._jittered(self.attempt.call), reason)

    def waiting(self, tries: int, wait_ms: int, reason: Reason) -> Verdict:
        until_ms = self.now_ms + wait_ms
        if until_ms >= self.attempt.expires_at_ms:
            return Verdict(EventKind.EXPIRED, Reason.EXPIRED, tries)
        if wait_ms > self.options.hold_above_ms:
            return Verdict(EventKind.HELD, reason, tries, until_ms)
        return Verdict(EventKind.RETRYING, reason, tries, until_ms, self.options.tier_for(wait_ms))

    def _jittered(self, number: int) -> int:
        """Full jitter below the ceiling, never before the provider's own wish."""
        return max(int(self.rng.uniform(0, self.options.ceiling_ms(number))), self.outcome.retry_after_ms or 0)

    def _in_longer_tier(self, wait_ms: int) -> int:
        """A wait in the tier above the one that would cover wait_ms, and never shorter than it."""
        longer = self.options.longer_tier(wait_ms)
        return max(wait_ms, int(self.rng.uniform(*self.options.range_ms(longer))))
