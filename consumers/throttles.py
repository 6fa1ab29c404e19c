"""What a provider asked to be slower with: all that we send, one mail domain, one recipient. Shared by all workers.

Told that we call too often, every worker gets half as many tokens, and from then on a twentieth of the rate more with
every second, up to the configured rate: the pace goes as near to what the provider bears as it can. Told to wait, it
is left alone until then. What it says of one recipient or domain makes only those wait. Breakers (`breaker`) are for
providers that fail; a throttled one is well.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from schemas import keys, metrics
from schemas.messages import Channel
from schemas.outcomes import Kind, Outcome, Scope
from schemas.trips import Trip, script_beside

log = logging.getLogger(__name__)

NOTE = script_beside(__file__, "limits_factor.lua", "limits_clock.lua", "throttles_note.lua")

LANE = "lane"
"""The scope of all that goes through the provider. It has one sender here, so the limit of a sender is its own."""
RECOVERY_PER_S = 0.05
"""As `limits_factor.lua`."""

Paused = Mapping[str, int]
"""Scope -> for how many ms more the provider wants to be left alone with it."""


class Throttle:
    """The throttles of one provider, as one worker sees them; what calls said is gathered and told in the next trip."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self._key = keys.redis_throttles(provider)
        self._bucket = keys.redis_bucket(provider)
        self._slower = False
        self._scopes: dict[str, int] = {}

    def ask(self, trip: Trip) -> None:
        trip.execute_command("HGETALL", self._key)

    def read(self, reply: Any, now_ms: int) -> Paused:
        """now_ms: the server's clock."""
        return {name.decode(): left for name, until in reply.items() if (left := int(until) - now_ms) > 0}

    def ask_factor(self, trip: Trip) -> None:
        trip.execute_command("HMGET", self._bucket, "f", "ft")

    def read_factor(self, reply: Any, now_ms: int) -> float:
        """The part of the configured rate that is given out now."""
        factor, from_us = reply
        if factor is None:
            return 1.0
        passed_s = max(0.0, now_ms / 1000 - int(from_us) / 1_000_000)
        return min(1.0, float(factor) + RECOVERY_PER_S * passed_s)

    def note(self, outcome: Outcome, channel: Channel, address: str) -> None:
        """What a call came to; only a throttled one says anything."""
        if outcome.kind is not Kind.THROTTLE:
            return
        scope = _name(outcome.scope, channel, address)
        self._slower = self._slower or scope == LANE
        if outcome.retry_after_ms:
            self._scopes[scope] = max(self._scopes.get(scope, 0), outcome.retry_after_ms)
        metrics.THROTTLES.labels(self.provider, outcome.scope).inc()

    def has_news(self) -> bool:
        return self._slower or bool(self._scopes)

    def ask_record(self, trip: Trip) -> None:
        """Tells what was noted. A trip that fails loses it: the next calls will say the same."""
        told = [word for scope, ms in self._scopes.items() for word in (scope, ms)]
        trip.run(NOTE, (self._bucket, self._key), int(self._slower), self._scopes.get(LANE, 0), *told)
        self._slower, self._scopes = False, {}

    def learn(self, reply: Any) -> None:
        """What came of it: being slowed down is worth a line."""
        if isinstance(reply, Exception):
            log.error("throttle.broken", extra={"provider": self.provider, "error": str(reply)})
        elif reply:
            log.warning("provider.slowed_down", extra={"provider": self.provider, "percent": int(reply)})


def left_ms(paused: Paused, channel: Channel, address: str) -> int:
    """For how long nothing may go to this address, by what the provider said of it or of its mail domain."""
    scopes = (Scope.RECIPIENT, Scope.DOMAIN) if channel is Channel.EMAIL else (Scope.RECIPIENT,)
    return max(paused.get(_name(scope, channel, address), 0) for scope in scopes)


def _name(scope: Scope, channel: Channel, address: str) -> str:
    match scope:
        case Scope.LANE | Scope.SENDER:
            return LANE
        case Scope.RECIPIENT:
            return f"r:{keys.address_hash(channel, address)}"
        case Scope.DOMAIN:
            return f"d:{keys.address_hash(channel, address.rpartition('@')[2])}"
