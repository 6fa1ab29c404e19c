"""Tells dispatch how far each partition of a lane is worked off: {low watermark, done above it} in Redis.

Written by workers beside the engine; `streams/dispatch.py` reads it to keep lanes short. Redis away: the numbers
grow old, dispatch sees that by their time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from schemas import keys
from schemas.clock import Clock
from schemas.errors import StoreDown
from schemas.trips import Trip, Trips, asked

log = logging.getLogger(__name__)

EVERY_S = 0.25


class ProgressWriter:
    """progress gives {(topic, partition): (low watermark, done above it)}: the engine's."""

    def __init__(
        self, trips: Trips, progress: Callable[[], Mapping[tuple[str, int], tuple[int, int]]], clock: Clock
    ) -> None:
        self._trips = trips
        self._progress = progress
        self._clock = clock
        self._failing = False

    async def run(self) -> None:
        """Writes every 250 ms until cancelled."""
        while True:
            await self._write_and_note()
            await asyncio.sleep(EVERY_S)

    async def write(self) -> None:
        """Writes once: a field for each partition in our hands; those of other workers stay."""
        lanes: dict[str, list[str | int]] = {}
        for (topic, partition), (watermark, done_above) in self._progress().items():
            lanes.setdefault(topic, []).extend((partition, f"{watermark} {done_above} {self._clock.now_ms()}"))

        def ask(trip: Trip) -> None:
            for lane, fields in lanes.items():
                trip.execute_command("HSET", keys.redis_progress(lane), *fields)

        await asked(self._trips, ask)

    async def _write_and_note(self) -> None:
        try:
            await self.write()
            self._failing = False
        except StoreDown as error:  # sending goes on without it
            if not self._failing:
                log.warning("progress.not_written", extra={"error": str(error)})
            self._failing = True
