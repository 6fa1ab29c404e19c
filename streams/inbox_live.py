"""News of inboxes as they happen: one subscription per process, however many screens look on.

News are hints. Whoever falls behind or loses Redis is told so and reconnects, and then sees the true state.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from schemas import keys
from schemas.errors import StoreDown
from schemas.stores import InboxNews
from streams.inbox_format import unpack

BEHIND_MAX = 100
"""News that may wait for one screen."""
POLL_S = 30.0

Screen = asyncio.Queue[bytes | None]


class Line(Protocol):
    """A line over which channels are heard, opened by its first use; once closed it stays closed.

    Raises StoreDown when it was cut or closed: close it and open another.
    """

    async def hear(self, channel: bytes) -> None: ...

    async def ignore(self, channel: bytes) -> None: ...

    async def next(self, wait_s: float) -> tuple[bytes, bytes | None] | None:
        """(channel, news); (channel, None) from when on it is heard; None when nothing came within wait_s."""
        ...

    async def close(self) -> None:
        """Never raises."""
        ...


OpenLine = Callable[[], Line]


class LiveInboxes:
    """Fans the news of each inbox out to the screens that follow it."""

    def __init__(self, open_line: OpenLine) -> None:
        self._open_line = open_line
        self._line: Line | None = None
        self._readers: dict[Line, asyncio.Task[None]] = {}
        self._screens: dict[bytes, set[Screen]] = {}
        self._confirmed: dict[bytes, asyncio.Event] = {}

    @asynccontextmanager
    async def following(self, tenant: str, user_id: str) -> AsyncIterator[AsyncIterator[InboxNews]]:
        """News from the moment the block is entered. The iterator raises StoreDown when some may be missing."""
        channel = keys.redis_inbox_live(tenant, user_id).encode()
        screen: Screen = asyncio.Queue(BEHIND_MAX)
        await self._join(channel, screen)
        try:
            yield _news(tenant, user_id, screen)
        finally:
            await self._leave(channel, screen)

    async def close(self) -> None:
        if self._line is not None:
            await self._give_up(self._line)
        await asyncio.gather(*self._readers.values(), return_exceptions=True)

    async def _join(self, channel: bytes, screen: Screen) -> None:
        self._screens.setdefault(channel, set()).add(screen)
        confirmed = self._confirmed.get(channel)
        try:
            if confirmed is None:
                confirmed = self._confirmed[channel] = asyncio.Event()
                await self._hear(channel)
            async with asyncio.timeout(POLL_S):
                await confirmed.wait()
        except TimeoutError:
            await self._leave(channel, screen)
            raise StoreDown("Redis does not say that it passes the news of an inbox on") from None
        except BaseException:
            await self._leave(channel, screen)
            raise

    async def _hear(self, channel: bytes) -> None:
        line = self._line or self._open()
        try:
            await line.hear(channel)
        except BaseException:
            # Others may wait for the same channel, and nobody else will ask for it.
            await self._give_up(line)
            raise

    async def _leave(self, channel: bytes, screen: Screen) -> None:
        screens = self._screens.get(channel, set())
        screens.discard(screen)
        if screens or channel not in self._screens:
            return
        del self._screens[channel]
        self._confirmed.pop(channel, None)
        if (line := self._line) is not None:
            try:
                await line.ignore(channel)
            except StoreDown:
                await self._give_up(line)

    def _open(self) -> Line:
        line = self._line = self._open_line()
        reader = self._readers[line] = asyncio.create_task(self._read(line))
        reader.add_done_callback(lambda _: self._readers.pop(line))
        return line

    async def _read(self, line: Line) -> None:
        """Runs until the line is cut. Without a reader, also by an error of ours, the line is of no use to anybody."""
        try:
            with suppress(StoreDown):
                while True:
                    heard = await line.next(POLL_S)
                    if heard is not None:
                        self._pass_on(*heard)
        finally:
            await self._give_up(line)

    async def _give_up(self, line: Line) -> None:
        """Dismisses everybody who relied on this line and closes it; who comes meanwhile opens another."""
        if self._line is not line:
            return
        self._line = None
        self._dismiss_all()
        reader = self._readers[line]
        if reader is not asyncio.current_task():
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        await line.close()

    def _pass_on(self, channel: bytes, data: bytes | None) -> None:
        if data is None:
            if channel in self._confirmed:
                self._confirmed[channel].set()
            return
        for screen in self._screens.get(channel, ()):
            if screen.full():
                _dismiss(screen)
            else:
                screen.put_nowait(data)

    def _dismiss_all(self) -> None:
        """Also of those who still wait for the word that they are heard."""
        for confirmed in self._confirmed.values():
            confirmed.set()
        for screens in self._screens.values():
            for screen in screens:
                _dismiss(screen)
        self._screens.clear()
        self._confirmed.clear()


async def _news(tenant: str, user_id: str, screen: Screen) -> AsyncIterator[InboxNews]:
    while (raw := await screen.get()) is not None:
        yield _read_news(tenant, user_id, raw)
    raise StoreDown("news of the inbox may be missing; reconnect")


def _read_news(tenant: str, user_id: str, raw: bytes) -> InboxNews:
    seq, unread, *rest = raw.split(b" ", 4)
    if not rest:
        return InboxNews(int(seq), int(unread))
    return InboxNews(int(seq), int(unread), unpack(tenant, user_id, *rest))


def _dismiss(screen: Screen) -> None:
    """Ends a screen's news at once, dropping what it has not seen."""
    while not screen.empty():
        screen.get_nowait()
    screen.put_nowait(None)
