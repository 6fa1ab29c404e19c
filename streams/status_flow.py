"""The order of writes of `streams status`: publish, await the acks, write the rows, and only then acknowledge.

The row goes to the table's changelog first and to the local database when the log has it, so what this process
knows is never more than what another one can restore. `streams/agents.py` feeds it, `streams/status_table.py`
decides.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from schemas import metrics
from schemas.clock import Clock
from schemas.errors import Transient
from schemas.gaps import Gap
from schemas.records import Outgoing, Publisher, Record
from schemas.topics import Topics
from streams.row_store import TOMBSTONE, Offsets, RowStore
from streams.status_table import Merged, StatusTable


@dataclass(frozen=True, slots=True)
class FlowOptions:
    """slice_bytes: how much of a batch is merged together, about 4,000 events: what happens to one delivery in a
    slice is published and written once, and the next slice is merged while one is being written. fence_s: a merge
    older than this is not written any more, as another process may own the partition; it must be below the group's
    session time-out.
    """

    slice_bytes: int = 262_144
    fence_s: float = 15.0


class StatusFlow:
    """Carries out what the table decides. store is set before the first call.

    owned: the partitions that are ours and restored. turn: held while rows are read and written again. merges: begun so
    far. ticks: partition -> the time of its last tick record, until `streams/status_sweep.py` takes it.
    """

    store: RowStore
    last_look: Callable[[], Awaitable[None]] | None = None
    """Awaited before partitions are given up: what is wrong in the changelog, only their owner can put right."""

    def __init__(
        self,
        table: StatusTable,
        publisher: Publisher,
        topics: Topics,
        clock: Clock,
        options: FlowOptions,
        gap: Gap | None = None,
    ) -> None:
        self._gap = gap
        self._table = table
        self._publisher = publisher
        self._topics = topics
        self._clock = clock
        self._options = options
        self._next: dict[int, int] = {}
        self._pending: dict[tuple[int, bytes], bytes] = {}
        self._reached: dict[int, int] = {}
        self.owned: frozenset[int] = frozenset()
        self.turn = asyncio.Lock()
        self.merges = 0
        self.ticks: dict[int, int] = {}
        self._strange: dict[int, list[Offsets]] = {}

    async def work(self, records: Sequence[Record]) -> None:
        """Returns when everything that follows from the records is in the log and on disk.

        Merging goes on while the slice before is being written. Raises whatever went wrong: the process must end.
        """
        async with self.turn:
            self.merges += 1
            await self._work(records)

    async def _work(self, records: Sequence[Record]) -> None:
        writing: asyncio.Task[None] | None = None
        try:
            for part in self._slices(records):
                merged_at = self._clock.steady_s()
                self._check_sequence(part)
                merged = await self._merged(part)
                self._pending.update(merged.written)
                if writing is not None:
                    await writing
                writing = asyncio.ensure_future(self._carry_out(merged, merged_at))
                await asyncio.sleep(0)
        finally:
            if writing is not None:
                await writing

    async def _merged(self, records: Sequence[Record]) -> Merged:
        steps = self._table.merge(records, self._load)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                merged: Merged = end.value
                return merged
            await asyncio.sleep(0)

    async def assigned(self, positions: Mapping[int, int]) -> None:
        """These partitions, and only these, are ours and restored; each is read from this offset on."""
        self._next, self._pending = dict(positions), {}
        self._reached = {partition: self.store.changelog_offset(partition) for partition in positions}
        self._strange = {partition: self.store.strange(partition) for partition in positions}
        self._table.revoke(set(self.owned) - set(positions))
        for partition, position in positions.items():
            self._table.assign(partition, position, self.store.campaign_rows(partition))
            await asyncio.sleep(0)
        self.owned = frozenset(positions)

    def revoked(self, partitions: set[int]) -> None:
        """These may belong to somebody else from now on."""
        self.owned -= partitions
        self._table.revoke(partitions)

    async def publish_progress(self) -> None:
        """Publishes the counts that changed; call every second."""
        await self._publisher.publish(self._table.progress())

    def strange(self, partition: int, end: int, since_s: float) -> list[Offsets]:
        """What lies in the changelog of an owned partition, before this end, that is not ours and not put right yet.

        It stays so over a crash: this disk has the right rows, and would not restore what it has seen. since_s: when
        the end was asked for. Raises Transient when that is so long ago that these may be the next owner's rows.
        """
        self._check_fence(since_s)
        self._reach(partition, end - 1, ours=False)
        if found := self._strange.get(partition):
            self._keep(partition, {})
        return list(found or ())

    def put_right(self, partition: int, offsets: Offsets) -> None:
        """What these wrote over is written again. Of a partition taken away meanwhile nothing is to be remembered."""
        if partition in self.owned:
            self._strange[partition].remove(offsets)
            self._keep(partition, {})

    def position(self, partition: int) -> int:
        """Offset after the last record merged of an owned partition."""
        return self._table.position(partition)

    def forget(self, partition: int, campaign: str) -> None:
        """The campaign's rows in this partition are about to go."""
        self._table.forget(partition, campaign)

    def _load(self, partition: int, key: bytes) -> bytes | None:
        pending = self._pending.get((partition, key))
        return self.store.get(partition, key) if pending is None else pending

    def _slices(self, records: Sequence[Record]) -> Iterator[list[Record]]:
        part: list[Record] = []
        size = 0
        for record in records:
            part.append(record)
            size += len(record.value or b"")
            if size >= self._options.slice_bytes:
                yield part
                part, size = [], 0
        if part:
            yield part

    def _check_sequence(self, records: Sequence[Record]) -> None:
        """No record may be skipped, from the place where reading began; an earlier one again does no harm."""
        for record in records:
            expected = self._next.get(record.partition)
            if expected is not None and record.offset > expected:
                raise Transient(f"{record.topic}/{record.partition} went from {expected} to {record.offset}")
            self._next[record.partition] = record.offset + 1

    async def _carry_out(self, merged: Merged, merged_at: float) -> None:
        self._check_fence(merged_at)
        await self._publisher.publish(merged.publish)
        self._pass("after_state")
        self._check_fence(merged_at)
        self._pass("before_changelog")
        await self.write(merged.written, merged_at)
        self._pass("after_rows")
        self._table.applied(merged)
        self.ticks.update(merged.ticks)
        for place, row in merged.written.items():
            if self._pending.get(place) is row:
                del self._pending[place]
        metrics.STATUS_BATCH_SECONDS.observe(self._clock.steady_s() - merged_at)

    async def write(self, written: Mapping[tuple[int, bytes], bytes], since_s: float | None = None) -> None:
        """Rows to the changelog, then, acked, to the local databases. TOMBSTONE deletes.

        since_s: when they were made; rows that got there too late are not written to the local databases, which
        would seem to hold what a later owner wrote before them.
        """
        since_s = self._clock.steady_s() if since_s is None else since_s
        outgoing = [
            Outgoing(self._topics.status_changelog, key, row if row != TOMBSTONE else None, partition=partition)
            for (partition, key), row in written.items()
        ]
        placed = await self._publisher.publish(outgoing)
        self._pass("after_changelog")
        self._check_fence(since_s)
        by_partition: defaultdict[int, dict[bytes, bytes]] = defaultdict(dict)
        for ((partition, key), row), place in zip(written.items(), placed, strict=True):
            by_partition[partition][key] = row
            self._reach(partition, place.offset, ours=True)
        for partition, rows in by_partition.items():
            self._keep(partition, rows)

    def _reach(self, partition: int, offset: int, *, ours: bool) -> None:
        """The changelog reaches as far as this; its last record is ours, or is not."""
        first, last = self._reached.get(partition, offset - 1) + 1, offset - ours
        if first <= last:
            self._strange.setdefault(partition, []).append((first, last))
        self._reached[partition] = max(offset, self._reached.get(partition, offset))

    def _keep(self, partition: int, rows: Mapping[bytes, bytes]) -> None:
        self.store.write(partition, rows, self._reached[partition], self._strange.get(partition, ()))

    def _pass(self, gap: str) -> None:
        if self._gap is not None:
            self._gap(gap)

    def _check_fence(self, merged_at: float) -> None:
        if (late_s := self._clock.steady_s() - merged_at) > self._options.fence_s:
            raise Transient(f"stood still for {late_s:.1f} s; the partition may have another owner by now")
