"""A reader that stands at the right place and stays silent does not hold up whoever asks."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError

from streams import asking, log_reader

TOPIC = "campaign.audience"
HANGS_S = 20.0


class SilentAtItsEnd:
    """A consumer that has what lay in the log when it was put there, and never hears of what comes later."""

    end = 1

    def __init__(self, settings: dict[str, Any]) -> None:
        self.assigned = 0
        self._ready: list[int] = []

    def assign(self, places: list[Any]) -> None:
        self.assigned += 1
        self._ready = list(range(places[0].offset, self.end))

    def offsets_for_times(self, places: list[Any], timeout: float) -> list[Any]:
        return [
            SimpleNamespace(
                topic=place.topic,
                partition=place.partition,
                error=None,
                offset=0 if place.offset == OFFSET_BEGINNING else self.end,
            )
            for place in places
        ]

    def poll(self, timeout: float) -> Any:
        return message(self._ready.pop(0)) if self._ready else None

    def consume(self, most: int, timeout: float) -> list[Any]:
        taken, self._ready = self._ready[:most], self._ready[most:]
        return [message(offset) for offset in taken]

    def close(self) -> None:
        pass


def message(offset: int, error: Any = None) -> Any:
    found = {
        "topic": TOPIC, "partition": 0, "offset": offset, "key": b"k", "value": b"v", "headers": None, "error": error,
    }  # fmt: skip
    return SimpleNamespace(timestamp=lambda: (1, 0), **{name: lambda told=told: told for name, told in found.items()})


def _replace_clients(monkeypatch: pytest.MonkeyPatch, client: type[SilentAtItsEnd]) -> None:
    """Those that read and the one that asks."""
    for module in (asking, log_reader):
        monkeypatch.setattr(module, "Consumer", client)


async def test_records_that_came_later_are_read_although_the_consumer_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _replace_clients(monkeypatch, SilentAtItsEnd)
    reader = log_reader.KafkaLogReader({}, log_reader.LogReaderOptions(readers=1))
    (cursor,) = reader._all
    consumer: Any = cursor._consumer
    read = [record.offset async for record in reader.read_range(TOPIC, 0, 0, 0)]
    monkeypatch.setattr(SilentAtItsEnd, "end", 3)
    read += [record.offset async for record in reader.read_range(TOPIC, 0, 1, 2)]
    assert (read, consumer.assigned) == ([0, 1, 2], 2)
    await reader.close()


async def test_what_was_fetched_already_is_read_on_from_where_the_reader_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _replace_clients(monkeypatch, SilentAtItsEnd)
    reader = log_reader.KafkaLogReader({}, log_reader.LogReaderOptions(readers=1, piece_records=1))
    (cursor,) = reader._all
    consumer: Any = cursor._consumer
    monkeypatch.setattr(SilentAtItsEnd, "end", 3)
    read = [record.offset async for record in reader.read_range(TOPIC, 0, 0, 2)]
    assert (read, consumer.assigned) == ([0, 1, 2], 1)
    await reader.close()


class FetchingAhead(SilentAtItsEnd):
    """Has fetched, before it is asked, whatever lies in the log, and that it ends there; as a broker's client does."""

    def assign(self, places: list[Any]) -> None:
        self.assigned += 1
        self._fetched = places[0].offset
        self._waiting: list[Any] = []
        self.fetch()

    def fetch(self) -> None:
        if self._fetched < self.end:
            self._waiting += [message(offset) for offset in range(self._fetched, self.end)]
            self._waiting.append(message(self.end, SimpleNamespace(code=lambda: KafkaError._PARTITION_EOF)))
            self._fetched = self.end

    def poll(self, timeout: float) -> Any:
        return self._waiting.pop(0) if self._waiting else None

    def consume(self, most: int, timeout: float) -> list[Any]:
        taken, self._waiting = self._waiting[:most], self._waiting[most:]
        return taken


@pytest.mark.parametrize(
    ("ends", "ranges"),
    [
        ((40, 41), ((0, 31), (32, 40))),
        ((5, 7, 8), ((4, 4), (5, 5), (6, 7))),
        ((3, 12), ((0, 9), (10, 11))),
    ],
    ids=["a window of a campaign", "small campaigns side by side", "a range that ended before its last"],
)
async def test_nothing_that_lies_in_the_log_is_read_over_when_more_is_written_between_two_ranges(
    monkeypatch: pytest.MonkeyPatch, ends: tuple[int, ...], ranges: tuple[tuple[int, int], ...]
) -> None:
    """A page that is read over is one whose recipients get nothing."""
    _replace_clients(monkeypatch, FetchingAhead)
    reader = log_reader.KafkaLogReader({}, log_reader.LogReaderOptions(readers=1))
    (cursor,) = reader._all
    consumer: Any = cursor._consumer
    read, lies = [], []
    for at, (first, last) in enumerate(ranges):
        monkeypatch.setattr(FetchingAhead, "end", ends[min(at, len(ends) - 1)])
        if at:
            consumer.fetch()
        read.append([record.offset async for record in reader.read_range(TOPIC, 0, first, last)])
        lies.append([offset for offset in range(first, last + 1) if offset < FetchingAhead.end])
    assert read == lies
    await reader.close()


async def test_a_range_read_window_by_window_goes_on_from_what_was_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    _replace_clients(monkeypatch, FetchingAhead)
    reader = log_reader.KafkaLogReader({}, log_reader.LogReaderOptions(readers=1))
    (cursor,) = reader._all
    consumer: Any = cursor._consumer
    monkeypatch.setattr(FetchingAhead, "end", 96)
    for first in (0, 32, 64):
        read = [record.offset async for record in reader.read_range(TOPIC, 0, first, first + 31)]
        assert read == list(range(first, first + 32))
    assert consumer.assigned == 1
    await reader.close()


class Hanging(SilentAtItsEnd):
    """Asks a broker that does not answer, until it is let go."""

    let_go = threading.Event()

    def offsets_for_times(self, places: list[Any], timeout: float) -> list[Any]:
        assert self.let_go.wait(HANGS_S)
        return super().offsets_for_times(places, timeout)


async def test_whoever_waits_no_longer_is_not_held_up_by_a_broker_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A readiness check has two seconds, a question to a dead broker ten."""
    _replace_clients(monkeypatch, Hanging)
    reader = log_reader.KafkaLogReader({}, log_reader.LogReaderOptions(readers=1))
    loop = asyncio.get_running_loop()
    asked_s = loop.time()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.offsets(TOPIC, 0)
    assert loop.time() - asked_s < HANGS_S / 2
    Hanging.let_go.set()
    assert await reader.offsets(TOPIC, 0) == (0, 1), "the reader is whole again"
    await reader.close()
