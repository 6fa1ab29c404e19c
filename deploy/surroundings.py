"""Whether Redis and the log serve this process now: looked at every other second, for readiness and metrics.

An engine knows by itself whether its brokers answer; `LogInSight` is for the processes that run without one.
"""

from __future__ import annotations

import asyncio
import logging

from schemas import metrics
from schemas.errors import StoreDown, Transient
from schemas.records import LogReader
from schemas.trips import Epoch, Trip, Trips, trusted

log = logging.getLogger(__name__)

LOOK_S = 2.0
ANSWER_S = 2.0
REDIS_TRUSTED = "Redis to answer, and to be rebuilt from the log"
LOG_ANSWERS = "the log to answer"


class RedisInSight:
    """trusted: whether what needs Redis can go on. True until the first look says otherwise."""

    def __init__(self, trips: Trips, epoch: Epoch) -> None:
        self._trips = trips
        self._epoch = epoch
        self.trusted = True

    async def run(self) -> None:
        """Looks for ever, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        error = ""
        try:
            await trusted(self._trips, self._epoch, _nothing)
        except StoreDown as down:
            error = str(down)
        if self.trusted == bool(error):
            log.warning("redis.lost" if error else "redis.is_back", extra={"error": error})
        self.trusted = not error
        metrics.REDIS_DOWN.set(not self.trusted)


class LogInSight:
    """answers: whether the log does. topic: any that is there."""

    def __init__(self, reader: LogReader, topic: str) -> None:
        self._reader = reader
        self._topic = topic
        self.answers = True

    async def run(self) -> None:
        """Looks for ever, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        error = ""
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._reader.offsets(self._topic, 0)
        except (Transient, TimeoutError) as away:
            error = str(away) or f"no answer within {ANSWER_S:g} s"
        if self.answers == bool(error):
            log.warning("log.lost" if error else "log.is_back", extra={"error": error})
        self.answers = not error
        metrics.LOG_DOWN.set(not self.answers)


def _nothing(trip: Trip) -> None:
    """The trip asks for the epoch alone."""
