"""The status process's disk: the double in memory beside RocksDB."""

from __future__ import annotations

from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from streams.row_store import TOMBSTONE, RowStore
from tests.doubles.memory_rows import MemoryRows

C1, C2, N1, OTHER = b"default/c.spring.0", b"default/c.spring.1", b"default/n.0a1b2c3d.0.7", b"zoo/c.one.0"


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RowStore:
    if request.param == "memory":
        memory = MemoryRows()
        memory.open(0)
        return memory
    database = Rdict(str(tmp_path / "rows"), options=Options(raw_mode=True))
    return RowStore(lambda: {0: database}, b"the offset")


def test_a_row_is_read_as_it_was_written_last(store: RowStore) -> None:
    store.write(0, {C1: b"one"}, 3)
    store.write(0, {C1: b"two"}, 4)
    assert (store.get(0, C1), store.get(0, C2)) == (b"two", None)


def test_how_far_the_changelog_is_contained_is_kept_with_the_rows(store: RowStore) -> None:
    assert store.changelog_offset(0) == -1
    store.write(0, {C1: b"one"}, 41)
    assert store.changelog_offset(0) == 41


def test_what_others_wrote_to_the_changelog_is_kept_until_it_is_said_anew(store: RowStore) -> None:
    assert store.strange(0) == []
    store.write(0, {C1: b"one"}, 9, [(3, 5), (8, 8)])
    store.write(0, {C1: b"two"}, 10)
    assert (store.strange(0), store.changelog_offset(0)) == ([(3, 5), (8, 8)], 10)
    store.write(0, {}, 10, [])
    assert store.strange(0) == []


def test_a_row_that_goes_is_gone(store: RowStore) -> None:
    store.write(0, {C1: b"one", C2: b"two"}, 1)
    store.write(0, {C1: TOMBSTONE}, 2)
    assert store.get(0, C1) is None
    assert list(store.campaign_rows(0)) == [(C2, b"two")]


def test_campaign_rows_come_in_order_without_those_of_singles(store: RowStore) -> None:
    store.write(0, {OTHER: b"d", N1: b"c", C2: b"b", C1: b"a"}, 1)
    assert list(store.campaign_rows(0)) == [(C1, b"a"), (C2, b"b"), (OTHER, b"d")]


def test_a_partition_that_is_not_open_is_an_error(store: RowStore) -> None:
    with pytest.raises(KeyError):
        store.get(1, C1)


def test_rows_are_looked_through_slice_by_slice(store: RowStore) -> None:
    store.write(0, {C1: b"a", C2: b"b", N1: b"c"}, 1)
    first = [entry for entry in store.slice(0, b"default/", 2) if b"/" in entry[0]]
    rest = [entry for entry in store.slice(0, first[-1][0], 9) if b"/" in entry[0]]
    assert first + rest == [(C1, b"a"), (C2, b"b"), (N1, b"c")]
