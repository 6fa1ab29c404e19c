"""The pace of bulk singles: `route bulk` spends tokens that `dispatch` grants, lane by lane and tenant by tenant.

`route bulk` says how many it wants and takes what is there; dispatch sees the wish, lets it take part in
the same turns as campaigns, and tops the tokens up. Wishes and tokens end by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas import keys
from schemas.trips import Trip, Trips, asked, script_beside

TAKE = script_beside(__file__, "grants.lua")

KEPT_MS = 5_000
"""A wish or a token that nobody renews is gone after this."""


class Purse:
    """The tokens of one `route bulk` process: what was taken for a record that then had to wait serves the next."""

    def __init__(self, trips: Trips, instance: str) -> None:
        self._trips = trips
        self._instance = instance
        self._held: dict[tuple[str, str], int] = {}

    async def fill(self, wanted: Mapping[tuple[str, str], int]) -> None:
        """Takes tokens until this many are held per (tenant, lane), or there are no more. Raises StoreDown."""
        for flow, count in wanted.items():
            missing = count - self._held.get(flow, 0)
            if missing > 0:
                taken = await self._ask(flow, missing)
                self._held[flow] = self._held.get(flow, 0) + taken

    def spend(self, tenant: str, lanes: Sequence[str]) -> bool:
        """Spends one token of each of these lanes; nothing, and False, when one of them has none."""
        flows = [(tenant, lane) for lane in lanes]
        if any(self._held.get(flow, 0) < flows.count(flow) for flow in flows):
            return False
        for flow in flows:
            self._held[flow] -= 1
        return True

    async def _ask(self, flow: tuple[str, str], missing: int) -> int:
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

    async def wishes(self, flows: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Wish]:
        """The wishes of these (tenant, lane)s, aged by Redis's own clock. Raises StoreDown."""

        def ask(trip: Trip) -> None:
            trip.execute_command("TIME")
            for tenant, lane in flows:
                trip.execute_command("HGETALL", keys.redis_grant(lane, tenant))

        (seconds, micros), *replies = await asked(self._trips, ask)
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        return {flow: _wish(reply, now_ms) for flow, reply in zip(flows, replies, strict=True) if reply}

    async def give(self, granted: Mapping[tuple[str, str], int]) -> None:
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
