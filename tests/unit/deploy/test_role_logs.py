"""However much a role has written: the end of it is shown at little cost, and it never fills the disk."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from deploy import role_logs
from deploy.local import places

MEBI = 1 << 20


def test_the_end_of_a_huge_log_is_shown_without_reading_the_rest(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    with log.open("wb") as written:
        written.truncate(32 * MEBI)
        written.seek(0, 2)
        written.write("\nfirst é\nlast\n".encode())
    tracemalloc.start()
    try:
        assert places.tail(log, 2) == "first é\nlast"
        assert tracemalloc.get_traced_memory()[1] < MEBI
    finally:
        tracemalloc.stop()


def test_the_end_of_a_log_whose_last_line_is_huge_or_cut_amid_a_letter_is_shown_all_the_same(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    log.write_text("é" * MEBI + "!\n")
    assert places.tail(log, 1).endswith("éé!") and len(places.tail(log, 1)) > 1_000
    log.write_text("".join(f"line {n}\n" for n in range(200_000)))
    assert places.tail(log, 1_000).splitlines() == [f"line {n}" for n in range(199_000, 200_000)]


def test_a_log_that_is_too_long_begins_anew_while_its_role_writes_on_and_the_one_before_is_kept(tmp_path: Path) -> None:
    log, before = tmp_path / "work-push.bulk.log", tmp_path / "work-push.bulk.log.1"
    with log.open("ab", buffering=0) as role:
        for word in (b"one\n", b"two\n"):
            role.write(word)
            role_logs.shorten(log, most_bytes=4)
        assert (log.read_bytes(), before.read_bytes()) == (b"", b"one\ntwo\n")
        role.write(b"three\n")
        assert (log.read_bytes(), before.read_bytes()) == (b"three\n", b"one\ntwo\n")
        role_logs.shorten(log, most_bytes=4)
        assert (log.read_bytes(), before.read_bytes()) == (b"", b"three\n")


def test_a_log_begins_anew_also_where_the_one_before_cannot_be_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "api.log"
    log.write_text("too long")
    (tmp_path / "api.log.1").mkdir()
    role_logs.shorten(log, most_bytes=4)
    assert log.read_text() == ""
    assert [record.getMessage() for record in caplog.records] == ["up.log_not_kept"]
    role_logs.shorten(tmp_path / "never-started.log", most_bytes=4)
