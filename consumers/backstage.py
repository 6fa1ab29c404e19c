"""What the claims and breakers say, for explanations: the body of `schemas.backstage`. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from consumers import verdicts
from consumers.breaker import Breaker, BreakerOptions, Gate, State
from consumers.claims import Entry, VerdictClass, unpacked_entry
from schemas import keys
from schemas.backstage import ClaimState, ClaimView, ProviderState, ProviderView
from schemas.trips import Epoch, Trip, Trips, trusted

_DECIDED = {
    VerdictClass.SENT: ClaimState.SENT,
    VerdictClass.WAITING: ClaimState.WAITING,
    VerdictClass.ENDED: ClaimState.ENDED,
}
_PROVIDERS = {Gate.CLOSED: ProviderState.WELL, Gate.OPEN: ProviderState.OPEN, Gate.HALF_OPEN: ProviderState.TESTED}


class RedisBackstage:
    """Reads what is found in Redis now."""

    def __init__(self, trips: Trips, epoch: Epoch) -> None:
        self._trips = trips
        self._epoch = epoch

    async def claims(self, tenant: str, user_id: str, intent: str, suffixes: Sequence[str]) -> Mapping[str, ClaimView]:
        def ask(trip: Trip) -> None:
            _ask_now(trip)
            for suffix in suffixes:
                trip.execute_command("GET", keys.redis_claim(tenant, user_id, f"{intent}:{suffix}"))

        now, *found = await trusted(self._trips, self._epoch, ask)
        now_ms = _read_now(now)
        pairs = zip(suffixes, found, strict=True)
        return {suffix: _claim(unpacked_entry(raw), now_ms) for suffix, raw in pairs if raw is not None}

    async def place(self, tenant: str, user_id: str, intent: str) -> keys.Address | None:
        key = keys.redis_plan(tenant, user_id, intent)
        (plan,) = await trusted(self._trips, self._epoch, lambda trip: trip.execute_command("GET", key))
        if plan is None:
            return None
        row, slot, _ = plan.split(b"|", 2)  # as the planners store it
        return keys.Address(row.decode(), int(slot))

    async def providers(self, names: Sequence[str]) -> Mapping[str, ProviderView]:
        breakers = [Breaker(name, BreakerOptions()) for name in names]

        def ask(trip: Trip) -> None:
            _ask_now(trip)
            for breaker in breakers:
                breaker.ask(trip)

        now, *found = await trusted(self._trips, self._epoch, ask)
        now_ms = _read_now(now)
        pairs = zip(breakers, found, strict=True)
        return {breaker.provider: _provider(breaker.read(reply, now_ms)) for breaker, reply in pairs}


def _ask_now(trip: Trip) -> None:
    trip.execute_command("TIME")


def _read_now(reply: Sequence[bytes]) -> int:
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


def _claim(entry: Entry, now_ms: int) -> ClaimView:
    if entry.verdict is not VerdictClass.NONE:
        tries = verdicts.unpack(entry.detail).tries if entry.detail else None
        return ClaimView(_DECIDED[entry.verdict], entry.call, entry.lease_end_ms, tries)
    if entry.given_back:
        return ClaimView(ClaimState.FREE, entry.call, 0)
    state = ClaimState.SENDING if entry.lease_end_ms > now_ms else ClaimState.LAPSED
    return ClaimView(state, entry.call, entry.lease_end_ms)


def _provider(state: State) -> ProviderView:
    if state.is_hold:
        return ProviderView(ProviderState.REFUSES_US, state.left_ms)
    return ProviderView(_PROVIDERS[state.gate], state.left_ms)
