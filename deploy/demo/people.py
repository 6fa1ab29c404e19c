"""The people of the demo: customers for single messages, and an audience of whom not everybody may be written to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

CUSTOMERS = 40
AUDIENCE = 20_000
STORED = 2_000
"""So many of the audience have a stored profile; the others come with their addresses, as from another system."""
WITHOUT_PHONE = 10
OPTED_OUT = 20
UNREACHABLE = 200


@dataclass(frozen=True, slots=True)
class Expected:
    """How many of the audience get what; unreachable people have neither device nor mail address."""

    push: int
    email: int
    opted_out: int
    unreachable: int

    @property
    def reached(self) -> int:
        return self.push + self.email


def customer(number: int) -> dict[str, Any]:
    """A profile with everything; every tenth has no phone, so that a login code falls back to mail."""
    profile: dict[str, Any] = {
        "user_id": f"customer-{number:03}",
        "locale": "de" if number % 2 else "en",
        "time_zone": "Europe/Berlin",
        "email": f"customer-{number:03}@example.org",
        "devices": [{"token": f"customer-phone-{number:03}", "platform": "ios"}],
    }
    if number % WITHOUT_PHONE:
        profile["phone"] = f"+49151{20_000_000 + number}"
    return profile


def reader(number: int) -> dict[str, Any]:
    """One of the audience, as a profile: three of five have a device, the others only a mail address."""
    profile: dict[str, Any] = {"user_id": f"reader-{number:05}", "locale": "de" if number % 3 else "en"}
    if is_unreachable(number):
        return profile
    if number % 5 < 3:
        profile["devices"] = [{"token": f"reader-phone-{number:05}", "platform": "android"}]
    else:
        profile["email"] = f"reader-{number:05}@example.org"
    if has_opted_out(number):
        profile["opt_outs"] = [{"channel": "*", "kind": "marketing"}]
    return profile


def has_opted_out(number: int) -> bool:
    return number < STORED and number % OPTED_OUT == 1


def is_unreachable(number: int) -> bool:
    return number >= STORED and number % UNREACHABLE == 7


def audience_lines() -> Iterator[bytes]:
    """The campaign's recipients as NDJSON."""
    for number in range(AUDIENCE):
        profile = reader(number)
        line: dict[str, Any] = {"user_id": profile.pop("user_id"), "params": {"name": f"Reader {number}"}}
        if number >= STORED:
            line["to"] = profile
        yield json.dumps(line).encode() + b"\n"


def expected() -> Expected:
    numbers = range(AUDIENCE)
    may = [n for n in numbers if not has_opted_out(n) and not is_unreachable(n)]
    push = sum(1 for n in may if n % 5 < 3)
    out, away = sum(map(has_opted_out, numbers)), sum(map(is_unreachable, numbers))
    return Expected(push, len(may) - push, out, away)
