"""The status road without Faust: batches into a log in memory, rows in a RocksDB of the test's own folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict

from schemas import codec, keys, slots
from schemas.messages import CampaignProgress, DeliveryState, StatusBatch, StatusEvent
from schemas.records import Outgoing, Record
from schemas.rows import Row
from schemas.stores import SlotView
from schemas.topics import Topics
from streams.row_store import TOMBSTONE, RowStore
from streams.share_tally import ShareTally
from streams.status_flow import FlowOptions, StatusFlow
from streams.status_table import StatusTable
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_log import MemoryLog

TENANT = "default"
PAGE = "c.spring.0"
TOPICS = Topics()
IDS = keys.Ids(b"a secret of the tests")


def batch(*events: StatusEvent, row: str = PAGE) -> StatusBatch:
    return StatusBatch(TENANT, row, events)


def park(record: Record, reason: str, text: str) -> Outgoing:
    headers = (*record.headers, ("tid-error-class", reason.encode()))
    return Outgoing(TOPICS.internal_dlq, record.key, record.value, headers)


class StatusRoad:
    """One status process at a time over one log and one disk; `restart` kills it and starts the next."""

    def __init__(self, folder: Path, partition_count: int = 1, **options: Any) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog(partition_count, self.clock.now_ms)
        self._databases = {
            number: Rdict(str(folder / str(number)), options=Options(raw_mode=True))
            for number in range(partition_count)
        }
        self._options = FlowOptions(**options)
        self.store = RowStore(lambda: self._databases, b"the offset")
        self._new_process()

    def _new_process(self) -> None:
        self.tally = ShareTally({"gateway"})
        self.table = StatusTable(TOPICS, IDS, park, self.tally)
        self.flow = StatusFlow(self.table, self.log, TOPICS, self.clock, self._options)
        self.flow.store = self.store

    async def restart(self, positions: dict[int, int] | None = None) -> None:
        """A new process takes over, reading on from these offsets (none: from the start)."""
        self._new_process()
        for number in self._databases:
            self._restore(number)
        await self.flow.assigned(positions or dict.fromkeys(self._databases, 0))

    def _restore(self, partition: int) -> None:
        """What the disk does not hold yet of the changelog, as Faust does it."""
        start, end = self.store.changelog_offset(partition) + 1, self.log.ends(TOPICS.status_changelog, partition)[1]
        records = self.log.kept(TOPICS.status_changelog, partition, start, end)
        rows = {record.key or b"": record.value or TOMBSTONE for record in records}
        self.store.write(partition, rows, end - 1)

    async def write(self, *batches: StatusBatch) -> None:
        """Puts batches on `delivery.status`, as senders do."""
        await self.log.publish(
            [Outgoing(TOPICS.status, keys.row_key(b.tenant, b.row).encode(), codec.encode(b)) for b in batches]
        )

    def records(self) -> list[Record]:
        return self.log.records(TOPICS.status)

    async def read(self, records: Sequence[Record] | None = None) -> None:
        """Merges these records, else all that were written."""
        await self.flow.work(self.records() if records is None else records)

    def row(self, row: str = PAGE, partition: int = 0) -> Row | None:
        raw = self.store.get(partition, keys.row_key(TENANT, row).encode())
        return Row(keys.is_campaign_row(row), raw) if raw is not None else None

    def seen(self, slot: int = 0, row: str = PAGE) -> SlotView:
        found = self.row(row)
        assert found is not None
        return slots.view(found.slot(slot), found.shared.template, found.shared.accepted_at_ms)

    def public(self) -> list[DeliveryState]:
        return [codec.decode(record.value, DeliveryState) for record in self.log.records(TOPICS.state)]

    def newest_public(self) -> dict[str, DeliveryState]:
        """What a reader that keeps the highest version of each key knows."""
        newest: dict[str, DeliveryState] = {}
        for state in self.public():
            if state.delivery_id not in newest or newest[state.delivery_id].version <= state.version:
                newest[state.delivery_id] = state
        return newest

    async def counts(self) -> dict[str, CampaignProgress]:
        """What a reader that keeps the highest version of each key knows, after the next second."""
        await self.flow.publish_progress()
        newest: dict[str, CampaignProgress] = {}
        for record in self.log.records(TOPICS.progress):
            assert record.key is not None
            message = codec.decode(record.value, CampaignProgress)
            key = record.key.decode()
            if key not in newest or newest[key].version <= message.version:
                newest[key] = message
        return newest
