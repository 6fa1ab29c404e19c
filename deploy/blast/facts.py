"""What a blast found: the simulator's book, what Tidings told, what its processes took, which of them were killed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from deploy.blast.plan import Plan


@dataclass(slots=True)
class Kill:
    """One kill -9. back_after_s: until the role was at work again; None: it never was.

    disk: its disk was emptied as well, as when a machine is lost.
    """

    role: str
    pid: int
    at_s: float
    disk: bool = False
    back_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Arrived:
    """What came to the provider under one name. distinct: different keys. waits: (when it came, how long it took)."""

    sends: int = 0
    distinct: int = 0
    first_s: float = 0.0
    last_new_s: float = 0.0
    per_second: dict[int, int] = field(default_factory=dict)
    waits: list[tuple[float, float]] = field(default_factory=list)

    @property
    def repeats(self) -> int:
        return self.sends - self.distinct


def arrived(shown: dict[str, Any]) -> Arrived:
    """From the simulator's JSON."""
    per_second = {int(second): count for second, count in shown["per_second"].items()}
    waits = [(came_s, wait_s) for came_s, wait_s in shown["waits"]]
    totals = (shown["sends"], shown["distinct"], shown["first_s"], shown["last_new_s"])
    return Arrived(*totals, per_second, waits)


@dataclass(frozen=True, slots=True)
class Facts:
    """Times are seconds since 1970.

    most_in_a_second: calls in the provider's fullest second. told: each campaign's own answer, at the end.
    codes: login codes answered 202. codes_sent, codes_possible: what their statuses say. kinds: of process, to be
    killed. pids: the processes that each role had. peaks_mb: the most memory one of them had. cores: how much of a core
    each used meanwhile.
    """

    plan: Plan
    large: Arrived
    small: Arrived
    code: Arrived
    most_in_a_second: int
    told: dict[str, dict[str, Any]]
    small_begun_s: float
    codes: int
    codes_sent: int
    codes_possible: int
    uploaded_s: float
    kinds: int = 0
    kills: tuple[Kill, ...] = ()
    pids: dict[str, set[int]] = field(default_factory=dict)
    peaks_mb: dict[str, float] = field(default_factory=dict)
    cores: dict[str, float] = field(default_factory=dict)
