"""Two owners of a partition for a moment: what the one that was deposed wrote over rows is written over again.

A process looks at its fence itself. One that stands still right behind it, or whose record still waits in its client,
writes when its partition has another owner already, and its older rows would win when the table is restored. So an
owner knows how far it has seen the changelog, and whatever lies there that it did not write it writes again. What it
has seen and not written again yet is kept on its disk with the rows.
"""

from __future__ import annotations

import logging

from schemas.clock import Clock
from schemas.errors import Transient
from schemas.records import LogReader
from schemas.topics import Topics
from streams.row_store import TOMBSTONE
from streams.status_flow import StatusFlow

log = logging.getLogger(__name__)


class Fence:
    """Ends a process that stood still for so long that its partitions may have other owners. Once is for good."""

    def __init__(self, clock: Clock, within_s: float) -> None:
        self._clock = clock
        self._within_s = within_s
        self._passed_s: float | None = None
        self._longest_s = 0.0

    def pass_through(self) -> None:
        """Call before each thing that is done again and again, some of them every second. Raises Transient."""
        now_s = self._clock.steady_s()
        still_s = now_s - (now_s if self._passed_s is None else self._passed_s)
        self._passed_s = now_s
        self._longest_s = max(self._longest_s, still_s)
        if self._longest_s > self._within_s:
            raise Transient(f"stood still for {self._longest_s:.1f} s; its partitions may have other owners by now")


class Rivals:
    """Looks for records of others in the changelog of our partitions."""

    def __init__(self, flow: StatusFlow, reader: LogReader, topics: Topics, clock: Clock) -> None:
        self._flow = flow
        self._reader = reader
        self._topic = topics.status_changelog
        self._clock = clock

    async def check(self) -> None:
        """Call every second. While the broker does not answer nothing can be known."""
        try:
            for partition in self._flow.owned:
                await self._check(partition)
        except Transient as error:
            log.warning("status_rivals.cannot_see_the_log", extra={"error": str(error)[:200]})

    async def _check(self, partition: int) -> None:
        flow, since_s = self._flow, self._clock.steady_s()
        start, end = await self._reader.offsets(self._topic, partition)
        async with flow.turn:  # what was on its way is known by now
            if partition not in flow.owned:
                return
            for first, last in flow.strange(partition, end, since_s):
                await self._write_again(partition, await self._keys(partition, max(start, first), last), since_s)
                flow.put_right(partition, (first, last))

    async def _keys(self, partition: int, first: int, last: int) -> set[bytes]:
        if first > last:
            return set()
        found = self._reader.read_range(self._topic, partition, first, last)
        return {record.key async for record in found if record.key is not None}

    async def _write_again(self, partition: int, keys: set[bytes], since_s: float) -> None:
        if not keys:
            return
        ours = {(partition, key): self._flow.store.get(partition, key) for key in keys}
        await self._flow.write({place: TOMBSTONE if row is None else row for place, row in ours.items()}, since_s)
        log.warning("status_rivals.written_over", extra={"partition": partition, "rows": len(keys)})
