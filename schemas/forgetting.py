"""When a campaign is forgotten, and its id free again: what those who write about it and all who read it go by.

Its request and its status rows go 30 days after the last word of it. Its state, cursor, counts and orders lie in
compacted topics, which nothing leaves by itself in time, not even where they have a retention (`schemas/topics.py`):
dispatch's leader writes their tombstones, the cursor's last (`streams/burials.py`). A tombstone takes only what was old
when it was written; one that a deposed leader still had under way takes nothing of a new campaign of that id.
"""

from __future__ import annotations

DAY_MS = 86_400_000
QUIET_MS = 40 * DAY_MS
"""So long after the last that was heard of it a campaign is forgotten: 30 days, the 7 that events may lie on
`delivery.status` before rows know of them, and some more."""
OLD_MS = 30 * DAY_MS
"""Who was silent for so long is over: a campaign expires within 21 days, and until it ends is told of every second."""


def is_old(told_ms: int, at_ms: int) -> bool:
    """Whether what was told then is of a campaign that was over at this time (both Unix time in milliseconds)."""
    return at_ms - told_ms >= OLD_MS
