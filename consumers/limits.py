"""A provider's rate, shared by all workers: buckets in Redis, a pocket of tokens in each worker.

A pocket takes a share at a time, so the rate costs a few round trips a second and not one a call. Tokens
live 200 ms, are checked at the call itself, and go back when no call comes of them. In any second the calls
of all workers stay within rate + burst; bulk stays within the rate without the transactional reserve.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from consumers.turns import Turn
from schemas import keys, metrics
from schemas.clock import Clock
from schemas.errors import Misconfigured, StoreDown
from schemas.messages import Priority
from schemas.trips import Trips, script_beside

TAKE = script_beside(__file__, "limits_factor.lua", "limits_clock.lua", "limits_take.lua")

TOKEN_LIFE_S = 0.2
"""Whoever had to wait for longer than this between its token and its call asks for another one."""
LEAST_BURST = 4
"""Below this, half a burst without the reserve is less than one token: bulk would never get any."""
MOST_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Rate:
    """per_s: calls a second on average; burst: how many more than that may fall into one second."""

    per_s: float
    burst: int


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """reserved: the part of every provider's rate that bulk never gets. report_s: how soon use is told."""

    token_life_s: float = TOKEN_LIFE_S
    reserved: float = 0.3
    report_s: float = 0.005


class Token:
    """One grant; each of its tokens is the right to one call until expires_s (steady clock)."""

    __slots__ = ("expires_s", "free", "held")

    def __init__(self, expires_s: float, count: int) -> None:
        self.expires_s = expires_s
        self.free = count
        self.held = count


class Tokens(Protocol):
    """What a worker needs of a provider's rate."""

    async def take(self, wanted: int, wait_s: float, rank: int = 0) -> list[Token]:
        """At least one token and at most `wanted`; none when none came within wait_s. Raises StoreDown.

        Of those who wait the lowest rank goes first.
        """
        ...

    def spend(self, token: Token) -> bool:
        """Just before the call: False when the token has died and no call may be made with it."""
        ...

    def give_back(self, token: Token) -> None:
        """No call comes of it."""
        ...


class Pocket:
    """The tokens that one worker holds of one provider for one class."""

    def __init__(
        self,
        trips: Trips,
        clock: Clock,
        provider: str,
        rate: Rate,
        priority: Priority,
        worker: str,
        options: LimitOptions,
        lane: str = "-",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """lane: of workers of one lane that who has the earliest record goes first."""
        if rate.per_s <= 0 or rate.burst < LEAST_BURST:
            raise Misconfigured(f"provider {provider}: rate_per_s must be above 0 and burst at least {LEAST_BURST}")
        self._trips = trips
        self._clock = clock
        self._key = keys.redis_bucket(provider)
        self._labels = (provider, str(priority))
        self._rate = rate
        self._asker = f"{worker}/{priority}"
        self._lane = lane
        self._priority = priority
        self._options = options
        self._sleep = sleep
        self._grants: deque[Token] = deque()
        self._turn = Turn()
        self._appetite = 1
        self._report: asyncio.Task[None] | None = None
        self._untold = False

    async def take(self, wanted: int, wait_s: float, rank: int = 0) -> list[Token]:
        give_up_s = self._clock.steady_s() + wait_s
        try:
            async with asyncio.timeout(wait_s if self._turn.is_taken else None):
                await self._turn.take(rank)
        except TimeoutError:
            return self._none()
        try:
            return await self._wait_for_some(wanted, give_up_s, rank)
        finally:
            self._turn.pass_on()

    async def _wait_for_some(self, wanted: int, give_up_s: float, rank: int) -> list[Token]:
        """All that are wanted if the pocket holds them; else what there is after one more question."""
        tokens = self._from_pocket(wanted)
        while len(tokens) < wanted:
            again_ms = await self._refill(wanted - len(tokens), rank)
            tokens += self._from_pocket(wanted - len(tokens))
            if tokens:
                break
            # Also where tokens were dead when they came, as Redis is slow: asked again at once, while there is time.
            if self._clock.steady_s() + again_ms / 1000 > give_up_s:
                return self._none()
            if again_ms:
                await self._sleep(again_ms / 1000)
        return tokens

    def _none(self) -> list[Token]:
        metrics.THROTTLED.labels(*self._labels).inc()
        return []

    def spend(self, token: Token) -> bool:
        token.held -= 1
        if self._clock.steady_s() >= token.expires_s:
            metrics.TOKENS_RETURNED.labels(*self._labels).inc()
            return False
        self._tell_soon()
        return True

    def give_back(self, token: Token) -> None:
        token.free += 1
        self._tell_soon()

    def _from_pocket(self, wanted: int) -> list[Token]:
        self._drop_dead()
        tokens: list[Token] = []
        for grant in self._grants:
            count = min(grant.free, wanted - len(tokens))
            grant.free -= count
            tokens += [grant] * count
        return tokens

    def _drop_dead(self) -> None:
        now_s = self._clock.steady_s()
        while self._grants and self._grants[0].expires_s <= now_s:
            dead = self._grants.popleft()
            if dead.free:
                metrics.TOKENS_RETURNED.labels(*self._labels).inc(dead.free)
                self._appetite = max(1, self._appetite // 2)

    async def _refill(self, wanted: int, rank: int) -> int:
        """Asks for more; returns after how many ms to ask again, 0 when tokens came."""
        ask = min(max(wanted, self._appetite), MOST_AT_ONCE)
        granted, again_ms = await self._ask(ask, rank)
        if granted:
            self._appetite = min(2 * granted, MOST_AT_ONCE)
            metrics.TOKENS.labels(*self._labels).inc(granted)
        return again_ms

    async def _ask(self, wanted: int, rank: int = 0) -> tuple[int, int]:
        """(tokens granted, ms until the next try). Their life begins before the server counts it: never longer."""
        self._drop_dead()
        expires_s = self._clock.steady_s() + self._options.token_life_s
        self._untold = False
        trip = self._trips.begin()
        held = sum(grant.held for grant in self._grants)
        amounts = (held, wanted, self._rate.per_s, self._rate.burst)
        life_ms = int(self._options.token_life_s * 1000)
        words = (self._asker, str(self._priority), *amounts, self._options.reserved, life_ms, self._lane, rank)
        trip.run(TAKE, (self._key,), *words)
        (reply,) = await trip.execute()
        if isinstance(reply, Exception):
            raise reply
        if reply[0]:
            self._grants.append(Token(expires_s, reply[0]))
        return reply[0], reply[1]

    def _tell_soon(self) -> None:
        """Spent tokens still count as held until told, so an idle worker must not keep others waiting."""
        self._untold = True
        if self._report is None:
            self._report = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._untold:
                await self._sleep(self._options.report_s)
                if self._untold and not self._turn.is_taken:  # a taker at work tells it by the way
                    await self._turn.take(0)
                    try:
                        await self._ask(0)
                    finally:
                        self._turn.pass_on()
        except StoreDown:
            pass  # the tokens die by themselves
        finally:
            self._report = None

    async def close(self) -> None:
        if self._report is not None:
            self._report.cancel()
