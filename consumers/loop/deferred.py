"""Records that were answered "not now": kept until they are due, earliest first, within a bound of memory.

With a LogReader, what exceeds the bound is kept as (due, place) only and read again from the log shortly
before it is due: late at worst, never early.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from consumers.loop.tracker import Tracker
from schemas.records import LogReader, Record

REREAD_AHEAD_MS = 5_000
REREAD_RECORDS = 1_000
JOIN_GAP = 200
"""Reading so many records for nothing costs less than another seek."""
RECORD_OVERHEAD_BYTES = 400
"""Of one kept record in memory beside its value."""


@dataclass(frozen=True, slots=True)
class DeferredOptions:
    """Up to `records` and `bytes` are kept whole; with a reader, `places` more are kept as (due, place)."""

    records: int = 5_000
    bytes: int = 64_000_000
    places: int = 400_000


Ready = tuple[Tracker, Record]


class Deferred:
    """The waiting records of one engine; used on its event loop."""

    def __init__(self, options: DeferredOptions, reader: LogReader | None = None) -> None:
        self._options = options
        self._reader = reader
        self._whole: list[tuple[int, int, Tracker, Record]] = []
        self._places: list[_Place] = []
        self._bytes = 0
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._whole) + len(self._places)

    @property
    def full(self) -> bool:
        """Whether no new record should be handed out, since it might have to be kept here."""
        if self._reader is None:
            return self._over()
        return len(self._places) >= self._options.places

    def add(self, tracker: Tracker, record: Record, due_ms: int) -> None:
        tracker.deferred += 1
        if self._reader is not None and self._over():
            heapq.heappush(self._places, (due_ms, next(self._order), tracker, record.offset))
        else:
            self._keep(tracker, record, due_ms)

    def take_due(self, now_ms: int) -> list[Ready]:
        """Everything that is due, earliest first."""
        ready = []
        while self._whole and self._whole[0][0] <= now_ms:
            _, _, tracker, record = heapq.heappop(self._whole)
            self._bytes -= _size(record)
            tracker.deferred -= 1
            ready.append((tracker, record))
        return ready

    def next_due_ms(self) -> int | None:
        """When to look again; None when nothing waits."""
        due = [self._whole[0][0]] if self._whole else []
        if self._places:
            due.append(self._places[0][0] - REREAD_AHEAD_MS)
        return min(due, default=None)

    def needs_reading(self, now_ms: int) -> bool:
        return bool(self._places) and self._places[0][0] <= now_ms + REREAD_AHEAD_MS

    async def read_again(self, now_ms: int) -> list[tuple[Tracker, int]]:
        """Reads what will be due soon; gives the places whose records the log no longer holds.

        Raises Transient when the log cannot be read now; nothing is forgotten then.
        """
        wanted = self._take_places(now_ms)
        lost: list[tuple[Tracker, int]] = []
        try:
            while wanted:
                run = _first_run(wanted)
                found = await self._read_run(run)
                del wanted[: len(run)]
                lost += self._settle_run(run, found)
        finally:
            for place in wanted:
                heapq.heappush(self._places, place)
        return lost

    def forget(self, trackers: Iterable[Tracker]) -> None:
        """Drops everything of these partitions: they belong to somebody else now."""
        gone = set(map(id, trackers))
        self._whole = [entry for entry in self._whole if id(entry[2]) not in gone]
        self._places = [entry for entry in self._places if id(entry[2]) not in gone]
        heapq.heapify(self._whole)
        heapq.heapify(self._places)
        self._bytes = sum(_size(entry[3]) for entry in self._whole)

    def _over(self) -> bool:
        return len(self._whole) >= self._options.records or self._bytes >= self._options.bytes

    def _keep(self, tracker: Tracker, record: Record, due_ms: int) -> None:
        heapq.heappush(self._whole, (due_ms, next(self._order), tracker, record))
        self._bytes += _size(record)

    def _take_places(self, now_ms: int) -> list[_Place]:
        """What is due soon, by partition and offset."""
        taken: list[_Place] = []
        while len(taken) < REREAD_RECORDS and self.needs_reading(now_ms):
            place = heapq.heappop(self._places)
            if place[2].alive:
                taken.append(place)
        return sorted(taken, key=lambda place: (place[2].topic, place[2].partition, place[3]))

    async def _read_run(self, run: list[_Place]) -> dict[int, Record]:
        assert self._reader is not None
        tracker, first, last = run[0][2], run[0][3], run[-1][3]
        wanted = {place[3] for place in run}
        start, _ = await self._reader.offsets(tracker.topic, tracker.partition)
        records = self._reader.read_range(tracker.topic, tracker.partition, max(first, start), last)
        return {record.offset: record async for record in records if record.offset in wanted}

    def _settle_run(self, run: list[_Place], found: dict[int, Record]) -> list[tuple[Tracker, int]]:
        lost = []
        for due_ms, _, tracker, offset in run:
            if not tracker.alive:
                continue
            if offset in found:
                self._keep(tracker, found[offset], due_ms)
            else:
                tracker.deferred -= 1
                lost.append((tracker, offset))
        return lost


_Place = tuple[int, int, Tracker, int]
"""Due, order of arrival, partition, offset."""


def _first_run(places: list[_Place]) -> list[_Place]:
    """The places at the front that one read covers."""
    for index, (before, after) in enumerate(itertools.pairwise(places), start=1):
        if after[2] is not before[2] or after[3] - before[3] > JOIN_GAP:
            return places[:index]
    return list(places)


def _size(record: Record) -> int:
    return len(record.value or b"") + RECORD_OVERHEAD_BYTES
