"""What the log of status events says of one notification: read from the moment it was accepted, within bounds.

Nobody indexes that log by notification, so it is read through. What lies too far back in a busy log is not found in
time; the status row still knows how it stands, only the way there is then not listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from producers.explaining.facts import Told
from schemas import codec, keys, messages, partitions
from schemas.clock import Clock
from schemas.errors import Poison
from schemas.keys import Address
from schemas.messages import StatusEvent
from schemas.records import LogReader, Record

CLOCKS_DIFFER_MS = 10_000
"""By so much the clock of who wrote an event may lag behind that of who accepted the request."""


class LogTimes(Protocol):
    """Where in the log a moment lies."""

    async def offset_at(self, topic: str, partition: int, at_ms: int) -> int:
        """The first offset whose record was written at this moment or later; the end when none was.

        Raises Transient on a broker failure.
        """
        ...


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """records, seconds: how much is read through, and how long, for one explanation."""

    records: int = 100_000
    seconds: float = 3.0


class History:
    """Reads `delivery.status`. counts: partitions of each topic."""

    def __init__(
        self,
        log: LogReader,
        times: LogTimes,
        topic: str,
        counts: Mapping[str, int],
        clock: Clock,
        options: HistoryOptions = HistoryOptions(),
    ) -> None:
        self._log = log
        self._times = times
        self._topic = topic
        self._counts = counts
        self._clock = clock
        self._options = options

    async def of(self, tenant: str, address: Address, since_ms: int) -> Told:
        """The events of this notification since then. Raises Transient."""
        key = keys.row_key(tenant, address.row).encode()
        partition = partitions.murmur2_partition(key, self._counts[self._topic])
        first = await self._times.offset_at(self._topic, partition, since_ms - CLOCKS_DIFFER_MS)
        low, end = await self._log.offsets(self._topic, partition)
        give_up_s = self._clock.steady_s() + self._options.seconds
        events: list[StatusEvent] = []
        at_ms = 0
        last = min(end, first + self._options.records) - 1
        try:
            async for record in self._log.read_range(self._topic, partition, first, last):
                if record.key == key:
                    events += _events(record, address.slot)
                at_ms = record.timestamp_ms
                if self._clock.steady_s() > give_up_s:
                    return Told(tuple(events), False, at_ms)
        except Poison:  # the beginning was deleted while it was read
            return Told(tuple(events), False)
        is_from_start = first > low or low == 0
        return Told(tuple(events), is_from_start and last >= end - 1, at_ms if last < end - 1 else 0)


def _events(record: Record, slot: int) -> list[StatusEvent]:
    try:
        batch = codec.decode(record.value, messages.StatusBatch)
    except Poison:
        return []
    return [event for event in batch.events if event.slot == slot]
