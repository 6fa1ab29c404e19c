"""How often a process started at one offset without getting on: kept in the commit's metadata.

A record that kills its process would kill every successor. At the third start at one offset the records there are
handled one by one, each named in the metadata before it is touched; if the process dies again, the next one knows
which record it was and parks it. A clean end leaves no trace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SUSPICIOUS_STARTS = 3
CLEAN = ""
_FORM = re.compile(r"starts=(\d{1,6})(?: alone=(\d{1,19}))?")


@dataclass(frozen=True, slots=True)
class Past:
    """What the metadata tells: starts at this offset without a clean end, and the record that was in hand alone."""

    starts: int = 0
    alone: int | None = None


def read(metadata: str | None) -> Past:
    """Never raises: anything we did not write counts as a clean end."""
    found = _FORM.fullmatch(metadata or CLEAN)
    if found is None:
        return Past()
    return Past(int(found[1]), int(found[2]) if found[2] else None)


def running(starts: int) -> str:
    return f"starts={min(starts, 999_999)}"


def alone(starts: int, offset: int) -> str:
    return f"{running(starts)} alone={offset}"
