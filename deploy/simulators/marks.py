"""What arrived by name, and how long it took: a text may begin with a mark, `#name ` or `#name@1764457200.25 `.

The name is a campaign's, say; the time is when somebody wished for the message, in seconds since 1970. So a load can be
told apart and timed at the provider, whatever Tidings says about it. Only first sends of a key count as arrivals;
a million of them cost a few numbers a second, not one each.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from typing import Any, NamedTuple

MARKS_MAX = 64
"""Names beyond so many are not kept: a text that begins so by chance must not grow the book."""
WAITS_KEPT = 1_000_000
SECONDS_KEPT = 7200


class Mark(NamedTuple):
    """wished_s: 0.0 when the text does not say."""

    name: str
    wished_s: float


def read(text: object) -> Mark | None:
    """The mark at the beginning of a text; None without one."""
    if not isinstance(text, str) or not text.startswith("#"):
        return None
    name, _, wished = text.split(" ", 1)[0][1:].partition("@")
    try:
        return Mark(name, float(wished or 0)) if name else None
    except ValueError:
        return None


class Arrivals:
    """Sends under one name. distinct: of keys that had not been sent before."""

    def __init__(self) -> None:
        self.sends = 0
        self.distinct = 0
        self.first_s = 0.0
        self.last_new_s = 0.0
        self._per_second: Counter[int] = Counter()
        self._came_s = array("d")
        self._waits_s = array("d")

    def add(self, now_s: float, wished_s: float, is_new: bool) -> None:
        """One send. A repeat is not timed: the person had the message already."""
        self.sends += 1
        self._per_second[int(now_s)] += 1
        if len(self._per_second) > SECONDS_KEPT:
            del self._per_second[min(self._per_second)]
        if not is_new:
            return
        self.distinct += 1
        self.first_s = self.first_s or now_s
        self.last_new_s = now_s
        if wished_s and len(self._waits_s) < WAITS_KEPT:
            self._came_s.append(now_s)
            self._waits_s.append(now_s - wished_s)

    def shown(self, since_s: float) -> dict[str, Any]:
        """Totals; sends a second and [when it came, how long it took] from this time on."""
        first = bisect_left(self._came_s, since_s)
        return {
            "sends": self.sends,
            "distinct": self.distinct,
            "repeats": self.sends - self.distinct,
            "first_s": self.first_s,
            "last_new_s": self.last_new_s,
            "per_second": {str(at): count for at, count in self._per_second.items() if at >= int(since_s)},
            "waits": [[came, wait] for came, wait in zip(self._came_s[first:], self._waits_s[first:], strict=True)],
        }


class Marks:
    """All names."""

    def __init__(self) -> None:
        self._found: dict[str, Arrivals] = {}

    def add(self, mark: Mark, now_s: float, is_new: bool) -> None:
        found = self._found.get(mark.name)
        if found is None:
            if len(self._found) >= MARKS_MAX:
                return
            found = self._found[mark.name] = Arrivals()
        found.add(now_s, mark.wished_s, is_new)

    def clear(self) -> None:
        self._found.clear()

    def shown(self, since_s: float) -> dict[str, dict[str, Any]]:
        return {name: arrivals.shown(since_s) for name, arrivals in self._found.items()}
