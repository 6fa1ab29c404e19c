"""`tidings breaker list|open|close`: how each provider stands, and a person's word on whether it is called at all.

Asked of Redis, where all workers look: it works while no API runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from rich.table import Table

from consumers import breaker, throttles
from consumers.breaker import Breaker, BreakerOptions, Gate
from consumers.throttles import Throttle
from deploy import redis_client
from deploy.redis_trips import RedisTrips
from deploy.settings import Settings
from schemas import keys
from schemas.clock import Clock
from schemas.errors import Misconfigured
from schemas.trips import Epoch, Trip, Trips, asked

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stand:
    """One provider now. failed: of the last `known` calls. since, next_probe_in_s: of one that is not closed.

    slowed_to: the part of its rate that is given out; left_alone_s: how long it wants no call; left_alone: recipients
    and mail domains that it wants to be left alone with.
    """

    provider: str
    channels: tuple[str, ...]
    state: str
    reason: str
    since_ms: int | None
    next_probe_in_s: float | None
    failed: int
    known: int
    slowed_to: float
    left_alone_s: float
    left_alone: int


def stands(settings: Settings, clock: Clock) -> list[Stand]:
    """Every provider of the settings, in their order. Raises StoreDown."""
    return asyncio.run(_connected(settings, lambda trips: Desk(trips, settings, clock).look()))


def order(settings: Settings, clock: Clock, provider: str, is_open: bool) -> Stand:
    """Opens or closes it, and how it stands then. Raises Misconfigured for a name that is not in the settings."""
    if provider not in settings.providers:
        raise Misconfigured(f"{provider}: no such provider; there are {', '.join(settings.providers) or 'none'}")

    async def given(trips: Trips) -> Stand:
        desk = Desk(trips, settings, clock)
        await desk.order(provider, is_open)
        return next(stand for stand in await desk.look() if stand.provider == provider)

    return asyncio.run(_connected(settings, given))


class Desk:
    """Where breakers are seen and steered."""

    def __init__(self, trips: Trips, settings: Settings, clock: Clock) -> None:
        self._trips = trips
        self._settings = settings
        self._clock = clock

    async def look(self) -> list[Stand]:
        names = tuple(self._settings.providers)

        def ask(trip: Trip) -> None:
            trip.execute_command("TIME")
            for name in names:
                trip.execute_command("HGETALL", keys.redis_breaker(name))
                Breaker(name, BreakerOptions()).ask(trip)
                Throttle(name).ask(trip)
                Throttle(name).ask_factor(trip)

        time, *replies = await asked(self._trips, ask)
        now_ms = int(time[0]) * 1000 + int(time[1]) // 1000
        return [self._stand(name, replies[4 * at : 4 * at + 4], now_ms) for at, name in enumerate(names)]

    async def order(self, provider: str, is_open: bool) -> None:
        def ask(trip: Trip) -> None:
            if is_open:
                breaker.ask_open(trip, provider, self._clock.now_ms())
            else:
                breaker.ask_close(trip, provider)

        await asked(self._trips, ask)

    def _stand(self, name: str, replies: Sequence[Any], now_ms: int) -> Stand:
        kept, state, paused, factor = replies
        found = Breaker(name, BreakerOptions()).read(state, now_ms)
        quiet = Throttle(name).read(paused, now_ms)
        newest = kept.get(b"ring", b"")[-BreakerOptions().window :]
        is_closed, by_time = found.gate is Gate.CLOSED, kept.get(b"reason") != b"operator"
        return Stand(
            provider=name,
            channels=tuple(channel for channel, used in self._settings.channels.items() if name in used.providers),
            state=found.gate.value,
            reason="" if is_closed else kept.get(b"reason", b"").decode(),
            since_ms=None if is_closed else int(kept.get(b"since", 0)),
            next_probe_in_s=None if is_closed or not by_time else found.left_ms / 1000,
            failed=newest.count(b"1"),
            known=len(newest),
            slowed_to=round(Throttle(name).read_factor(factor, now_ms), 2),
            left_alone_s=quiet.get(throttles.LANE, 0) / 1000,
            left_alone=len(quiet) - (throttles.LANE in quiet),
        )


async def _connected(settings: Settings, act: Callable[[Trips], Awaitable[T]]) -> T:
    client = redis_client.connect(settings.redis.url, Epoch())
    try:
        return await act(RedisTrips(client, "breakers"))
    finally:
        await client.aclose()


def as_lines(found: Sequence[Stand]) -> list[dict[str, Any]]:
    """For machines."""
    return [asdict(stand) for stand in found]


def sheet(found: Sequence[Stand]) -> Table:
    """For people."""
    table = Table("provider", "channels", "state", "why", "since", "failed", "next probe", "rate", box=None)
    for stand in found:
        failed = f"{stand.failed} of {stand.known}" if stand.known else "-"
        probe = "-" if stand.next_probe_in_s is None else f"in {stand.next_probe_in_s:.0f} s"
        channels = ", ".join(stand.channels)
        why, since = stand.reason or "-", _time(stand.since_ms)
        table.add_row(stand.provider, channels, stand.state, why, since, failed, probe, _rate(stand))
    return table


def _time(at_ms: int | None) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds") if at_ms else "-"


def _rate(stand: Stand) -> str:
    parts = [f"{stand.slowed_to:.0%}"]
    if stand.left_alone_s:
        parts.append(f"left alone for {stand.left_alone_s:.0f} s")
    if stand.left_alone:
        parts.append(f"{stand.left_alone} recipients or domains left alone")
    return ", ".join(parts)
