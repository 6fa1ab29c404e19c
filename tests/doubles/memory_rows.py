"""The status process's own disk, in memory: same port, same answers (`tests/contract/test_rows.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from streams.row_store import TOMBSTONE, Offsets, RowStore


class MemoryRows(RowStore):
    """Partition -> rows. What was written stays when the process dies; `lose` takes a disk away."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[bytes, bytes]] = {}
        self._reached: dict[int, int] = {}
        self._strange: dict[int, list[Offsets]] = {}

    def open(self, partition: int) -> None:
        self._rows.setdefault(partition, {})

    def lose(self) -> None:
        self._rows.clear()
        self._reached.clear()
        self._strange.clear()

    def get(self, partition: int, key: bytes) -> bytes | None:
        return self._rows[partition].get(key)

    def changelog_offset(self, partition: int) -> int:
        return self._reached.get(partition, -1)

    def strange(self, partition: int) -> list[Offsets]:
        return list(self._strange.get(partition, ()))

    def write(
        self,
        partition: int,
        rows: Mapping[bytes, bytes],
        changelog_offset: int,
        strange: Sequence[Offsets] | None = None,
    ) -> None:
        found = self._rows[partition]
        for key, value in rows.items():
            if value == TOMBSTONE:
                found.pop(key, None)
            else:
                found[key] = value
        self._reached[partition] = changelog_offset
        if strange is not None:
            self._strange[partition] = list(strange)

    def campaign_rows(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        found = self._rows[partition]
        for key in sorted(found):
            if key.partition(b"/")[2].startswith(b"c."):
                yield key, found[key]

    def slice(self, partition: int, after: bytes, length: int) -> list[tuple[bytes, bytes]]:
        found = self._rows[partition]
        return [(key, found[key]) for key in islice((key for key in sorted(found) if key > after), length)]
