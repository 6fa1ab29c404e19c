"""What follows from a provider's answer: temporary."""

from __future__ import annotations

import random

from consumers.sending import Sending
from consumers.telling import tier_until
from consumers.verdicts import Verdict
from schemas.clock import Clock
from schemas.messages import EventKind
from schemas.outcomes import Kind, Outcome
from schemas.reasons import Reason


class OutcomeJudge:
    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng

    def judge(self, sending: Sending, outcome: Outcome, provider: str) -> Verdict:
        now = self._clock.now_ms()
        kind, detail = outcome.kind, outcome.detail
        if kind is Kind.DONE:
            return Verdict(EventKind.SENT, now, provider=provider, provider_id=outcome.provider_id, called=True)
        until, tier = tier_until(now + 1000, now)
        return Verdict(
            EventKind.RETRYING,
            now,
            Reason.PROVIDER_ERROR,
            detail,
            provider,
            until_ms=until,
            tier=tier,
            tries=sending.delivery.tries + 1,
            called=True,
        )
