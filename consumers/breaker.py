"""One breaker per provider, shared by all workers: no calls while more than half of the newest ones failed.

Open, it lets a few probes through after a while; when they succeed it closes, else it waits twice as long.
A refusal that only a person can mend (credentials, account) opens it at once as a config hold: the provider
is paused, every message is kept, and a probe a minute notices when it was mended. What a person opened
(`tidings breaker open`) only a person closes.

A provider that calls many push tokens dead is doubted before they are deleted: a wrong app or environment makes all of
them look dead. That is a config hold as well.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from schemas import keys, metrics
from schemas.outcomes import Kind
from schemas.trips import Trip, script_beside

log = logging.getLogger(__name__)

RECORD = script_beside(__file__, "breaker_record.lua")
PROBE = script_beside(__file__, "breaker_probe.lua")

DEVIATIONS = 3.0
"""Of dead tokens beyond their part, before chance no longer explains them: where a tenth are dead, not one campaign in
a thousand is held for it; where all are, the fifth is doubted."""
NEVER_MS = 2**53
"""When the probes may go of a breaker that a person opened."""
_OPERATOR = "operator"
_DEAD = "2"
REPEATED = frozenset({Kind.RETRY, Kind.UNKNOWN})
FAILURES = frozenset({Kind.RETRY, Kind.UNKNOWN, Kind.NOT_PROCESSED})


@dataclass(frozen=True, slots=True)
class BreakerOptions:
    """window: calls looked back on; least: with fewer known it never opens; the periods: how long it stays open.

    dead_most: the part of the last two windows of calls that may report a dead push token: when it is more than chance
    explains, and more than so many of `least` calls, that is taken for a wrong setting of ours.
    """

    window: int = 100
    least: int = 20
    dead_most: float = 0.2
    first_period_s: float = 5.0
    longest_period_s: float = 60.0
    hold_period_s: float = 60.0
    probes: int = 3
    probe_round_s: float = 6.0


class Gate(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class State:
    """left_ms: how long until the next probes may go; is_hold: a person must act.

    is_avoided: it works, but delivers less than it usually does (`streams/share_watch.py`): another one is preferred.
    """

    gate: Gate
    left_ms: int = 0
    is_hold: bool = False
    is_avoided: bool = False


CLOSED = State(Gate.CLOSED)
_SHOWN = {Gate.CLOSED: 0, Gate.HALF_OPEN: 1, Gate.OPEN: 2}


class Breaker:
    """The breaker of one provider, as one worker sees it; results are gathered and told in the next trip."""

    def __init__(self, provider: str, options: BreakerOptions) -> None:
        self.provider = provider
        self._key = keys.redis_breaker(provider)
        self._options = options
        longest_s = max(options.first_period_s, options.longest_period_s, options.hold_period_s, options.probe_round_s)
        self._too_long_ms = int(2_000 * longest_s)  # of a clock read just before another worker opened it, too
        self._shown = metrics.BREAKER.labels(provider)
        self._results: list[str] = []
        self._probes: list[str] = []
        self._repeats = 0
        self._hold = False
        self._kept = (0, 0)
        self._newest: deque[bool] = deque(maxlen=options.window)
        self._newest_failed = 0
        self.is_open = False
        """As last heard, or as its own calls say already. What was looked at before is not called while it is set."""
        self.recent = (0, 0)
        """Calls of the last minute or two over all workers, and those of them that are tried again."""

    def ask(self, trip: Trip) -> None:
        trip.execute_command("HMGET", self._key, "state", "until", "reason", "avoid")

    def read(self, reply: Any, now_ms: int) -> State:
        """now_ms: the server's clock."""
        found = _state(reply, now_ms, self._too_long_ms)
        self._shown.set(_SHOWN[found.gate])
        self.is_open = found.gate is not Gate.CLOSED
        return found

    def ask_probe(self, trip: Trip) -> None:
        """Asks for a round of probes of a half open breaker; read_probe gives how many calls may be made."""
        round_ms = int(self._options.probe_round_s * 1000)
        trip.run(PROBE, (self._key,), self._options.probes, round_ms)

    def read_probe(self, reply: Any) -> int:
        return int(reply)

    def note(self, kind: Kind, is_probe: bool) -> None:
        """What a call came to."""
        self._repeats += kind in REPEATED
        if kind is Kind.AUTH_CONFIG:
            self._hold = True
        else:
            result = "1" if kind in FAILURES else _DEAD if kind is Kind.DEAD_ADDRESS else "0"
            (self._probes if is_probe else self._results).append(result)
            self._watch(kind in FAILURES)

    def _watch(self, has_failed: bool) -> None:
        """A worker whose own calls fail does not wait to be told: a busy one would make hundreds more meanwhile."""
        newest = self._newest
        if len(newest) == newest.maxlen:
            self._newest_failed -= newest[0]
        newest.append(has_failed)
        self._newest_failed += has_failed
        if has_failed and len(newest) >= self._options.least and self._newest_failed * 2 > len(newest):
            self.is_open = True

    def doubts_dead_tokens(self) -> bool:
        """Whether, with one more, so many push tokens would be dead that a wrong setting is likelier."""
        kept, dead = self._kept
        known = kept + len(self._results) + 1
        dead += self._results.count(_DEAD) + 1
        most, least = self._options.dead_most, self._options.least
        return dead > max(most * least, most * known + DEVIATIONS * math.sqrt(most * (1 - most) * known))

    def has_news(self) -> bool:
        return bool(self._results or self._probes or self._hold)

    def ask_record(self, trip: Trip) -> None:
        """Tells what was noted. A trip that fails loses it: the next calls will say the same."""
        options = self._options
        periods = [int(s * 1000) for s in (options.first_period_s, options.longest_period_s, options.hold_period_s)]
        told = ("".join(self._results[-options.window :]), "".join(self._probes), int(self._hold))
        counts = (len(self._results) + len(self._probes), self._repeats)
        limits = (options.window, options.least, *periods, options.probes, *counts)
        trip.run(RECORD, (self._key,), *told, *limits)
        self._results, self._probes, self._repeats, self._hold = [], [], 0, False

    def learn(self, reply: Any) -> None:
        """What came of the telling: opening and closing is worth a line."""
        if isinstance(reply, Exception):
            log.error("breaker.broken", extra={"provider": self.provider, "error": str(reply)})
            return
        change = self.read_record(reply)
        if change is not None:
            metrics.BREAKER_CHANGES.labels(self.provider, change).inc()
            told = {"provider": self.provider, "state": change.value, "reason": reply[5].decode()}
            log.warning("breaker.changed", extra=told)

    def read_record(self, reply: Any) -> Gate | None:
        """The state it changed to; None when it did not. Brings `recent` up to date."""
        change, calls, repeats, kept, dead, reason = reply
        self.is_open = bool(reason)
        if change == b"closed":
            self._newest.clear()
            self._newest_failed = 0
        self.recent, self._kept = (int(calls), int(repeats)), (int(kept), int(dead))
        return Gate(change.decode()) if change else None


def ask_open(trip: Trip, provider: str, now_ms: int) -> None:
    """A person opens the breaker: no call is made there until a person closes it."""
    key = keys.redis_breaker(provider)
    fields = {"state": "open", "until": NEVER_MS, "period": 0, "since": now_ms, "reason": _OPERATOR, "good": 0}
    trip.execute_command("HSET", key, *(word for pair in fields.items() for word in pair))
    trip.execute_command("PERSIST", key)


def ask_close(trip: Trip, provider: str) -> None:
    """A person closes it, whyever it was open; calls that fail then may open it again."""
    fields = ("state", "ring", "period", "since", "good", "reason", "until", "avoid")
    trip.execute_command("HDEL", keys.redis_breaker(provider), *fields)


def _state(reply: Any, now_ms: int, too_long_ms: int) -> State:
    """too_long_ms: what would keep it open for longer was written before the server's clock was set back."""
    state, until, reason, avoid = reply
    if state != b"open":
        return State(Gate.CLOSED, is_avoided=True) if avoid and int(avoid) > now_ms else CLOSED
    left_ms = max(0, int(until) - now_ms)
    if left_ms > too_long_ms and reason != _OPERATOR.encode():
        left_ms = 0
    return State(Gate.OPEN if left_ms else Gate.HALF_OPEN, left_ms, reason == b"config")
