"""Records that were answered "not now": kept until they are due, earliest first, within a bound of memory.

With a LogReader, what exceeds the bound is kept as (due, place) only and read again from the log shortly
before it is due: late at worst, never early. Records kept whole can be recalled by the handler before their time.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from consumers.loop.tracker import Tracker
from schemas.records import LogReader, Recall, Record

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
    """The waiting records of one engine; used on its event loop. on_recall: told that there is something to take."""

    def __init__(
        self,
        options: DeferredOptions,
        reader: LogReader | None = None,
        on_recall: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._reader = reader
        self._on_recall = on_recall
        self._any_recalled = False
        self._whole: list[_Whole] = []
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

    def add(self, tracker: Tracker, record: Record, due_ms: int, recall: Recall | None = None) -> None:
        tracker.deferred += 1
        if self._reader is not None and self._over():
            heapq.heappush(self._places, (due_ms, next(self._order), tracker, record.offset))
            _end(recall)
        else:
            self._keep(tracker, record, due_ms, recall)

    def take_due(self, now_ms: int) -> list[Ready]:
        """Everything that was recalled, then everything that is due, earliest first."""
        taken = self._take_recalled() if self._any_recalled else []
        while self._whole and self._whole[0][0] <= now_ms:
            taken.append(heapq.heappop(self._whole))
        for _, _, tracker, record, recall in taken:
            self._bytes -= _size(record)
            tracker.deferred -= 1
            _end(recall)
        return [(tracker, record) for _, _, tracker, record, _ in taken]

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
        for entry in self._whole:
            if id(entry[2]) in gone:
                _end(entry[4])
        self._whole = [entry for entry in self._whole if id(entry[2]) not in gone]
        self._places = [entry for entry in self._places if id(entry[2]) not in gone]
        heapq.heapify(self._whole)
        heapq.heapify(self._places)
        self._bytes = sum(_size(entry[3]) for entry in self._whole)

    def _over(self) -> bool:
        return len(self._whole) >= self._options.records or self._bytes >= self._options.bytes

    def _keep(self, tracker: Tracker, record: Record, due_ms: int, recall: Recall | None = None) -> None:
        heapq.heappush(self._whole, (due_ms, next(self._order), tracker, record, recall))
        self._bytes += _size(record)
        if recall is not None:
            recall.bind(self._recalled)

    def _recalled(self) -> None:
        self._any_recalled = True
        self._on_recall()

    def _take_recalled(self) -> list[_Whole]:
        """In the order in which they were put off. One look at all that waits, for all that are recalled together."""
        self._any_recalled = False
        taken = [entry for entry in self._whole if entry[4] is not None and entry[4].is_wanted]
        self._whole = [entry for entry in self._whole if entry[4] is None or not entry[4].is_wanted]
        heapq.heapify(self._whole)
        return sorted(taken, key=_order)

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


_Whole = tuple[int, int, Tracker, Record, Recall | None]
"""Due, order of arrival, partition, record, how it is had back sooner."""
_Place = tuple[int, int, Tracker, int]
"""Due, order of arrival, partition, offset."""


def _first_run(places: list[_Place]) -> list[_Place]:
    """The places at the front that one read covers."""
    for index, (before, after) in enumerate(itertools.pairwise(places), start=1):
        if after[2] is not before[2] or after[3] - before[3] > JOIN_GAP:
            return places[:index]
    return list(places)


def _order(entry: _Whole) -> int:
    return entry[1]


def _end(recall: Recall | None) -> None:
    if recall is not None:
        recall.is_over = True


def _size(record: Record) -> int:
    return len(record.value or b"") + RECORD_OVERHEAD_BYTES
