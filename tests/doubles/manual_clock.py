"""A clock that moves only when told. The wall may jump without the steady clock noticing."""

from __future__ import annotations

START_MS = 1_796_000_000_000
"""Some time in November 2026."""


class ManualClock:
    """Both time sources; `advance` moves them together, `jump` only the wall."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms
        self._steady_s = 1_000.0

    def now_ms(self) -> int:
        return self._now_ms

    def steady_s(self) -> float:
        return self._steady_s

    def advance(self, ms: float) -> None:
        self._now_ms += int(ms)
        self._steady_s += ms / 1000

    def jump(self, ms: int) -> None:
        """Somebody set the wall clock, forwards or back."""
        self._now_ms += ms
