"""Rates and CPU per delivery between two moments of a run; percentiles."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.provider import Provider
from deploy.cost import Meter


@dataclass(frozen=True, slots=True)
class Spent:
    """per_s: deliveries a second. cpu_us: CPU a delivery by process. cores: how much of a core each used."""

    per_s: float
    cpu_us: dict[str, float]
    cores: dict[str, float]

    def limit(self) -> str:
        """What kept it from being faster, as far as CPU time tells."""
        shown = ", ".join(f"{name} {share:.0%}" for name, share in by_size(self.cores) if share >= 0.05)
        first, most = by_size(self.cores)[0]
        if most > 0.9:
            return f"one core is full with {first} (of a core: {shown})"
        total = sum(self.cores.values())
        word = "the cores are full" if total > 1.8 else f"{total:.1f} cores are busy, the rest is waiting"
        return f"{word} (of a core: {shown})"


class Span:
    """Between its making and `end`: what the processes cost."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._cpu = meter.read()
        self._at_s = time.monotonic()

    def end(self, count: int, per_s: float = 0.0) -> Spent:
        """count: deliveries meanwhile. per_s: where it was measured better than by this span's own time."""
        after, took_s = self._meter.read(), time.monotonic() - self._at_s
        used = {name: after[name] - self._cpu[name] for name in after}
        cpu_us = {name: used_s / count * 1e6 for name, used_s in used.items()}
        return Spent(per_s or count / took_s, cpu_us, {name: used_s / took_s for name, used_s in used.items()})


async def between(provider: Provider, first: int, last: int, meter: Meter) -> Spent:
    """From the arrival of the first-th key to that of the last-th; what lies before is the warm-up."""
    begun = await provider.reached(first, meter)
    span = Span(meter)
    ended = await provider.reached(last, meter)
    spent = span.end(max(1, ended - begun))
    first_s, last_s = await provider.first_arrivals([first, last])
    return Spent((last - first) / (last_s - first_s), spent.cpu_us, spent.cores)


def percentile(values: Sequence[float], share: float) -> float:
    """0.0 for no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def by_size(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda pair: -pair[1])


def shown_ms(waits: Sequence[float]) -> dict[str, float]:
    """For notes."""
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(percentile(waits, share), 1) for name, share in shares.items()}
