"""A rate kept by counting: how much may go now. Pure; used for a campaign's own pace and for transactional lanes."""

from __future__ import annotations


class Allowance:
    """Fills with rate_per_s up to what a second holds; spending may overdraw it by one piece."""

    def __init__(self, now_s: float) -> None:
        self._left = 0.0
        self._at_s = now_s

    def left(self, rate_per_s: float, now_s: float) -> float:
        """What may go now; a piece may go whenever this is above zero."""
        filled = self._left + rate_per_s * max(0.0, now_s - self._at_s)
        self._left, self._at_s = min(filled, rate_per_s), now_s
        return self._left

    def spend(self, amount: float) -> None:
        self._left -= amount
