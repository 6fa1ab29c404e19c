"""Status rows on disk: one RocksDB database per owned partition, opened and restored by Faust's table.

Used by `streams/agents.py`. Nothing here keeps a database or an iterator across calls: its lock is released only
when nobody holds it, and another process may be waiting for the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rocksdict import WriteBatch

Databases = Callable[[], Mapping[int, Any]]
"""Partition -> open database, as Faust has them now."""
TOMBSTONE = b""
"""In `write`: the row goes."""
STRANGE_KEY = b"strange"
"""Holds no "/", so it is no row's key."""
Offsets = tuple[int, int]
"""First and last."""


class RowStore:
    """Reads and writes rows of owned partitions. KeyError for a partition that is not open here."""

    def __init__(self, databases: Databases, offset_key: bytes) -> None:
        self._databases = databases
        self._offset_key = offset_key

    def get(self, partition: int, key: bytes) -> bytes | None:
        found: bytes | None = self._databases()[partition].get(key)
        return found

    def changelog_offset(self, partition: int) -> int:
        """Of the last record of the changelog that this database contains; -1 = of none."""
        found = self._databases()[partition].get(self._offset_key)
        return -1 if found is None else int(found)

    def strange(self, partition: int) -> list[Offsets]:
        """Of the changelog contained in this database: what others wrote over rows that it has as they should be."""
        found = self._databases()[partition].get(STRANGE_KEY) or b""
        offsets = [int(number) for number in found.split()]
        return list(zip(offsets[::2], offsets[1::2], strict=True))

    def write(
        self,
        partition: int,
        rows: Mapping[bytes, bytes],
        changelog_offset: int,
        strange: Sequence[Offsets] | None = None,
    ) -> None:
        """Writes all or none of the rows, together with how far the changelog is contained in this database.

        strange: what of it is that of others; None: as it was said last.
        """
        batch = WriteBatch(raw_mode=True)
        for key, value in rows.items():
            if value == TOMBSTONE:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(self._offset_key, str(changelog_offset).encode())
        if strange is not None:
            batch.put(STRANGE_KEY, " ".join(f"{first} {last}" for first, last in strange).encode())
        self._databases()[partition].write(batch)

    def campaign_rows(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        """Every campaign row; the rows of singles, which lie after them per tenant, are jumped over."""
        rows = self._databases()[partition].iter()
        rows.seek_to_first()
        while rows.valid():
            key = rows.key()
            tenant, _, row = key.partition(b"/")
            if row.startswith(b"n."):
                rows.seek(tenant + b"/n/")
                continue
            if row.startswith(b"c."):
                yield key, rows.value()
            rows.next()

    def slice(self, partition: int, after: bytes, length: int) -> list[tuple[bytes, bytes]]:
        """Up to `length` entries after this key, in key order; keys without a "/" are no rows."""
        return list(islice(self._databases()[partition].items(from_key=after + b"\0"), length))
