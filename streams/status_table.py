"""Status rows: merges batches of events, says what to publish and which rows to write, and keeps the counts.

Knows nothing of Faust or RocksDB. `streams/agents.py` hands it the records of `delivery.status` and carries out
what it answers, in this order: publish and await the acks, write the rows, `applied`, acknowledge. A crash in
between repeats the merge, which then changes nothing.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

from schemas import codec, keys, metrics, rows, slots
from schemas.counts import Vector
from schemas.errors import Poison
from schemas.messages import EventKind, StatusBatch, StatusEvent
from schemas.reasons import ParkReason
from schemas.records import Outgoing, Record
from schemas.rows import Row
from schemas.slots import Slot
from schemas.topics import Topics
from streams.share_tally import ShareTally
from streams.state_records import StateRecords

Load = Callable[[int, bytes], bytes | None]
"""(partition, row key) -> the row's bytes as last written; None when there is no such row."""
Park = Callable[[Record, str, str], Outgoing]
"""(record, error class, text) -> the dead letter that keeps it byte for byte."""
TICK_ROW = "tick"
"""Row of a tick record: its one event's at_ms is the time by which old rows of the partition are to be deleted."""
TICK_AHEAD_MS = 86_400_000
"""A tick's time may be so far ahead of its record's."""
POSITION_BITS = 8
PLANNED_ONLY = "accepted"
STEP_EVENTS = 1_000
"""Merged in one go, about 20 ms, so that heartbeats and reads stay quick."""
KEPT_ROWS = 160
"""Rows kept open, about 40 MB when all are full pages: a campaign goes through a few dozen at a time."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What a batch of records comes to.

    written: (partition, row key) -> the row's bytes. moved: (partition, campaign, a row's counts before, after).
    heard: (partition, campaign) of every row that something was told of, though it changed nothing.
    ends: partition -> offset after its last record. ticks: partition -> the time in a tick record.
    """

    publish: tuple[Outgoing, ...]
    written: dict[tuple[int, bytes], bytes]
    moved: tuple[tuple[int, str, Vector, Vector], ...]
    heard: frozenset[tuple[int, str]]
    ends: dict[int, int]
    ticks: dict[int, int]


@dataclass(slots=True)
class _Partition:
    """What is kept in memory of one owned partition. end: offset after the last record merged."""

    end: int
    vectors: dict[str, Vector] = field(default_factory=dict)
    unpublished: set[str] = field(default_factory=set)


class StatusTable:
    """The rules of one status process; one instance, used from its event loop only."""

    def __init__(self, topics: Topics, ids: keys.Ids, park: Park, tally: ShareTally | None = None) -> None:
        self._tally = tally
        self._topics = topics
        self._ids = ids
        self._park = park
        self._owned: dict[int, _Partition] = {}
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    def merge(self, records: Sequence[Record], load: Load) -> Generator[None, None, Merged]:
        """Merges the records, in order. Raises nothing for what a record holds: that is parked.

        Stops after every STEP_EVENTS, so that others can have their turn; `load` must know no newer rows afterwards.
        """
        batch, publish, done = _Batch(load, self._open), list[Outgoing](), 0
        for record in records:
            publish += (self._park(record, error.reason, error.text) for error in batch.take(record))
            if batch.events - done >= STEP_EVENTS:
                done = batch.events
                yield
        done = 0
        for work in batch.works.values():
            publish += _public(work, batch.shown)
            batch.store(work)
            self._keep(work)
            done += len(work.touched)
            if done >= STEP_EVENTS:
                done = 0
                yield
        return batch.finish(tuple(publish))

    def applied(self, merged: Merged) -> None:
        """The rows are written: from now on the counts say so too.

        What changed no row is told as well: who merged it before may have died before telling. Counts bear the place up
        to which was merged, and readers leave out those of an earlier place than they have.
        """
        for partition, campaign, before, after in merged.moved:
            if (owned := self._owned.get(partition)) is not None:
                vector = owned.vectors.setdefault(campaign, Vector())
                vector.add(before, -1)
                vector.add(after)
        for partition, campaign in merged.heard:
            if (owned := self._owned.get(partition)) is not None and campaign in owned.vectors:
                owned.unpublished.add(campaign)
        for partition, end in merged.ends.items():
            if partition in self._owned:
                self._owned[partition].end = max(self._owned[partition].end, end)
        metrics.STATUS_ROWS.inc(len(merged.written))

    def assign(self, partition: int, committed: int, campaign_rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Takes over a partition: counts its campaign rows once. committed: the offset merging goes on from."""
        owned = _Partition(committed)
        for key, raw in campaign_rows:
            owned.vectors.setdefault(campaign_of(key), Vector()).add(rows.counts(raw))
        owned.unpublished.update(owned.vectors)
        self._owned[partition] = owned

    def revoke(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._owned.pop(partition, None)

    def progress(self) -> list[Outgoing]:
        """The vectors of campaigns heard of since they were last taken, as records; call at most every second."""
        taken = []
        for number, owned in self._owned.items():
            taken += [self._progress(number, owned, campaign) for campaign in sorted(owned.unpublished)]
            owned.unpublished.clear()
        return taken

    def position(self, partition: int) -> int:
        """Offset after the last record merged; 0 for a partition that is not ours."""
        owned = self._owned.get(partition)
        return owned.end if owned is not None else 0

    def forget(self, partition: int, campaign: str) -> None:
        """The campaign's rows were deleted by age: what was last published stays."""
        if (owned := self._owned.get(partition)) is not None:
            owned.vectors.pop(campaign, None)
            owned.unpublished.discard(campaign)

    def _progress(self, number: int, owned: _Partition, campaign: str) -> Outgoing:
        tenant, campaign_id = (unquote(part) for part in campaign.split("/"))
        message = owned.vectors[campaign].progress(tenant, campaign_id, number, owned.end)
        key = keys.progress_key(tenant, campaign_id, number)
        return Outgoing(self._topics.progress, key.encode(), codec.encode(message))

    def _open(self, batch: StatusBatch, partition: int, key: bytes, raw: bytes | None) -> _Work:
        """The row as it was left, when it still is what is stored; while it is worked on it is not kept."""
        kept = self._kept.pop(key, None)
        campaign = keys.is_campaign_row(batch.row)
        campaign_id = unquote(keys.campaign_of_row(batch.row)[0]) if campaign else None
        if kept is None:
            records = StateRecords(self._topics.state, self._ids, batch.tenant, batch.row, campaign_id)
            return _Work(batch, partition, key, raw, Row(campaign, raw), records, self._tally)
        row = kept.row if kept.raw == raw else Row(campaign, raw)
        return _Work(batch, partition, key, raw, row, kept.records, self._tally)

    def _keep(self, work: _Work) -> None:
        self._kept[work.key] = _Kept(work.raw, work.row, work.records)
        if len(self._kept) > KEPT_ROWS:
            self._kept.popitem(last=False)


def tick(at_ms: int) -> StatusBatch:
    """What dispatch writes to every status partition once a day: rows untouched for 30 days may go."""
    return StatusBatch("", TICK_ROW, (StatusEvent(0, EventKind.EXPIRED, at_ms),))


def campaign_of(key: bytes) -> str:
    """tenant/campaign, both still encoded, of a campaign row's key."""
    tenant, row = key.decode().split("/")
    return f"{tenant}/{row.split('.')[1]}"


def is_campaign(key: bytes) -> bool:
    """Whether this key of the table is that of a campaign's row."""
    return key.partition(b"/")[2].startswith(b"c.")


class _Kept(NamedTuple):
    """A row as it was left. raw: its bytes as they then were; another process may have written others since."""

    raw: bytes | None
    row: Row
    records: StateRecords


@dataclass(slots=True)
class _Touched:
    """A slot being worked on. version, at_ms: of the last event that changed it; texts: what campaign rows drop."""

    before: Slot
    after: Slot
    version: int = 0
    at_ms: int = 0
    texts: dict[str, StatusEvent] | None = None


class _Work:
    """A row being worked on. tally: told of what a merge made known of calls."""

    __slots__ = (
        "counted",
        "key",
        "learned",
        "partition",
        "raw",
        "records",
        "row",
        "row_name",
        "tally",
        "tenant",
        "touched",
        "touched_ms",
    )

    def __init__(
        self,
        batch: StatusBatch,
        partition: int,
        key: bytes,
        raw: bytes | None,
        row: Row,
        records: StateRecords,
        tally: ShareTally | None,
    ) -> None:
        self.tally = tally
        self.tenant = batch.tenant
        self.row_name = batch.row
        self.partition = partition
        self.key = key
        self.raw = raw
        self.row = row
        self.records = records
        self.counted = row.counts.copy()
        self.touched: dict[int, _Touched] = {}
        self.learned = False
        self.touched_ms = 0

    def add(self, event: StatusEvent, version: int) -> None:
        """Merges one event. Raises Poison when no row can hold it."""
        touched = self.touched.get(event.slot)
        if touched is None:
            rows.check_slot(event.slot, self.row.campaign)
            slot = self.row.slot(event.slot)
            touched = self.touched[event.slot] = _Touched(slot, slot)
        before = touched.after
        after = slots.merge(before, event, not self.row.campaign)
        if after is before:
            return
        touched.after, touched.version, touched.at_ms = after, version, event.at_ms
        if event.template and self.row.learn(event):
            self.learned = True
        if not (event.provider or event.detail):
            return
        name = slots.name_of(after, event)
        if event.kind is EventKind.SENT:
            _count_repeats(name, before, after)
        if self.tally is not None:
            self.tally.note(event, name, before, after)
        if self.row.campaign:
            if touched.texts is None:
                touched.texts = {}
            touched.texts[name] = event

    def store(self) -> bool:
        """Puts what changed back into the row; whether anything did."""
        changed = self.learned
        for index, touched in self.touched.items():
            before, after = touched.before, touched.after
            if after is before:
                continue
            changed |= self.row.put(index, before, after)
            if strangers := slots.outside(after):
                metrics.STATUS_LATE.inc(max(strangers - slots.outside(before), 0))
        if changed:
            self.row.touched_ms = max(self.row.touched_ms, self.touched_ms)
        return changed


def _count_repeats(name: str, before: Slot, after: Slot) -> None:
    """Of an acceptance: the calls that only it shows to have been made twice. Nobody knew it who made them."""
    known, parts = before.deliveries.get(name), after.deliveries.get(name)
    if known is not None and parts is not None and parts.doubled != known.doubled:
        new = (parts.doubled & ~known.doubled).bit_count()
        metrics.POSSIBLE_DUPLICATES.labels(name.partition("/")[0], "claim_lost").inc(new)


OpenRow = Callable[[StatusBatch, int, bytes, bytes | None], _Work]
"""(batch, partition, key, the row's bytes) -> the row, to be worked on."""


class _Batch:
    """The records of one merge, grouped by row."""

    def __init__(self, load: Load, open_row: OpenRow) -> None:
        self._load = load
        self._open_row = open_row
        self.works: dict[tuple[int, bytes], _Work] = {}
        self.events = 0
        self._written: dict[tuple[int, bytes], bytes] = {}
        self._moved: list[tuple[int, str, Vector, Vector]] = []
        self._heard: set[tuple[int, str]] = set()
        self._ends: dict[int, int] = {}
        self._ticks: dict[int, int] = {}
        self._kinds: Counter[EventKind] = Counter()
        self.shown: Counter[str] = Counter()

    def take(self, record: Record) -> list[Poison]:
        """Merges one record; what makes it a poison one. Its other events are merged all the same."""
        self._ends[record.partition] = record.offset + 1
        try:
            batch = codec.decode(record.value, StatusBatch)
            if batch.row == TICK_ROW:
                self._ticks[record.partition] = _time_of_tick(record, batch)
                return []
            work = self._work(record, batch)
        except Poison as error:
            return [error]
        work.touched_ms = record.timestamp_ms
        self.events += len(batch.events)
        self._kinds.update(event.kind for event in batch.events)
        return _add_all(work, batch.events, record.offset << POSITION_BITS)[:1]

    def store(self, work: _Work) -> None:
        """Packs a row, if anything changed it."""
        campaign = campaign_of(work.key) if work.row.campaign else ""
        if campaign:
            self._heard.add((work.partition, campaign))
        if work.store():
            work.raw = self._written[work.partition, work.key] = work.row.pack()
            if campaign:
                self._moved.append((work.partition, campaign, work.counted, work.row.counts.copy()))

    def finish(self, publish: tuple[Outgoing, ...]) -> Merged:
        for kind, number in self._kinds.items():
            metrics.STATUS_EVENTS.labels(kind.value).inc(number)
        for state, number in self.shown.items():
            metrics.STATUS_TRANSITIONS.labels(state).inc(number)
        return Merged(publish, self._written, tuple(self._moved), frozenset(self._heard), self._ends, self._ticks)

    def _work(self, record: Record, batch: StatusBatch) -> _Work:
        key = record.key or b""
        place = record.partition, key
        work = self.works.get(place)
        if work is None:
            _check_key(key, batch)
            work = self.works[place] = self._open_row(batch, record.partition, key, self._load(*place))
        elif (batch.tenant, batch.row) != (work.tenant, work.row_name):
            raise Poison(ParkReason.BAD_REQUEST, "a status batch lies under the key of another row")
        return work


def _add_all(work: _Work, events: Sequence[StatusEvent], version: int) -> list[Poison]:
    bad = []
    for position, event in enumerate(events):
        try:
            work.add(event, version + position)
        except Poison as error:
            bad.append(error)
    return bad


def _time_of_tick(record: Record, batch: StatusBatch) -> int:
    """Raises Poison for none, or one so far ahead that rows would be deleted that are still young."""
    at_ms = max((event.at_ms for event in batch.events), default=-1)
    if not 0 <= at_ms <= record.timestamp_ms + TICK_AHEAD_MS:
        raise Poison(ParkReason.BAD_REQUEST, f"a tick at {at_ms}, written at {record.timestamp_ms}")
    return at_ms


def _check_key(key: bytes, batch: StatusBatch) -> None:
    if not keys.is_row(batch.row):
        raise Poison(ParkReason.BAD_REQUEST, f"no status row is called {batch.row[:100]!r}")
    if key != keys.row_key(batch.tenant, batch.row).encode():
        raise Poison(ParkReason.BAD_REQUEST, "a status batch lies under the key of another row")


def _public(work: _Work, states: Counter[str]) -> Iterator[Outgoing]:
    """The public records of what a row's merge changed."""
    campaign, shared, record = work.row.campaign, work.row.shared, work.records.record
    for index, touched in work.touched.items():
        plan, texts = touched.after.plan, touched.texts
        for name, shown in slots.changes(touched.before, touched.after):
            # A recipient is public once something happened to it: `campaign.state` tells how many wait.
            if campaign and name and shown.state == PLANNED_ONLY:
                continue
            assert plan is not None
            states[shown.state] += 1
            told = texts.get(name) if texts else None
            yield record(
                index,
                plan,
                shared.template,
                shared.accepted_at_ms,
                name,
                shown,
                told,
                touched.at_ms,
                touched.version,
            )
