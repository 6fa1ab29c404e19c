"""Screens that follow inboxes over one line: none waits for news that cannot come."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from schemas import keys
from schemas.errors import StoreDown
from streams.inbox_live import LiveInboxes

pytestmark = pytest.mark.timeout(5)
"""Who is not told at once waits for half a minute, or for ever."""


class ScriptedLine:
    """Says at once that it hears a channel, unless told otherwise; `cut` breaks it."""

    def __init__(self, *, confirms: bool = True, close_waits: asyncio.Event | None = None) -> None:
        self.asked = asyncio.Event()
        self.answer: asyncio.Event | None = None
        self.broken = False
        self.closed = asyncio.Event()
        self._confirms, self._close_waits = confirms, close_waits
        self._coming: deque[tuple[bytes, bytes | None]] = deque()
        self._something = asyncio.Event()

    async def hear(self, channel: bytes) -> None:
        self.asked.set()
        if self.answer is not None:
            await self.answer.wait()
        self._check()
        if self._confirms:
            self.bring(channel, None)

    async def ignore(self, channel: bytes) -> None:
        self._check()

    async def next(self, wait_s: float) -> tuple[bytes, bytes | None] | None:
        await self._something.wait()
        self._check()
        if len(self._coming) == 1:
            self._something.clear()
        return self._coming.popleft()

    async def close(self) -> None:
        self.closed.set()
        if self._close_waits is not None:
            await self._close_waits.wait()

    def bring(self, channel: bytes, news: bytes | None) -> None:
        self._coming.append((channel, news))
        self._something.set()

    def cut(self) -> None:
        self.broken = True
        self._something.set()

    def _check(self) -> None:
        if self.broken or self.closed.is_set():
            raise StoreDown("the line is cut")


class Lines:
    """The lines that are opened, one after the other."""

    def __init__(self, *lines: ScriptedLine) -> None:
        self._left = list(lines)

    def __call__(self) -> ScriptedLine:
        return self._left.pop(0)


async def first_news(inboxes: LiveInboxes, user: str) -> int:
    """The unread count of the first news. Raises StoreDown when the stream is told to reconnect."""
    async with inboxes.following("red", user) as news:
        return (await anext(news)).unread


def channel(user: str) -> bytes:
    return keys.redis_inbox_live("red", user).encode()


async def waiting(inboxes: LiveInboxes, line: ScriptedLine, user: str) -> asyncio.Task[int]:
    """A stream that has asked the line and was not answered yet."""
    stream = asyncio.create_task(first_news(inboxes, user))
    await line.asked.wait()
    await asyncio.sleep(0)
    return stream


async def test_a_stream_not_confirmed_yet_is_told_to_reconnect_as_soon_as_the_line_is_cut() -> None:
    line = ScriptedLine(confirms=False)
    inboxes = LiveInboxes(Lines(line))
    stream = await waiting(inboxes, line, "u1")
    line.cut()
    with pytest.raises(StoreDown):
        await stream
    await inboxes.close()


async def test_a_second_screen_of_an_inbox_is_told_to_reconnect_when_the_first_one_asks_in_vain() -> None:
    line = ScriptedLine()
    line.answer = asyncio.Event()
    inboxes = LiveInboxes(Lines(line))
    first = await waiting(inboxes, line, "u1")
    second = await waiting(inboxes, line, "u1")
    line.cut()
    line.answer.set()
    assert [type(told) for told in await asyncio.gather(first, second, return_exceptions=True)] == [StoreDown] * 2
    await inboxes.close()


async def test_a_stream_that_opens_while_the_lost_line_is_being_closed_hears_its_news() -> None:
    closed = asyncio.Event()
    lost, fresh = ScriptedLine(confirms=False, close_waits=closed), ScriptedLine()
    inboxes = LiveInboxes(Lines(lost, fresh))
    old = await waiting(inboxes, lost, "u1")
    lost.cut()
    await lost.closed.wait()
    stream = await waiting(inboxes, fresh, "u2")
    fresh.bring(channel("u2"), b"7 3")
    assert await stream == 3
    closed.set()
    with pytest.raises(StoreDown):
        await old
    await inboxes.close()


async def test_a_line_that_breaks_as_one_screen_leaves_is_closed_and_the_others_reconnect() -> None:
    line, fresh = ScriptedLine(), ScriptedLine()
    inboxes = LiveInboxes(Lines(line, fresh))
    async with inboxes.following("red", "u1") as news:
        async with inboxes.following("red", "u2"):
            line.broken = True
        with pytest.raises(StoreDown):
            await anext(news)
    assert line.closed.is_set()
    async with inboxes.following("red", "u1"):
        assert fresh.asked.is_set()
    await inboxes.close()
    assert fresh.closed.is_set()
