"""The daily tick: one record in every status partition, on which `streams/status_sweep.py` deletes old rows.

Written by dispatch's leader. When it last did is kept in its memory alone: a new leader writes at once, and a tick
too many costs one look through the rows.
"""

from __future__ import annotations

from schemas import codec
from schemas.clock import Clock
from schemas.records import Outgoing, Publisher
from schemas.topics import Topics
from streams import status_table

DAY_MS = 86_400_000
KEY = status_table.TICK_ROW.encode()


class Ticks:
    """Writes them when they are due. partitions: how many `delivery.status` has."""

    def __init__(self, publisher: Publisher, topics: Topics, partitions: int, clock: Clock) -> None:
        self._publisher = publisher
        self._topic = topics.status
        self._partitions = partitions
        self._clock = clock
        self._written_ms: int | None = None

    async def write_due(self) -> None:
        """Writes them when a day has passed since the last time. Raises Transient: then they are still due."""
        now_ms = self._clock.now_ms()
        if self._written_ms is not None and abs(now_ms - self._written_ms) < DAY_MS:
            return
        value = codec.encode(status_table.tick(now_ms))
        ticks = [Outgoing(self._topic, KEY, value, partition=number) for number in range(self._partitions)]
        await self._publisher.publish(ticks)
        self._written_ms = now_ms
