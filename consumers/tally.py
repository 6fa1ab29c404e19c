"""Counts what every single call would count, and tells the metrics once a batch: there each count takes a lock."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from prometheus_client import Counter, Histogram


class Tally:
    """Counters and histograms are those of one set of labels. What is not told yet is missing from the metrics."""

    def __init__(self) -> None:
        self._counts: defaultdict[Counter, int] = defaultdict(int)
        self._amounts: defaultdict[Histogram, list[float]] = defaultdict(list)

    def count(self, counter: Counter) -> None:
        self._counts[counter] += 1

    def observe(self, histogram: Histogram, amount: float) -> None:
        self._amounts[histogram].append(amount)

    def tell(self) -> None:
        counts, self._counts = self._counts, defaultdict(int)
        for counter, count in counts.items():
            counter.inc(count)
        amounts, self._amounts = self._amounts, defaultdict(list)
        for histogram, seen in amounts.items():
            _observe_all(histogram, seen)


def _observe_all(histogram: Histogram, amounts: list[float]) -> None:
    """What its `observe` does with each; the client offers nothing for many."""
    found: defaultdict[int, int] = defaultdict(int)
    for amount in amounts:
        found[bisect_left(histogram._upper_bounds, amount)] += 1
    histogram._sum.inc(sum(amounts))
    for bucket, count in found.items():
        histogram._buckets[bucket].inc(count)
