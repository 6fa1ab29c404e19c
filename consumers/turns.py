"""A lock for those who wait by age: it goes to whoever has the lowest rank."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count


class Turn:
    """Held by one at a time; of those who wait the lowest rank gets it next, of equal ones the first."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = count()

    @property
    def is_taken(self) -> bool:
        return self._is_taken

    async def take(self, rank: int) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (rank, next(self._count), mine))
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # it was ours already
                self.pass_on()
            raise

    def pass_on(self) -> None:
        while self._waiting:
            _, _, other = heappop(self._waiting)
            if not other.done():  # its waiter was cancelled
                other.set_result(None)
                return
        self._is_taken = False
