"""Warns when a provider delivers less, within ten minutes, than it usually does; beside the handler in `reconcile`.

Every instance looks and shows the same; who sets the alarm's key in Redis logs it, so each change is logged once.
While it lasts, and where that is wished for and another provider stands by, the provider is avoided.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas import keys, metrics
from schemas.clock import Clock
from schemas.errors import StoreDown
from schemas.trips import Trip, Trips, asked
from streams import delivery_shares
from streams.delivery_shares import Share, ShareOptions

log = logging.getLogger(__name__)

Watched = tuple[str, str]
"""(provider, channel)."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """alarm_s: how long an alarm lasts that cannot be judged any more. avoid_s: for how long a provider is avoided
    after each look at which its alarm was on.
    """

    every_s: float = 15.0
    alarm_s: int = 1_800
    avoid_s: int = 60
    shares: ShareOptions = field(default_factory=ShareOptions)


class ShareWatch:
    """providers: channel -> its providers that promise reports. avoidable: those that another one stands by for."""

    def __init__(
        self,
        trips: Trips,
        clock: Clock,
        providers: Mapping[str, Sequence[str]],
        avoidable: frozenset[Watched] = frozenset(),
        options: WatchOptions | None = None,
    ) -> None:
        self._trips = trips
        self._clock = clock
        self._watched = [(name, channel) for channel, names in providers.items() for name in names]
        self._avoidable = avoidable
        self._options = options or WatchOptions()

    async def run(self) -> None:
        """Looks for ever; while Redis is away nothing is judged."""
        while True:
            try:
                await self.look()
            except StoreDown as error:
                log.warning("delivery_share.not_judged", extra={"error": str(error)})
            await asyncio.sleep(self._options.every_s)

    async def look(self) -> None:
        """Judges every provider once. Raises StoreDown."""
        for provider, channel in self._watched:
            found = await self._share(provider, channel)
            metrics.DELIVERED_SHARE.labels(provider, channel).set(_shown(found.share))
            metrics.DELIVERED_USUAL_SHARE.labels(provider, channel).set(_shown(found.usual))
            is_on = await self._alarm(provider, channel, found)
            metrics.DELIVERED_SHARE_ALARM.labels(provider, channel).set(is_on)
            if is_on and (provider, channel) in self._avoidable:
                await self._avoid(provider)

    async def _share(self, provider: str, channel: str) -> Share:
        now_ms = self._clock.now_ms()
        within, week = delivery_shares.minutes(now_ms), delivery_shares.hours(now_ms)
        by_minute = {at: keys.redis_share(provider, channel, "h", at) for at in {within[0] // 60, within[-1] // 60}}
        by_hour = {at: keys.redis_share(provider, channel, "d", at) for at in range(week[0] // 24, week[-1] // 24 + 1)}
        names = (*by_minute.values(), *by_hour.values())

        def ask(trip: Trip) -> None:
            for name in names:
                trip.execute_command("HGETALL", name)

        replies = await asked(self._trips, ask)
        minutes, hours = _counts(replies[: len(by_minute)]), _counts(replies[len(by_minute) :])
        return delivery_shares.share(minutes, hours, now_ms, self._options.shares)

    async def _alarm(self, provider: str, channel: str, found: Share) -> bool:
        """Whether the alarm is on after this look; logs when this process turned it."""
        key, options = keys.redis_share_alarm(provider, channel), self._options
        told = {"provider": provider, "channel": channel, "share": found.share, "usual": found.usual}
        if found.is_low(options.shares):
            began = await self._ask("SET", key, self._clock.now_ms(), "NX", "EX", options.alarm_s)
            if began:
                log.warning("delivery_share.fell", extra=told)
            else:
                await self._ask("EXPIRE", key, options.alarm_s)
            return True
        if found.is_well(options.shares):
            if await self._ask("DEL", key):
                log.warning("delivery_share.recovered", extra=told)
            return False
        return bool(await self._ask("EXISTS", key))

    async def _avoid(self, provider: str) -> None:
        """Tells the workers: see `consumers/breaker.py`. How long a breaker is kept is not for us to say: one that a
        person opened stays open.
        """
        await self._ask(
            "HSET", keys.redis_breaker(provider), "avoid", self._clock.now_ms() + self._options.avoid_s * 1000
        )

    async def _ask(self, *command: Any) -> Any:
        def ask(trip: Trip) -> None:
            trip.execute_command(*command)

        (reply,) = await asked(self._trips, ask)
        return reply


def _counts(replies: Sequence[Mapping[bytes, bytes]]) -> dict[int, tuple[int, int]]:
    """Fields `<time>s` and `<time>d` of these hashes."""
    sent: dict[int, int] = {}
    soon: dict[int, int] = {}
    for reply in replies:
        for name, count in reply.items():
            into = sent if name.endswith(b"s") else soon
            into[int(name[:-1])] = int(count)
    return {at: (sent.get(at, 0), soon.get(at, 0)) for at in {*sent, *soon}}


def _shown(share: float | None) -> float:
    return math.nan if share is None else share
