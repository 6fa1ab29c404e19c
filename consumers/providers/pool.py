"""A bounded pool of reusable connections to one peer, and one of them as the way for a call; below the HTTP and SMTP
clients.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from consumers.providers.contract import Call
from schemas.outcomes import Outcome


class NotSent(Exception):
    """Nothing can have been acted upon: no connection, no TLS, or no free connection in time."""


class NoAnswer(Exception):
    """The message may have been acted upon, but no complete answer came."""


class Connection(Protocol):
    """One connection, one exchange at a time."""

    gone: asyncio.Event
    idle_since: float

    @property
    def usable(self) -> bool:
        """Whether another exchange may begin."""
        ...

    def abandon(self, why: str) -> None:
        """Gives the connection up at once; an exchange under way ends as NoAnswer."""
        ...


C = TypeVar("C", bound=Connection)


class Pool(Generic[C]):
    """At most `limit` connections made by `connect`; the most recently used one is taken first.

    idle_s: a connection unused for longer is not used again, as peers and proxies drop them silently.
    Whoever owns a connection must `release` it; a connection that dies must be reported by `lost`.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[C]], limit: int, connect_timeout_s: float, idle_s: float
    ) -> None:
        self._connect = connect
        self._limit = limit
        self._connect_timeout_s = connect_timeout_s
        self._idle_s = idle_s
        self._idle: list[C] = []
        self._open: set[C] = set()
        self._opening = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    @property
    def open_connections(self) -> int:
        """Connections that are established now, idle or busy."""
        return len(self._open)

    async def acquire(self, give_up_at: float) -> C:
        """A connection of the caller's own, by loop time `give_up_at`; raises NotSent."""
        loop = asyncio.get_running_loop()
        while not self._closed:
            connection = self._usable_idle(loop.time())
            if connection is not None:
                return connection
            if len(self._open) + self._opening < self._limit:
                return await self._opened(min(give_up_at, loop.time() + self._connect_timeout_s))
            await self._wait_for_a_place(give_up_at)
        raise NotSent("the client is closed")

    def release(self, connection: C) -> None:
        """Back into the pool, or away with it when it cannot be used again."""
        if connection.usable and not self._closed:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.abandon("not reusable")
        self._wake_one()

    def lost(self, connection: C) -> None:
        """The connection is gone."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._wake_one()

    async def close(self) -> None:
        """Gives every connection up; returns when all are gone."""
        self._closed = True
        connections = list(self._open)
        for connection in connections:
            connection.abandon("the client is closing")
        while self._waiters:
            self._wake_one()
        await asyncio.gather(*(connection.gone.wait() for connection in connections))

    def _usable_idle(self, now: float) -> C | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and now - connection.idle_since < self._idle_s:
                return connection
            connection.abandon("idle for too long")
        return None

    async def _opened(self, give_up_at: float) -> C:
        self._opening += 1
        try:
            async with asyncio.timeout_at(give_up_at):
                connection = await self._connect()
        except (OSError, TimeoutError) as error:
            raise NotSent(f"no connection: {type(error).__name__}") from error
        finally:
            self._opening -= 1
            self._wake_one()
        if connection.gone.is_set():
            raise NotSent("no connection: closed at once by the peer")
        self._open.add(connection)
        return connection

    async def _wait_for_a_place(self, give_up_at: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(give_up_at):
                await waiter
        except TimeoutError as error:
            raise NotSent("no free connection in time") from error
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake_one()
            raise

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


class PooledWay(Generic[C]):
    """`contract.Way` on a connection that was acquired. send: a call over it that takes left_s at most; release: gives
    it back to its pool.
    """

    __slots__ = ("_connection", "_left_s", "_release", "_send")

    def __init__(
        self,
        connection: C,
        send: Callable[[C, Call, float], Coroutine[Any, Any, Outcome]],
        release: Callable[[C], None],
        left_s: float,
    ) -> None:
        self._connection = connection
        self._left_s = left_s
        self._send = send
        self._release = release

    def send(self, call: Call) -> Coroutine[Any, Any, Outcome]:
        return self._send(self._connection, call, self._left_s)

    def leave(self) -> None:
        self._release(self._connection)
