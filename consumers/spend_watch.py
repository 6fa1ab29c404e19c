"""How the day's money goes: kept with the workers, shown in metrics, and warned of before it is gone.

The curve is what was spent by this time of day on the days before, of the last seven. With fewer than three of them it
is a straight line to the budget. Of all workers one says a warning: an hour, or a day, has one of each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from enum import StrEnum

from consumers import spend
from consumers.prices import MICROS
from consumers.spend import Moment, Purse, Spend
from schemas import metrics
from schemas.clock import Clock
from schemas.errors import StoreDown
from schemas.trips import Trip, Trips, asked

log = logging.getLogger(__name__)

DAYS_BEFORE = 7
LEAST_DAYS = 3
HOURS = 24
AHEAD = 1.5
"""Times the usual: more is worth a warning ..."""
WORTH_A_WORD = 0.1
"""... once this part of the budget is spent."""
MOST = 0.8
TELL_EVERY_S = 1.0
LOOK_EVERY_S = 15.0

Day = Mapping[int, int]
"""Hour -> micro-units spent in it."""


class Worry(StrEnum):
    """ahead: above the usual curve; most: 80 % of the budget is spent; all: too little is left for a call."""

    AHEAD = "ahead"
    MOST = "most"
    ALL = "all"


def usual(days: Sequence[Day], budget: int, now: Moment) -> float:
    """What is spent by this time on an ordinary day. days: those before; one without any spending says nothing."""
    known = [day for day in days if any(day.values())]
    if len(known) < LEAST_DAYS:
        return budget * (now.hour + now.part) / HOURS
    so_far = (sum(spent for hour, spent in day.items() if hour < now.hour) for day in known)
    this_hour = (day.get(now.hour, 0) * now.part for day in known)
    return (sum(so_far) + sum(this_hour)) / len(known)


def worries(spent: int, ordinary: float, budget: int) -> Iterable[Worry]:
    """What this amount is worth saying."""
    if spent > AHEAD * ordinary and spent >= WORTH_A_WORD * budget:
        yield Worry.AHEAD
    if spent >= MOST * budget:
        yield Worry.MOST


class SpendWatch:
    """Tells Redis what this worker spends, and looks at what all of them do."""

    def __init__(
        self,
        spending: Spend,
        trips: Trips,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._purses = tuple(spending.purses.values())
        self._trips = trips
        self._clock = clock
        self._sleep = sleep
        self._said_all: dict[str, date] = {}

    async def run(self) -> None:
        """Until it is cancelled. Without Redis nothing is told; the hours are made up for later."""
        looked_s = -LOOK_EVERY_S
        while True:
            try:
                await self.tell()
                if self._clock.steady_s() - looked_s >= LOOK_EVERY_S:
                    looked_s = self._clock.steady_s()
                    await self.look()
            except StoreDown as error:
                log.info("spend.untold", extra={"error": str(error)})
            await self._sleep(TELL_EVERY_S)

    async def tell(self) -> None:
        """What was spent, what is not needed, and that a budget is gone. Raises StoreDown."""
        for purse in self._purses:
            await purse.tell()
            day, tenant = purse.refused_on, purse.budget.tenant
            if day is not None and self._said_all.get(tenant) != day:
                await self._warn(purse, day, Worry.ALL, "", {})
                self._said_all[tenant] = day

    async def look(self) -> None:
        """The metrics of today, and what they are worth saying. Raises StoreDown."""
        for purse in self._purses:
            await self._look(purse)

    async def close(self) -> None:
        """What this worker does not need any more goes back to the others."""
        for purse in self._purses:
            try:
                await purse.close()
            except StoreDown as error:
                log.warning("spend.block_lost", extra={"tenant": purse.budget.tenant, "error": str(error)})

    async def _look(self, purse: Purse) -> None:
        budget = purse.budget
        now = spend.moment(self._clock.now_ms(), budget.zone)
        today, *before = await self._days(purse, now.day)
        spent, ordinary = sum(today.values()), usual(before, budget.per_day, now)
        labels = (budget.tenant, budget.channel)
        metrics.SPEND_TODAY.labels(*labels).set(spent / MICROS)
        metrics.SPEND_USUAL.labels(*labels).set(ordinary / MICROS)
        metrics.SPEND_BUDGET.labels(*labels).set(budget.per_day / MICROS)
        for worry in worries(spent, ordinary, budget.per_day):
            hour = str(now.hour) if worry is Worry.AHEAD else ""
            await self._warn(purse, now.day, worry, hour, {"spent": _money(spent), "usual": _money(int(ordinary))})

    async def _days(self, purse: Purse, day: date) -> list[Day]:
        """Today and the days before, newest first."""

        def ask(trip: Trip) -> None:
            for back in range(DAYS_BEFORE + 1):
                key = spend.account(purse.budget, day - timedelta(days=back))
                trip.execute_command("HMGET", key, *(spend.hour_field(hour) for hour in range(HOURS)))

        return [{hour: int(said or 0) for hour, said in enumerate(told)} for told in await asked(self._trips, ask)]

    async def _warn(self, purse: Purse, day: date, worry: Worry, hour: str, said: Mapping[str, str]) -> None:
        """Once for all workers, for the hour or the day."""
        budget = purse.budget
        key, field = spend.account(budget, day), f"said:{worry}:{hour}"

        def ask(trip: Trip) -> None:
            trip.execute_command("HSETNX", key, field, 1)
            trip.execute_command("PEXPIRE", key, spend.KEPT_MS)

        is_first, _ = await asked(self._trips, ask)
        if is_first:
            metrics.SPEND_WARNINGS.labels(budget.tenant, budget.channel, worry).inc()
            about = {"tenant": budget.tenant, "channel": budget.channel.value, "budget": _money(budget.per_day)}
            log.warning("spend.warned", extra={"worry": worry.value, **about, **said})


def _money(micros: int) -> str:
    return f"{micros / MICROS:.2f}"
