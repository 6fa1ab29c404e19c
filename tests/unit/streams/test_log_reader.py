"""A reader that stands at the right place and stays silent does not hold up whoever asks."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING

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


def message(offset: int) -> Any:
    found = {
        "topic": TOPIC, "partition": 0, "offset": offset, "key": b"k", "value": b"v", "headers": None, "error": None,
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
