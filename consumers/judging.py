"""From a provider's answer to a verdict: `retry_topics/ladder.py` decides, this knows the delivery and the provider."""

from __future__ import annotations

import random

from consumers import soft_bounces
from consumers.sending import Seat, Sending
from consumers.verdicts import Verdict
from retry_topics import ladder
from retry_topics.budget import RetryBudget
from schemas import keys, metrics
from schemas.clock import Clock
from schemas.messages import Channel, EventKind
from schemas.outcomes import Kind, Outcome, Scope

_NEVER_MS = 2**53
_RETRIES = (Kind.RETRY, Kind.UNKNOWN)
_WHOLE_PROVIDER = (Scope.LANE, Scope.SENDER)


class OutcomeJudge:
    """Judges the outcomes of calls. has_standby: another provider may take what this one wants less of."""

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        budget: RetryBudget,
        options: ladder.LadderOptions = ladder.DEFAULT,
        *,
        has_standby: bool = False,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._budget = budget
        self._options = options
        self._has_standby = has_standby

    def judge(self, sending: Sending, outcome: Outcome, seat: Seat) -> Verdict:
        """What becomes of the delivery after this call."""
        now_ms = self._clock.now_ms()
        provider = seat.provider.name
        if outcome.kind is Kind.DONE:
            return Verdict(EventKind.SENT, now_ms, provider=provider, provider_id=outcome.provider_id, called=True)
        if self._has_standby and outcome.kind is Kind.THROTTLE and outcome.scope in _WHOLE_PROVIDER:
            outcome = outcome._replace(retry_after_ms=None)  # the provider is left alone; the message need not wait
        over = outcome.kind in _RETRIES and not self._budget.allows(*seat.breaker.recent)
        found = ladder.judge(outcome, _attempt(sending), now_ms, self._rng, self._options, over_budget=over)
        if over and found.until_ms:
            metrics.OVER_BUDGET.labels(provider).inc()
        cause = _cause(sending, outcome, found)
        return Verdict(
            kind=found.kind,
            at_ms=now_ms,
            reason=found.reason,
            detail=outcome.detail,
            provider=provider,
            until_ms=found.until_ms,
            tier=found.tier,
            tries=found.tries,
            park=found.park,
            cause=cause,
            is_unknown=found.is_unknown,
            called=True,
            address_hash=keys.address_hash(sending.delivery.channel, sending.address) if cause else "",
        )


def _attempt(sending: Sending) -> ladder.Attempt:
    delivery = sending.delivery
    return ladder.Attempt(
        channel=delivery.channel,
        call=sending.held_claim().call,
        tries=delivery.tries,
        expires_at_ms=delivery.expires_at_ms or _NEVER_MS,
        on_unknown=sending.known_policy().on_unknown,
    )


def _cause(sending: Sending, outcome: Outcome, found: ladder.Verdict) -> str:
    """Why the address is not used any more. A dead push token is known by its hash: a new one has another."""
    if found.suppress:
        return "refused"
    if outcome.kind is Kind.SOFT_BOUNCE:
        return soft_bounces.FIRST
    is_dead = outcome.kind is Kind.DEAD_ADDRESS and sending.delivery.channel is Channel.PUSH
    return "dead_device" if is_dead else ""
