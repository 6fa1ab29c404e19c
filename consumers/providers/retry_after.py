"""Retry-After, as providers really send it: seconds or an HTTP date, zero, absurd, or garbage."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

SHORTEST_MS = 1_000
LONGEST_MS = 3_600_000


def wait_ms(value: str | None, now_ms: int) -> int | None:
    """The wait that the header asks for, clamped to 1 s .. 1 h; None when absent or garbage."""
    if value is None:
        return None
    wanted = _seconds_ms(value.strip())
    if wanted is None:
        wanted = _date_ms(value.strip(), now_ms)
    return None if wanted is None else min(max(wanted, SHORTEST_MS), LONGEST_MS)


def _seconds_ms(value: str) -> int | None:
    if not value.isascii() or not value.isdigit():
        return None
    return int(value[:10]) * 1_000


def _date_ms(value: str, now_ms: int) -> int | None:
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return int(moment.timestamp() * 1_000) - now_ms
