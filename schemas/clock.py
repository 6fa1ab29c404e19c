"""Time arrives as an argument. Everything that asks the time receives a Clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two time sources: the wall (may jump) and a steady one (only for durations)."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch, UTC."""
        ...

    def steady_s(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_s(self) -> float:
        return time.monotonic()
