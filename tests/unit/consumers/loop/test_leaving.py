"""How a stopped worker leaves its group: before its client is closed, and in time also when nobody lets it go."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from consumers.loop import kafka_side
from consumers.loop.kafka_side import KafkaSide
from consumers.loop.options import KafkaOptions
from schemas.clock import SystemClock


class Client:
    """Kafka's, of a member whose revocation waits to be served for so many polls."""

    def __init__(self, polls: int, calls: list[str]) -> None:
        self._polls = polls
        self._calls = calls

    def subscribe(self, *_: Any, **__: Any) -> None: ...

    def unsubscribe(self) -> None:
        self._calls.append("unsubscribe")

    def memberid(self) -> str | None:
        return "member-1" if self._polls else None

    def poll(self, timeout: float) -> None:
        if "unsubscribe" in self._calls:
            self._polls -= 1
            self._calls.append("poll")

    def consume(self, count: int, timeout: float) -> list[Any]:
        return []

    def close(self) -> None:
        self._calls.append("close")


class Side:
    """The event loop's, of an engine that has nothing to do."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    def ended(self, error: BaseException | None) -> None:
        assert error is None
        self.over.set()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


async def stopped(monkeypatch: pytest.MonkeyPatch, polls: int) -> list[str]:
    """What the client was asked for since it was told to stop; it has 2 s in all."""
    calls: list[str] = []
    made = iter([Client(polls, calls), Client(0, [])])  # the second only asks where partitions end
    monkeypatch.setattr(kafka_side, "Consumer", lambda _: next(made))
    side = Side()
    engine = KafkaSide({}, KafkaOptions("group", ("topic",), stop_s=2.0), SystemClock(), None, _hangs)
    engine.start(asyncio.get_running_loop(), side)  # type: ignore[arg-type]
    engine.stop()
    async with asyncio.timeout(5):
        await side.over.wait()
    return calls


def _hangs(code: int) -> None:
    pytest.fail(f"the watchdog ends it with {code}")


async def test_what_the_group_takes_away_is_given_before_the_client_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A revocation that waits when close begins may be told twice, and close then waits for ever."""
    assert await stopped(monkeypatch, polls=3) == ["unsubscribe", "poll", "poll", "poll", "close"]


async def test_a_group_that_does_not_let_go_is_left_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = await stopped(monkeypatch, polls=sys.maxsize)
    assert calls[0] == "unsubscribe" and calls[-1] == "close"
