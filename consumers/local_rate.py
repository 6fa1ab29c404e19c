"""A part of a provider's rate that a worker may use by itself, while nobody can be asked: the body of `limits.Tokens`.

All workers together stay within the slice that is reserved for transactional messages, since each takes the part of
it that it has of the lane's partitions. Bulk stands still meanwhile, so the whole rate is far from used. A token dies
as soon as one of the shared rate does: what waited together for connections must not go out together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from consumers.limits import TOKEN_LIFE_S, Rate, Token
from schemas.clock import Clock

AGAIN_S = 0.05
"""A worker that has no partition is asked again after this."""
LEAST_S = 0.001


class LocalTokens:
    """rate: the whole slice. share: this worker's part of it now, from 0 to 1. It begins empty: the shared bucket may
    have been used up a moment before.
    """

    def __init__(
        self,
        rate: Rate,
        share: Callable[[], float],
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate = rate
        self._share = share
        self._clock = clock
        self._sleep = sleep
        self._level = 0.0
        self._filled_s: float | None = None

    async def take(self, wanted: int, wait_s: float, rank: int = 0) -> list[Token]:
        """What there is of them, up to `wanted`; waits for the first one, at most wait_s."""
        give_up_s = self._clock.steady_s() + wait_s
        while True:
            self._fill()
            count = min(wanted, int(self._level))
            if count:
                self._level -= count
                expires_s = self._clock.steady_s() + TOKEN_LIFE_S
                return [Token(expires_s, 1) for _ in range(count)]
            per_s = self._per_s()
            missing_s = max(LEAST_S, (1 - self._level) / per_s) if per_s else AGAIN_S
            if self._clock.steady_s() + missing_s > give_up_s:
                return []
            await self._sleep(missing_s)

    def spend(self, token: Token) -> bool:
        return self._clock.steady_s() < token.expires_s

    def give_back(self, token: Token) -> None:
        self._level += 1

    def start_anew(self) -> None:
        """Nothing is left from the last time that nobody could be asked."""
        self._level, self._filled_s = 0.0, None

    def _per_s(self) -> float:
        return self._rate.per_s * self._share()

    def _fill(self) -> None:
        """At least one fits, or a small share would never get any."""
        now_s, share = self._clock.steady_s(), self._share()
        if self._filled_s is not None:
            room = max(1.0, self._rate.burst * share)
            self._level = min(room, self._level + (now_s - self._filled_s) * self._per_s())
        self._filled_s = now_s
