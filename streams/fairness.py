"""Whose turn it is among flows that share lanes: start-time fair queueing, of tenants first, then of a tenant's flows.

Each piece that is let go takes a stretch of its lane's virtual time, as long as its cost over the weight of who
let it go; who is least far ahead comes next. A flow that waits all the time gets its weight's share over any
stretch of turns. Nobody is owed anything for a time in which it did not wait or could not go. A flow that fills
several lanes waits where it is furthest ahead. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow that waits. lanes: all those that a piece of it fills."""

    tenant: str
    weight: float
    lanes: tuple[str, ...]


class Turns:
    """Remembers between turns how far each tenant and each flow is. tenant_weights: 1 for a tenant not named."""

    def __init__(self, tenant_weights: Mapping[str, float]) -> None:
        self._weights = tenant_weights
        self._tenants = _Level()
        self._flows = _Level()
        self._served: dict[str, int] = {}
        self._turn = 0

    def keep_only(self, names: Collection[str]) -> None:
        """Forgets flows that have ended. One that only cannot go just now is still as far as it is."""
        self._served = {name: turn for name, turn in self._served.items() if name in names}
        self._flows.keep_only(names)

    def next(self, waiting: Mapping[str, Flow]) -> str | None:
        """The flow that goes next; None when none waits. Among equals: who went longest ago."""
        return min(waiting, key=lambda name: self._rank(name, waiting[name]), default=None)

    def pay(self, name: str, flow: Flow, cost: float) -> None:
        """This flow has let a piece of this cost go, into each of its lanes."""
        self._turn += 1
        self._served[name] = self._turn
        for lane in flow.lanes:
            self._tenants.pay((lane,), flow.tenant, cost / self._weights.get(flow.tenant, 1.0))
            self._flows.pay((lane, flow.tenant), name, cost / flow.weight)

    def _rank(self, name: str, flow: Flow) -> tuple[float, float, int, str]:
        tenant_lead = max(self._tenants.lead((lane,), flow.tenant) for lane in flow.lanes)
        flow_lead = max(self._flows.lead((lane, flow.tenant), name) for lane in flow.lanes)
        return tenant_lead, flow_lead, self._served.get(name, 0), name


class _Level:
    """The virtual times of several scopes (a lane; a lane and a tenant), and who is how far in each."""

    def __init__(self) -> None:
        self._now: dict[tuple[str, ...], float] = {}
        self._ends: dict[tuple[tuple[str, ...], str], float] = {}

    def lead(self, scope: tuple[str, ...], name: str) -> float:
        """How far ahead of the scope's time it is; whoever fell behind counts as being there."""
        return max(0.0, self._ends.get((scope, name), 0.0) - self._now.get(scope, 0.0))

    def pay(self, scope: tuple[str, ...], name: str, stretch: float) -> None:
        now = self._now.get(scope, 0.0)
        begins = max(now, self._ends.get((scope, name), 0.0))
        self._now[scope], self._ends[scope, name] = begins, begins + stretch

    def keep_only(self, names: Collection[str]) -> None:
        self._ends = {(scope, name): end for (scope, name), end in self._ends.items() if name in names}
