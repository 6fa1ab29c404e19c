"""How much a channel's providers let through now, by their rates, breakers and throttles: what dispatch may aim at.

Beside it what of that the standby gets: the same for `work`, which sends, and for dispatch, which fills the lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from consumers import throttles
from consumers.breaker import Breaker, BreakerOptions, Gate
from consumers.limits import Rate
from consumers.sending import WorkerOptions
from consumers.throttles import Throttle
from deploy.ground import Ground
from deploy.settings import Settings
from schemas.messages import Channel

INAPP = "inapp"
INAPP_RATE = Rate(5_000.0, 1_000)
"""The inbox is our own: its pace only keeps one campaign from taking all of Redis."""
_SHORT_PAUSE_MS = WorkerOptions().leave_lane_ms


class Pace(NamedTuple):
    """A provider now: how much it lets through, whether it is well, whether it may be back, and whether another one
    is preferred.
    """

    per_s: float
    is_well: bool
    is_half_open: bool = False
    is_avoided: bool = False


class ProviderRates:
    """Asks Redis how providers stand."""

    def __init__(self, ground: Ground) -> None:
        self._settings = ground.settings
        self._clock = ground.clock
        self._trips = ground.trips("breakers")
        names = (INAPP, *ground.settings.providers)
        self._breakers = {name: Breaker(name, BreakerOptions()) for name in names}
        self._throttles = {name: Throttle(name) for name in names}

    async def usable(self, channel: Channel) -> float:
        """Sends per second that the channel's usable providers take together; 0 while there is none."""
        names = providers_of(self._settings, channel)
        share = standby_share(self._settings, channel)
        return together(await self._paces(names), share)

    async def _paces(self, names: Sequence[str]) -> list[Pace]:
        trip = self._trips.begin()
        for name in names:
            self._breakers[name].ask(trip)
            self._throttles[name].ask(trip)
            self._throttles[name].ask_factor(trip)
        now_ms, replies = self._clock.now_ms(), iter(await trip.execute())
        paces = []
        for name, state, paused, factor in zip(names, replies, replies, replies, strict=True):
            found = self._breakers[name].read(state, now_ms)
            throttle = self._throttles[name]
            is_paused = throttle.read(paused, now_ms).get(throttles.LANE, 0) > _SHORT_PAUSE_MS
            per_s = rate_of(self._settings, name).per_s * throttle.read_factor(factor, now_ms)
            is_well = found.gate is Gate.CLOSED and not is_paused
            may_be_back = found.gate is Gate.HALF_OPEN and not is_paused
            paces.append(Pace(per_s, is_well, may_be_back, found.is_avoided))
        return paces


def together(paces: Sequence[Pace], share: float) -> float:
    """What they let through. share: the standby's part while it and the first are well.

    One that may be back counts while there is no other: somebody's message must test it.
    """
    if share and all(pace.is_well and not pace.is_avoided for pace in paces[:2]):
        first, standby = paces[0].per_s, paces[1].per_s
        return min(first / (1 - share), standby / share)
    well = [pace for pace in paces if pace.is_well] or [pace for pace in paces if pace.is_half_open]
    return min(well, key=lambda pace: pace.is_avoided).per_s if well else 0.0


def standby_share(settings: Settings, channel: Channel) -> float:
    """The part of a channel's sends that its second provider gets always: never more than a slow one can take."""
    names = providers_of(settings, channel)
    if len(names) < 2:
        return 0.0
    first, standby = (rate_of(settings, name).per_s for name in names[:2])
    return min(settings.sending.standby_share, standby / (first + standby))


def providers_of(settings: Settings, channel: Channel) -> tuple[str, ...]:
    """The channel's providers in order; the inbox is our own."""
    if channel is Channel.INAPP:
        return (INAPP,)
    return next((used.providers for name, used in settings.channels.items() if name == channel.value), ())


def rate_of(settings: Settings, name: str) -> Rate:
    """What a provider lets through."""
    if name == INAPP:
        return INAPP_RATE
    return Rate(settings.providers[name].rate_per_s, settings.providers[name].burst)
