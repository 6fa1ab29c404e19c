"""Status rows on disk: one RocksDB database per owned partition, opened and restored by Faust's table.

Used by `streams/agents.py`. Nothing here keeps a database or an iterator across calls: its lock is released only
when nobody holds it, and another process may be waiting for the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rocksdict import BlockBasedOptions, Cache, Options, WriteBatch, WriteBufferManager

Databases = Callable[[], Mapping[int, Any]]
"""Partition -> open database, as Faust has them now."""
TOMBSTONE = b""
"""In `write`: the row goes."""
STRANGE_KEY = b"strange"
"""Holds no "/", so it is no row's key."""
Offsets = tuple[int, int]
"""First and last."""
MEMORY_BYTES = 48 << 20
WRITTEN_BYTES = 24 << 20
"""Of it for rows not yet in a file. A database writes its own into one when it holds WRITE_BUFFER_BYTES of them, or
when it holds the most of all and this is full."""
WRITE_BUFFER_BYTES = 8 << 20
WRITE_BUFFERS = 2
BLOOM_BITS = 10
"""Of each row in a file, by which 1 in 100 files is read in vain."""


class RowMemory:
    """What the databases of one process hold in memory, all together: as much for twelve partitions as for one.

    Faust gives each a block cache and write buffers of its own, by default more than 2 GiB.
    """

    def __init__(self) -> None:
        self._cache = Cache(MEMORY_BYTES)
        self._buffers = WriteBufferManager.new_write_buffer_manager_with_cache(WRITTEN_BYTES, False, self._cache)

    def options(self) -> Options:
        """For the next database to be opened."""
        table = BlockBasedOptions()
        table.set_block_cache(self._cache)
        table.set_cache_index_and_filter_blocks(True)
        table.set_bloom_filter(BLOOM_BITS, block_based=False)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        options.set_max_write_buffer_number(WRITE_BUFFERS)
        options.set_write_buffer_manager(self._buffers)
        options.set_block_based_table_factory(table)
        return options

    def held(self) -> int:
        """Bytes, those of rows not yet in a file among them."""
        held: int = self._cache.get_usage()
        return held


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
