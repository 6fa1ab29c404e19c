"""The error tree, sorted by who must act.

TidingsError
├── Poison          this record can never succeed: dead letter, go on
├── Transient       the world may recover: do not commit, try later
│   └── StoreDown   Redis is away, empty or not rebuilt yet
├── Misconfigured   a person must act: refuse to start
├── TooManyParked   the fault is not one record's: stop, a person should look; a new start goes on behind them
└── Refused         a caller's input is wrong: answer 4xx at the door, park it on a topic

What a provider answers is not an error but an `outcomes.Outcome`.
"""

from __future__ import annotations


class TidingsError(Exception):
    """Root of everything Tidings raises on purpose."""


class Poison(TidingsError):
    """A record that can never succeed. `reason` is one of `reasons.ParkReason`; the text is for a person."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(f"{reason}: {text}")
        self.reason = reason
        self.text = text


class Transient(TidingsError):
    """Try the same work again later; nothing was committed."""


class StoreDown(Transient):
    """Redis cannot be trusted right now: away, emptied, rolled back, or not rebuilt from the log yet."""


class Misconfigured(TidingsError):
    """A setting, template or broker that a person must change before the process may start."""


class TooManyParked(TidingsError):
    """So many records of a topic could not be handled that going on would empty it into its dead letter topic."""


class Refused(TidingsError):
    """Input refused at the door. `field` names the offending part; `status` is the HTTP status to answer."""

    def __init__(self, field: str, text: str, status: int = 422) -> None:
        super().__init__(f"{field}: {text}" if field else text)
        self.field = field
        self.text = text
        self.status = status
