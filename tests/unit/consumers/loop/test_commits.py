"""What is committed when: above all nothing for which a record that is in hand alone would be blamed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumers.loop.commits import Commits
from consumers.loop.tracker import Tracker
from schemas.records import Record


class Broker:
    """Takes every commit. metadata: partition -> (offset, metadata) committed last."""

    def __init__(self) -> None:
        self.metadata: dict[int, tuple[int, str]] = {}
        self._stored: list[Any] = []

    def store_offsets(self, offsets: list[Any]) -> None:
        self._stored = offsets

    def commit(self, offsets: list[Any] | None = None, *, asynchronous: bool) -> None:
        assert asynchronous == (offsets is None)
        for place in self._stored if offsets is None else offsets:
            self.metadata[place.partition] = (place.offset, place.metadata)


class Killed(BaseException):
    """The process ends here."""


def tracker(partition: int, done: int, starts: int = 1) -> Tracker:
    """A partition with ten records, of which the first so many are done."""
    found = Tracker("push.retry.1m", partition, 0, starts)
    found.receive([Record(found.topic, partition, offset, b"k", b"v", (), 0) for offset in range(10)])
    for _ in range(done):
        found.finish(found.take().offset)
    return found


def commits(gap: Any = None) -> Commits:
    return Commits("forward", gap, lambda call, *arguments: call(*arguments), lambda: None)


async def named(found: Commits, one: Tracker, offset: int | None, broker: Broker, *all_: Tracker) -> None:
    marked = asyncio.get_running_loop().create_future()
    found.marks.put((one, offset, marked))
    found.serve_marks(broker, all_)
    assert marked.done()


async def test_who_dies_of_committing_other_work_leaves_no_name_of_a_record_behind() -> None:
    broker, suspicious, other = Broker(), tracker(0, 0, starts=3), tracker(1, 4)

    def killed(gap: str) -> None:
        raise Killed(gap)

    with pytest.raises(Killed):
        await named(commits(killed), suspicious, 0, broker, suspicious, other)
    assert broker.metadata == {}


async def test_while_a_record_is_named_nothing_commits_its_partition_and_its_end_does() -> None:
    broker, suspicious, other = Broker(), tracker(0, 0, starts=3), tracker(1, 4)
    found = commits()
    await named(found, suspicious, 0, broker, suspicious, other)
    assert broker.metadata == {0: (0, "starts=3 alone=0"), 1: (4, "starts=1")}
    suspicious.finish(suspicious.take().offset)
    found.progress(broker, [suspicious, other])
    assert broker.metadata[0] == (0, "starts=3 alone=0")
    await named(found, suspicious, None, broker, suspicious, other)
    assert broker.metadata[0] == (1, "starts=3")
