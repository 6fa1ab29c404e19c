"""Whose turn it is: deficit round robin among flows that share a lane. Pure.

A flow that waits all the time gets its weight's share over any stretch of turns; what a flow cannot use goes
to the others. Only a flow that waits is given anything, so nobody is owed more than one round.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow that waits: its weight, and what its next piece costs (> 0)."""

    weight: float
    cost: int


class RoundRobin:
    """Remembers between turns where the round stands and what each flow is owed."""

    def __init__(self) -> None:
        self._owed: dict[str, float] = {}

    def keep_only(self, flows: Collection[str]) -> None:
        """Forgets flows that have ended. One that only cannot go just now keeps what it is owed."""
        for name in [name for name in self._owed if name not in flows]:
            del self._owed[name]

    def take(self, waiting: Mapping[str, Flow]) -> str | None:
        """The flow whose piece goes next, paid for; None when none waits.

        Each round gives the heaviest flow the price of the dearest piece and the others in proportion, so turns
        are as finely mixed as pieces allow. Rounds in which nobody could pay are taken at once.
        """
        if not waiting:
            return None
        for name in waiting:
            self._owed.setdefault(name, 0.0)
        chosen = self._payer(waiting)
        if chosen is None:
            self._give_rounds(waiting)
            chosen = self._payer(waiting)
            assert chosen is not None, "after enough rounds somebody can pay"
        # It goes to the end of the round, with what it has left.
        self._owed[chosen] = self._owed.pop(chosen) - waiting[chosen].cost
        return chosen

    def _payer(self, waiting: Mapping[str, Flow]) -> str | None:
        for name, owed in self._owed.items():
            if name in waiting and owed >= waiting[name].cost - _ROUNDING:
                return name
        return None

    def _give_rounds(self, waiting: Mapping[str, Flow]) -> None:
        dearest = max(flow.cost for flow in waiting.values())
        heaviest = max(flow.weight for flow in waiting.values())
        quanta = {name: dearest * flow.weight / heaviest for name, flow in waiting.items()}
        rounds = min(
            math.ceil((flow.cost - self._owed[name]) / quanta[name] - _ROUNDING) for name, flow in waiting.items()
        )
        for name, quantum in quanta.items():
            self._owed[name] += max(1, rounds) * quantum


_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Claimant:
    """A flow before its tenant's weight is spread over the tenant's flows."""

    name: str
    tenant: str
    weight: float
    cost: int


def spread(claimants: Iterable[Claimant], tenant_weights: Mapping[str, float]) -> dict[str, Flow]:
    """The flows with their share of their tenant's weight (1 for a tenant not named)."""
    found = list(claimants)
    total: dict[str, float] = {}
    for claimant in found:
        total[claimant.tenant] = total.get(claimant.tenant, 0.0) + claimant.weight
    return {
        claimant.name: Flow(
            tenant_weights.get(claimant.tenant, 1.0) * claimant.weight / total[claimant.tenant], claimant.cost
        )
        for claimant in found
    }
