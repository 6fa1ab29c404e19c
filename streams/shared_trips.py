"""One round trip for all who write at the same moment: a campaign puts thousands of in-app messages a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from schemas.errors import StoreDown
from schemas.stores import Pipeline
from streams import redis_door

if TYPE_CHECKING:
    from redis.asyncio import Redis

TRIP_MAX = 250
Ask = Callable[[Pipeline], None]


class SharedTrips:
    """Whoever comes while a trip is under way goes with the next one. Each asker adds exactly one command."""

    def __init__(self, redis: Redis, store: str) -> None:
        self._redis = redis
        self._store = store
        self._waiting: list[tuple[Ask, asyncio.Future[None]]] = []
        self._driver: asyncio.Task[None] | None = None

    async def go(self, ask: Ask) -> None:
        """Returns once the command was carried out. Raises StoreDown when it may not have been."""
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((ask, arrived))
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        await arrived

    async def _drive(self) -> None:
        while self._waiting:
            now, self._waiting = self._waiting[:TRIP_MAX], self._waiting[TRIP_MAX:]
            failures: Sequence[Exception | None]
            try:
                failures = await self._trip([ask for ask, _ in now])
            except Exception as error:  # a bug too must reach whoever waits, or they would wait for ever
                failures = [error] * len(now)
            for (_, arrived), failure in zip(now, failures, strict=True):
                if arrived.done():  # its asker was cancelled
                    continue
                if failure is None:
                    arrived.set_result(None)
                else:
                    arrived.set_exception(failure)

    async def _trip(self, asks: list[Ask]) -> list[StoreDown | None]:
        with redis_door.answering(self._store):
            async with self._redis.pipeline(transaction=False) as pipeline:
                for ask in asks:
                    ask(pipeline)
                replies = await pipeline.execute(raise_on_error=False)
        return [
            StoreDown(f"Redis refused a command of the {self._store} store: {reply}")
            if isinstance(reply, Exception)
            else None
            for reply in replies
        ]
