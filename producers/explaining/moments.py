"""Times as people at a desk read them: UTC, and beside it the clock of the person that the message is for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from schemas import local_times

_SHOWN = "%Y-%m-%d %H:%M:%S"
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def moment(at_ms: int, zone: str) -> str:
    """ "2026-11-30 09:02:11 UTC (10:02:11 in Europe/Berlin)"; the date again where it is another one there."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    text = f"{at.strftime(_SHOWN)} UTC"
    if not zone or zone == "UTC" or not local_times.is_known(zone):
        return text
    there = at.astimezone(ZoneInfo(zone))
    shown = there.strftime("%H:%M:%S" if there.date() == at.date() else _SHOWN)
    return f"{text} ({shown} in {zone})"


def clock(at_ms: int) -> str:
    """UTC alone, with milliseconds: for lists of what happened."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "milliseconds").replace("+00:00", "")


def length(ms: int) -> str:
    """How long, in the two largest units that say something: "1 hour 5 minutes"."""
    left = timedelta(milliseconds=max(0, ms)) // timedelta(seconds=1)
    parts = []
    for seconds, name in _UNITS:
        count, left = divmod(left, seconds)
        if count:
            parts.append(f"{count} {name}{'' if count == 1 else 's'}")
    return " ".join(parts[:2]) or "less than a second"
