"""Whose turn it is among flows that share lanes: start-time fair queueing, of tenants first, then of a tenant's flows.

Each piece that is let go takes a stretch of its lane's virtual time, as long as its cost over the weight of who
let it go; who is least far ahead comes next. A flow that waits all the time gets its weight's share over any
stretch of turns. Nobody is owed anything for a time in which it did not wait or could not go. A flow that fills
several lanes waits where it is furthest ahead. Pure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
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
        scopes = [(lane, name, flow.tenant) for name, flow in waiting.items() for lane in flow.lanes]
        tenants = self._tenants.leads(((lane,), tenant) for lane, _, tenant in scopes)
        flows = self._flows.leads(((lane, tenant), name) for lane, name, tenant in scopes)

        def rank(name: str) -> tuple[float, float, int, str]:
            flow = waiting[name]
            tenant_lead = max(tenants[(lane,), flow.tenant] for lane in flow.lanes)
            flow_lead = max(flows[(lane, flow.tenant), name] for lane in flow.lanes)
            return tenant_lead, flow_lead, self._served.get(name, 0), name

        return min(waiting, key=rank, default=None)

    def shares(self, waiting: Mapping[str, Flow]) -> dict[str, float]:
        """The part that each gets while all of these wait; of several lanes the least."""
        of_tenant, of_all = defaultdict[tuple[str, str], float](float), defaultdict[str, float](float)
        for flow in waiting.values():
            for lane in flow.lanes:
                of_tenant[lane, flow.tenant] += flow.weight
        for lane, tenant in of_tenant:
            of_all[lane] += self._weight(tenant)

        def share(flow: Flow, lane: str) -> float:
            return self._weight(flow.tenant) / of_all[lane] * flow.weight / of_tenant[lane, flow.tenant]

        return {name: min(share(flow, lane) for lane in flow.lanes) for name, flow in waiting.items()}

    def pay(self, name: str, flow: Flow, cost: float) -> None:
        """This flow has let a piece of this cost go, into each of its lanes."""
        self._turn += 1
        self._served[name] = self._turn
        for lane in flow.lanes:
            self._tenants.pay((lane,), flow.tenant, cost / self._weight(flow.tenant))
            self._flows.pay((lane, flow.tenant), name, cost / flow.weight)

    def _weight(self, tenant: str) -> float:
        return self._weights.get(tenant, 1.0)


Scope = tuple[str, ...]
"""What is shared: a lane; what a tenant has of a lane."""


class _Level:
    """The virtual times of several scopes, and who is how far in each."""

    def __init__(self) -> None:
        self._now: dict[Scope, float] = {}
        self._ends: dict[tuple[Scope, str], float] = {}

    def leads(self, waiting: Iterable[tuple[Scope, str]]) -> dict[tuple[Scope, str], float]:
        """How far each is ahead of those who wait in its scope; whoever fell behind counts as being there."""
        ends = {(scope, name): self._ends.get((scope, name), 0.0) for scope, name in waiting}
        least: dict[Scope, float] = {}
        for (scope, _), end in ends.items():
            least[scope] = min(end, least.get(scope, math.inf))
        behind = {scope: max(end, self._now.get(scope, 0.0)) for scope, end in least.items()}
        return {(scope, name): max(0.0, end - behind[scope]) for (scope, name), end in ends.items()}

    def pay(self, scope: Scope, name: str, stretch: float) -> None:
        now = self._now.get(scope, 0.0)
        begins = max(now, self._ends.get((scope, name), 0.0))
        self._now[scope], self._ends[scope, name] = begins, begins + stretch

    def keep_only(self, names: Collection[str]) -> None:
        self._ends = {(scope, name): end for (scope, name), end in self._ends.items() if name in names}
