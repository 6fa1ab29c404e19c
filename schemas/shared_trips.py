"""One round trip for all who ask at the same moment: thousands of in-app messages or API requests a second."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from schemas.errors import StoreDown
from schemas.trips import Ask, Epoch, Trips

TRIP_MAX = 250


class SharedTrips:
    """Whoever comes while a trip is under way goes with the next one. Each asker adds exactly one command."""

    def __init__(self, trips: Trips, epoch: Epoch) -> None:
        self._trips = trips
        self._epoch = epoch
        self._waiting: list[tuple[Ask, asyncio.Future[tuple[Any, bool]]]] = []
        self._driver: asyncio.Task[None] | None = None

    async def go(self, ask: Ask) -> tuple[Any, bool]:
        """(reply, whether Redis can be trusted), once the command was carried out.

        Raises StoreDown when it was refused, or may not have been carried out.
        """
        arrived: asyncio.Future[tuple[Any, bool]] = asyncio.get_running_loop().create_future()
        self._waiting.append((ask, arrived))
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        return await arrived

    async def _drive(self) -> None:
        while self._waiting:
            now, self._waiting = self._waiting[:TRIP_MAX], self._waiting[TRIP_MAX:]
            trusted = False
            replies: list[Any]
            try:
                trusted, replies = await self._trip([ask for ask, _ in now])
            except Exception as error:  # a bug too must reach whoever waits, or they would wait for ever
                replies = [error] * len(now)
            for (_, arrived), reply in zip(now, replies, strict=True):
                if arrived.done():  # its asker was cancelled
                    continue
                if isinstance(reply, Exception):
                    arrived.set_exception(reply)
                else:
                    arrived.set_result((reply, trusted))

    async def _trip(self, asks: Sequence[Ask]) -> tuple[bool, list[Any]]:
        trip = self._trips.begin()
        for ask in asks:
            ask(trip)
        self._epoch.ask(trip)
        *replies, epoch = await trip.execute()
        refused = "Redis refuses a command: {}"
        return self._epoch.holds(epoch), [
            StoreDown(refused.format(reply)) if isinstance(reply, Exception) else reply for reply in replies
        ]
