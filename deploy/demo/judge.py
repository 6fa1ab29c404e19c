"""The demo's verdict: what the ledger saw, against what was asked for and what Tidings says about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """duplicates: repeats in the ledger. possible: those Tidings told of. in_flight: calls open at the kill."""

    duplicates: int
    possible: int
    in_flight: int
    lost: int
    unasked: int

    def holds(self) -> bool:
        """Nothing lost, nothing sent that should not be, and each repeat owned up to and explained by the kill."""
        return self.lost == 0 and self.unasked == 0 and self.duplicates <= self.possible <= self.in_flight

    def line(self) -> str:
        return f"duplicates {self.duplicates}, possible duplicates {self.possible}, lost {self.lost}"


def lost_and_unasked(wanted: dict[str, int], reached: dict[str, int]) -> tuple[int, int]:
    """(missing, too many) people over all services; every person of the demo has an address of their own."""
    missing = sum(max(0, count - reached.get(service, 0)) for service, count in wanted.items())
    too_many = sum(max(0, count - wanted.get(service, 0)) for service, count in reached.items())
    return missing, too_many


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all values do not exceed; 0 without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
