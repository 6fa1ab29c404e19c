"""The pace of bulk singles: `route bulk` spends tokens that `dispatch` grants, lane by lane and tenant by tenant.

`route bulk` says how many it wants and takes what is there; dispatch sees the wish, lets it take part in
the same turns as campaigns, and tops the tokens up. Wishes and tokens end by themselves. Who of those that wait
gets them is decided in `streams/singles_queue.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from schemas import keys
from schemas.trips import Trip, Trips, asked, script_beside

TAKE = script_beside(__file__, "grants.lua")

KEPT_MS = 5_000
"""A wish or a token that nobody renews is gone after this."""


Flow = tuple[str, str]
"""(tenant, lane)."""


class Purse:
    """The tokens of one `route bulk` process: what was taken for a record that then had to wait serves the next."""

    def __init__(self, trips: Trips, instance: str) -> None:
        self._trips = trips
        self._instance = instance
        self._held: Counter[Flow] = Counter()
        self._wished: dict[Flow, int] = {}

    async def fill(self, wanted: Mapping[Flow, int]) -> None:
        """Takes tokens until this many are held of each, or there are no more; says how many are still wanted.

        Raises StoreDown.
        """
        for flow, count in wanted.items():
            missing = max(0, count - self._held[flow])
            if missing or self._wished.get(flow):
                taken = await self._ask(flow, missing)
                self._held[flow] += taken
                self._wished[flow] = missing - taken

    def spend(self, flows: Sequence[Flow]) -> bool:
        """Spends a token of each; nothing, and False, when one of them has none."""
        if any(self._held[flow] < flows.count(flow) for flow in flows):
            return False
        self._held.subtract(flows)
        return True

    def set_aside(self, flows: Iterable[Flow]) -> list[Flow]:
        """Takes out as many of these as there are, for somebody who cannot go for want of the others."""
        aside = []
        for flow in flows:
            if self._held[flow] > 0:
                self._held[flow] -= 1
                aside.append(flow)
        return aside

    def put_back(self, flows: Iterable[Flow]) -> None:
        self._held.update(flows)

    async def _ask(self, flow: Flow, missing: int) -> int:
        tenant, lane = flow
        key = keys.redis_grant(lane, tenant)
        (taken,) = await asked(self._trips, lambda trip: trip.run(TAKE, (key,), self._instance, missing, KEPT_MS))
        return int(taken)


@dataclass(frozen=True, slots=True)
class Wish:
    """What bulk singles of one tenant want of one lane. tokens: granted and not yet taken."""

    wanted: int
    tokens: int

    @property
    def missing(self) -> int:
        return max(0, self.wanted - self.tokens)


class Grants:
    """Dispatch's side."""

    def __init__(self, trips: Trips) -> None:
        self._trips = trips

    async def wishes(self, flows: Sequence[Flow]) -> dict[Flow, Wish]:
        """The wishes of these (tenant, lane)s, aged by Redis's own clock. Raises StoreDown."""

        def ask(trip: Trip) -> None:
            trip.execute_command("TIME")
            for tenant, lane in flows:
                trip.execute_command("HGETALL", keys.redis_grant(lane, tenant))

        (seconds, micros), *replies = await asked(self._trips, ask)
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        return {flow: _wish(reply, now_ms) for flow, reply in zip(flows, replies, strict=True) if reply}

    async def give(self, granted: Mapping[Flow, int]) -> None:
        """Adds tokens. Raises StoreDown."""

        def ask(trip: Trip) -> None:
            for (tenant, lane), count in granted.items():
                key = keys.redis_grant(lane, tenant)
                trip.execute_command("HINCRBY", key, "tokens", count)
                trip.execute_command("PEXPIRE", key, KEPT_MS)

        await asked(self._trips, ask)


def _wish(reply: Mapping[bytes, bytes], now_ms: int) -> Wish:
    """wish:<instance> fields hold "count at_ms": those of a process that died count no more."""
    wanted = 0
    for field, value in reply.items():
        if field.startswith(b"wish:"):
            count, at_ms = value.split()
            wanted += int(count) if now_ms - int(at_ms) < KEPT_MS else 0
    return Wish(wanted, int(reply.get(b"tokens", b"0")))
