"""A budget of money: never more than it is spent by a tenant on a channel in a day, however many workers there are.

Each worker draws a block of the day's budget from Redis and charges its calls to that: a round trip for many calls. A
worker that dies takes its block with it: what nobody knows of counts as spent, so an error is always one of silence.
Whole micro-units throughout. `prices` says what a call costs, `spend_watch` looks at how the day goes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from consumers.prices import Prices
from schemas import keys, local_times
from schemas.clock import Clock
from schemas.content import Content
from schemas.errors import StoreDown
from schemas.messages import Channel
from schemas.trips import Trip, Trips, asked, script_beside

DRAW = script_beside(__file__, "spend_draw.lua")

BLOCKS = 100
"""A block is this part of the budget, or the price of one call where that is more."""
ASK_AGAIN_S = 1.0
"""Where nothing is left others may give a block back; until then one answer does for all who ask."""
IDLE_S = 10.0
"""A block that nobody uses for so long goes back."""
KEPT_MS = 9 * 86_400_000
"""An account is kept until the last day that compares itself with it is over."""
_QUARTER_MS = 900_000
"""Days begin, and clocks are changed, at a quarter of an hour."""


@dataclass(frozen=True, slots=True)
class Budget:
    """per_day: micro-units, for the days of this zone."""

    tenant: str
    channel: Channel
    per_day: int
    zone: str


class Moment(NamedTuple):
    """A time in a budget's zone. part: of the hour that has passed."""

    day: date
    hour: int
    part: float


def moment(now_ms: int, zone: str) -> Moment:
    local = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(ZoneInfo(zone))
    return Moment(local.date(), local.hour, local.minute / 60)


def account(budget: Budget, day: date) -> str:
    """The Redis key of a day."""
    return keys.redis_spend(budget.tenant, budget.channel, day.isoformat())


def hour_field(hour: int) -> str:
    """What an account keeps of an hour: what was spent in it."""
    return f"h{hour:02}"


class Charge(NamedTuple):
    """What one call was charged, on which day."""

    purse: Purse
    day: date
    micros: int


class Gone(NamedTuple):
    """Too little is left for this call. until_ms: when the next day begins."""

    until_ms: int


class Purse:
    """What this worker may still spend of one budget today. refused_on: the newest day on which it was too little."""

    def __init__(self, trips: Trips, clock: Clock, budget: Budget) -> None:
        self.budget = budget
        self.refused_on: date | None = None
        self._trips = trips
        self._clock = clock
        self._drawing = asyncio.Lock()
        self._now = Moment(date.min, 0, 0.0)
        self._now_from_ms = self._now_until_ms = 0
        self._block = self._seen_drawn = self._seen_returned = 0
        self._refused, self._refused_until_s = 0, 0.0
        self._charged_s, self._failures = 0.0, 0
        self._spent: Counter[tuple[date, int]] = Counter()

    @property
    def size(self) -> int:
        """Of a block."""
        return self.budget.per_day // BLOCKS

    @property
    def held(self) -> int:
        """Drawn and not charged."""
        return self._block

    async def charge(self, micros: int) -> Charge | Gone:
        """Takes the price of one call. Raises StoreDown when a new block is needed and Redis does not answer."""
        day = self._today()
        if self._block < micros:
            await self._refill(micros)
            day = self._today()
        if self._block < micros:
            self.refused_on = day
            return Gone(local_times.due_ms((day + timedelta(days=1)).isoformat(), "00:00", self.budget.zone, 0))
        self._block -= micros
        self._charged_s = self._clock.steady_s()
        return Charge(self, day, micros)

    def give_back(self, charge: Charge) -> None:
        """No call came of it. Yesterday's money is of no use any more."""
        if charge.day == self._today():
            self._block += charge.micros

    def called(self, charge: Charge) -> None:
        """The call was made; `tell` adds it to what was spent in this hour."""
        self._today()
        self._spent[charge.day, self._now.hour] += charge.micros

    async def tell(self) -> None:
        """Says what was spent, and gives back what is more than a block or lies idle. Raises StoreDown."""
        is_idle = self._clock.steady_s() - self._charged_s >= IDLE_S
        await self._settle(self._block if is_idle else self._block - self.size)

    async def close(self) -> None:
        """The whole block goes back. Raises StoreDown."""
        await self._settle(self._block)

    def _today(self) -> date:
        now_ms = self._clock.now_ms()
        if not self._now_from_ms <= now_ms < self._now_until_ms:
            self._now_from_ms = now_ms - now_ms % _QUARTER_MS
            self._now_until_ms = self._now_from_ms + _QUARTER_MS
            before, self._now = self._now, moment(now_ms, self.budget.zone)
            if before.day != self._now.day:
                self._block = self._seen_drawn = self._seen_returned = 0
                self._refused_until_s = 0.0
        return self._now.day

    async def _refill(self, micros: int) -> None:
        """Draws until this call can be paid, or no more is to be had. One question for all who wait."""
        failures = self._failures
        async with self._drawing:
            if self._failures != failures:
                raise StoreDown("Redis did not answer who asked first")
            self._today()
            while self._block < micros and not self._is_refused(micros):
                await self._draw(micros)

    def _is_refused(self, micros: int) -> bool:
        return micros - self._block >= self._refused and self._clock.steady_s() < self._refused_until_s

    async def _draw(self, micros: int) -> None:
        """A new block; a refusal is remembered for a while."""
        least = micros - self._block
        try:
            granted = await self._ask(self._today(), max(self.size, micros) - self._block, least, 0)
        except StoreDown:
            self._failures += 1
            raise
        if not granted:
            self._refused, self._refused_until_s = least, self._clock.steady_s() + ASK_AGAIN_S

    async def _ask(self, day: date, wanted: int, least: int, returned: int) -> int:
        """What was granted. Raises StoreDown; then it may have been, and is lost."""
        amounts = (wanted, least, self._seen_drawn, self._seen_returned, returned, KEPT_MS)
        words = (self.budget.per_day, *amounts)
        key = account(self.budget, day)
        ((granted, drawn, given_back),) = await asked(self._trips, lambda trip: trip.run(DRAW, (key,), *words))
        if self._today() == day:  # else it is of no use any more
            self._seen_drawn = max(self._seen_drawn, drawn)
            self._seen_returned = max(self._seen_returned, given_back)
            self._block += granted
        return int(granted)

    async def _settle(self, too_much: int) -> None:
        day = self._today()
        too_much = min(too_much, self._block)
        if too_much > 0:
            # Out of hand before it is told: given back twice, it would be spent twice.
            self._block -= too_much
            await self._ask(day, 0, 0, too_much)
        await self._report()

    async def _report(self) -> None:
        """After a lost answer the hours are told once more: they only warn, no money hangs on them."""
        told = Counter(self._spent)
        if told:
            await asked(self._trips, lambda trip: self._add(trip, told))
            self._spent -= told

    def _add(self, trip: Trip, told: Counter[tuple[date, int]]) -> None:
        for (day, hour), micros in told.items():
            key = account(self.budget, day)
            trip.execute_command("HINCRBY", key, hour_field(hour), micros)
            trip.execute_command("PEXPIRE", key, KEPT_MS)


class Spend:
    """The budgets of one channel and what its providers ask. purses: by tenant; prices: by provider."""

    def __init__(self, channel: Channel, purses: Mapping[str, Purse], prices: Mapping[str, Prices]) -> None:
        self.purses = purses
        self._channel = channel
        self._prices = prices

    async def charge(self, tenant: str, provider: str, address: str, content: Content) -> Charge | Gone | None:
        """What was charged for a call; None where there is no budget or no price. Raises StoreDown."""
        purse = self.purses.get(tenant)
        if purse is None:
            return None
        micros = self._prices[provider].cost(self._channel, address, content)
        return await purse.charge(micros) if micros else None
