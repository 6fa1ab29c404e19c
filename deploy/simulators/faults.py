"""What goes wrong on demand. Seeded: the n-th call of a key meets the same fate in every run, in any order of calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

_MASK = (1 << 64) - 1
HANG = "hang"
DROP_REPLY = "drop_reply"


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults of one service; every share is of its calls, from 0 to 1.

    answer_ms: how long an answer takes. errors: share by status (SMTP: by reply after the message, 451 or "451 4.7.0").
    refusals: share by the word of `{"error": word}`, answered 422. rcpt_errors: SMTP, by reply, at RCPT.
    scope: goes along with 429, as what it was too much for.
    hang: read and never answered, not sent. drop_reply: sent, and the connection cut instead of an answer.
    retry_after_s goes along with 429 and 503, as seconds or as a date.
    silent: no callback, though the status API tells. callback_ms: how soon it comes; late_ms instead for the share
    `late`.
    asked_errors, asked_unknown: of questions to the status API, answered 503, or that it knows no such message.
    twice, out_of_order: of callbacks. undelivered, bounced: instead of delivered; complained: after it.
    idempotent: repeats of an Idempotency-Key are answered, not sent. calls: after so many calls all is well (0: never).
    """

    seed: int = 0
    answer_ms: float = 0
    errors: Mapping[str, float] = field(default_factory=dict)
    refusals: Mapping[str, float] = field(default_factory=dict)
    rcpt_errors: Mapping[str, float] = field(default_factory=dict)
    hang: float = 0
    drop_reply: float = 0
    scope: str = ""
    retry_after_s: int = 0
    retry_after_form: str = "seconds"
    silent: float = 0
    callback_ms: float = 100
    late: float = 0
    late_ms: float = 5_000
    asked_errors: float = 0
    asked_unknown: float = 0
    twice: float = 0
    out_of_order: float = 0
    undelivered: float = 0
    bounced: float = 0
    complained: float = 0
    idempotent: bool = False
    calls: int = 0

    def fate(self, key: int, call: int) -> str:
        """ "" = all is well, HANG, DROP_REPLY, a status, or the word of a refusal."""
        if not (self.errors or self.refusals or self.hang or self.drop_reply):
            return ""
        shares = {**self.errors, **self.refusals, HANG: self.hang, DROP_REPLY: self.drop_reply}
        return pick(shares, chance(self.seed, key, call))

    def rcpt_fate(self, recipient: int) -> str:
        """A reply code for this recipient; "" = it exists."""
        return pick(self.rcpt_errors, chance(self.seed, recipient, 0)) if self.rcpt_errors else ""

    def retry_after(self, now: datetime) -> str:
        """The header's value in the form asked for; "" = none."""
        if not self.retry_after_s:
            return ""
        if self.retry_after_form == "date":
            return format_datetime(now.astimezone(UTC) + timedelta(seconds=self.retry_after_s), usegmt=True)
        return str(self.retry_after_s)


def chance(seed: int, key: int, call: int, salt: int = 0) -> float:
    """A number in [0, 1) that depends on its arguments only (splitmix64)."""
    mixed = (key ^ (seed * 0x9E3779B97F4A7C15) ^ (call * 0xBF58476D1CE4E5B9) ^ (salt * 0x94D049BB133111EB)) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return (mixed ^ (mixed >> 31)) / (_MASK + 1)


def pick(shares: Mapping[str, float], drawn: float) -> str:
    """The word into whose share the drawn number falls; "" when it falls beside all of them."""
    for word, share in shares.items():
        if drawn < share:
            return word
        drawn -= share
    return ""


def parse(text: Mapping[str, Any]) -> Faults:
    """Faults from JSON. Raises ValueError naming the field that is unknown or of the wrong kind."""
    known = {f.name: f for f in fields(Faults)}
    values: dict[str, Any] = {}
    for name, value in text.items():
        if name not in known:
            raise ValueError(f"{name}: unknown; known are {', '.join(known)}")
        values[name] = _checked(name, value)
    return Faults(**values)


def _checked(name: str, value: Any) -> Any:
    if name in ("errors", "refusals", "rcpt_errors"):
        if not isinstance(value, dict) or not all(_is_number(share) for share in value.values()):
            raise ValueError(f"{name}: must be an object of shares")
        return {str(word): float(share) for word, share in value.items()}
    if name == "retry_after_form":
        if value not in ("seconds", "date"):
            raise ValueError('retry_after_form: must be "seconds" or "date"')
        return value
    if name == "scope":
        if value not in ("lane", "sender", "recipient", "domain"):
            raise ValueError("scope: must be lane, sender, recipient or domain")
        return value
    if not _is_number(value) and not (name == "idempotent" and isinstance(value, bool)):
        raise ValueError(f"{name}: must be a number")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Board:
    """The faults in force per service; "*" is every service without its own."""

    def __init__(self, faults: Faults | None = None) -> None:
        self._default = faults or Faults()
        self._in_force: dict[str, Faults] = {"*": self._default}
        self._left: dict[str, int] = {}

    def set(self, service: str, faults: Faults) -> None:
        self._in_force[service] = faults
        self._left.pop(service, None)
        if faults.calls:
            self._left[service] = faults.calls

    def clear(self) -> None:
        """Back to what the simulator was started with."""
        self._in_force = {"*": self._default}
        self._left.clear()

    def get(self, service: str) -> Faults:
        """The faults for what is not a call, e.g. a callback or a recipient."""
        return self._in_force.get(service) or self._in_force["*"]

    def for_call(self, service: str) -> Faults:
        """The faults this call meets; counts down those that hold for some calls only."""
        name = service if service in self._in_force else "*"
        faults = self._in_force[name]
        if self._left and name in self._left:
            self._left[name] -= 1
            if self._left[name] <= 0:
                self.set(name, self._default)
        return faults
