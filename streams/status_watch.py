"""Wakes, and at last ends, a status process that owns records it does not process: alive for its group, dead for
everybody else. Seen now and then right after a restore: Faust has the partition, and no fetch brings anything.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from schemas.clock import Clock
from schemas.errors import Transient
from schemas.records import LogReader
from schemas.topics import Topics
from streams.status_flow import StatusFlow

log = logging.getLogger(__name__)

STALLED_AFTER_S = 60.0
READ_AGAIN_AFTER_S = 5.0
BEHIND = 500
"""Records left of a partition from which on the others may have to wait for it: all go through one queue. On a machine
that gave the process a hundredth of a core, partitions that only waited their turn were taken for dead, again and
again, until nothing went forward any more."""
ReadAgain = Callable[[int, int], Awaitable[None]]
"""Has this partition read again from this offset on."""


class Watch:
    """Compares what the log holds with what was merged."""

    def __init__(
        self, flow: StatusFlow, reader: LogReader, topics: Topics, clock: Clock, read_again: ReadAgain
    ) -> None:
        self._flow = flow
        self._reader = reader
        self._topics = topics
        self._clock = clock
        self._read_again = read_again
        self._seen: dict[int, tuple[int, float]] = {}
        self._merges = -1

    async def check(self) -> None:
        """Call every few seconds. Raises Transient when a partition has work and stood still for a minute.

        While the broker does not answer nothing can be known, and the minute starts again. So it does while the
        process is busy with other partitions.
        """
        try:
            places = {partition: await self._place(partition) for partition in self._flow.owned}
        except Transient as error:
            log.warning("status_watch.cannot_see_the_log", extra={"error": str(error)[:200]})
            self._seen.clear()
            return
        is_busy = self._is_busy(places)
        for partition, (done, end) in places.items():
            now = self._clock.steady_s()
            known, since = self._seen.get(partition, (-1, now))
            if done != known or done >= end or is_busy:
                since = now
            elif now - since > STALLED_AFTER_S:
                raise Transient(f"{self._topics.status}/{partition} stands at {done} of {end} for {now - since:.0f} s")
            elif now - since > READ_AGAIN_AFTER_S:
                log.warning("status_watch.reading_again", extra={"partition": partition, "stands_at": done, "end": end})
                await self._read_again(partition, done)
            self._seen[partition] = done, since

    async def _place(self, partition: int) -> tuple[int, int]:
        """(merged up to, end of the log)"""
        _, end = await self._reader.offsets(self._topics.status, partition)
        return self._flow.position(partition), end

    def _is_busy(self, places: Mapping[int, tuple[int, int]]) -> bool:
        """Since the last look one merge has been going on, or a partition has moved of which much is left."""
        is_same_merge = self._flow.turn.locked() and self._flow.merges == self._merges
        self._merges = self._flow.merges
        moved = (place for partition, place in places.items() if place[0] != self._seen.get(partition, place)[0])
        return is_same_merge or any(end - done > BEHIND for done, end in moved)
