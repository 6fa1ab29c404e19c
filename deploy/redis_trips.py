"""The body of `schemas.trips`: many commands in one round trip over the client's connection pool (one server).

Packed by hiredis and read straight from the connection: the client's own pipeline does the same at six times the
CPU, and a campaign makes some ten commands per recipient. Connections that came back whole are lent again at once
(`Lender`): the client's own pool takes as long for that as the whole trip of one command, and a login code makes a
dozen of them (`make bench ROWS=trips`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary, proxy

import hiredis
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection

from deploy.redis_client import answering
from schemas.trips import Script

TIMEOUT_S = 5.0
READ_BYTES = 262_144
KEPT = 32
"""Connections of a pool that may lie ready here; half of what `redis_client` allows."""
_NOT_YET = object()
_UNFIT = (
    *("OOM", "LOADING", "READONLY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "BUSY "),
    *("NOAUTH", "NOPERM", "ERR max number of clients"),
)
"""Answers of a server that is full, loading, a replica or otherwise not fit to be asked."""


class RedisTrips:
    """Body of Trips. store names the asker in metrics and errors; timeout_s bounds a round trip."""

    def __init__(self, redis: Redis, store: str, timeout_s: float = TIMEOUT_S) -> None:
        self._redis = redis
        self._lender = _lender_of(redis.connection_pool)
        self._store = store
        self._timeout_s = timeout_s
        self._taught: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
        """Stream of a connection -> scripts sent whole over it, which its server knows by their hash since."""

    def begin(self) -> RedisTrip:
        return RedisTrip(self)

    async def carry(self, commands: list[tuple[Any, ...]], scripts: dict[str, Script]) -> list[Any]:
        """The replies. A script is sent whole when a connection first uses it, so that calls run in their order."""
        with answering(self._store):
            async with asyncio.timeout(self._timeout_s):
                connection = await self._lender.lend()
                try:
                    if scripts:
                        self._teach(connection, commands, scripts)
                    replies = await _talk(connection, commands)
                    if hiredis.ReplyError in map(type, replies):
                        await _mend(connection, commands, scripts, replies)
                finally:
                    await self._lender.take_back(connection)
        return replies

    def _teach(self, connection: Any, commands: list[tuple[Any, ...]], scripts: dict[str, Script]) -> None:
        taught = self._taught.setdefault(connection._reader, set())
        for sha in scripts.keys() - taught:
            first = next(at for at, command in enumerate(commands) if command[:2] == ("EVALSHA", sha))
            commands[first] = _whole(commands[first], scripts)
            taught.add(sha)


class RedisTrip:
    """Body of Trip."""

    __slots__ = ("_commands", "_maps", "_scripts", "_trips")

    def __init__(self, trips: RedisTrips) -> None:
        self._trips = trips
        self._commands: list[tuple[Any, ...]] = []
        self._scripts: dict[str, Script] = {}
        self._maps: list[int] = []

    def execute_command(self, *args: Any) -> None:
        if args[0] == "HGETALL":
            self._maps.append(len(self._commands))
        self._commands.append(args)

    def run(self, script: Script, touched: Sequence[str | bytes], *args: Any) -> None:
        self._scripts[script.sha] = script
        self._commands.append(("EVALSHA", script.sha, len(touched), *touched, *args))

    async def execute(self) -> list[Any]:
        if not self._commands:
            return []
        replies = await self._trips.carry(self._commands, self._scripts)
        for at in self._maps:  # flat on the wire
            if type(flat := replies[at]) is list:
                parts = iter(flat)
                replies[at] = dict(zip(parts, parts, strict=True))
        return replies


class Lender:
    """Lends the connections of one pool to all trips over it.

    The pool itself asks each time whether something lies in the socket, which takes a turn of the event loop, and
    counts what it does. Here nothing can lie there: whoever does not read all answers closes the connection (`_talk`).
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = proxy(pool)  # found by it, see _lenders: it must be able to go
        self._kept: list[AbstractConnection] = []
        self._waiting = 0

    async def lend(self) -> AbstractConnection:
        """One that is open. Raises what the pool does when there is none to be had, or none can be opened."""
        while self._kept:
            connection = self._kept.pop()
            if _is_whole(connection):
                return connection
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)
        self._waiting += 1
        try:
            opened: AbstractConnection = await self._pool.get_connection()
            return opened
        finally:
            self._waiting -= 1

    async def take_back(self, connection: AbstractConnection) -> None:
        """Kept for the next trip, unless the pool has none left for whoever waits."""
        is_wanted = self._waiting or not self._pool.can_get_connection()
        if is_wanted or len(self._kept) >= KEPT or not _is_whole(connection):
            await self._pool.release(connection)
        else:
            self._kept.append(connection)


_lenders: WeakKeyDictionary[ConnectionPool, Lender] = WeakKeyDictionary()


def _lender_of(pool: ConnectionPool) -> Lender:
    """The one of this pool: what lies ready in one must not be missing in another."""
    if pool not in _lenders:
        _lenders[pool] = Lender(pool)
    return _lenders[pool]


def _is_whole(connection: Any) -> bool:
    """Whether it is open and nothing lies in it, as far as the event loop has heard."""
    if not connection.is_connected or connection.should_reconnect():
        return False
    reader = connection._reader
    return not reader.at_eof() and reader.exception() is None and not reader._buffer


async def _mend(
    connection: Any, commands: Sequence[tuple[Any, ...]], scripts: dict[str, Script], replies: list[Any]
) -> None:
    """Calls scripts again that somebody made the server forget. Raises when the server itself is the trouble."""
    failed = {at: str(reply) for at, reply in enumerate(replies) if type(reply) is hiredis.ReplyError}
    unknown = [at for at, text in failed.items() if text.startswith("NOSCRIPT")]
    if unknown:
        again = await _talk(connection, [_whole(commands[at], scripts) for at in unknown])
        for at, reply in zip(unknown, again, strict=True):
            replies[at], failed[at] = reply, str(reply) if type(reply) is hiredis.ReplyError else ""
    unfit = next((text for text in failed.values() if text.startswith(_UNFIT)), None)
    if unfit is not None:
        raise ConnectionRefusedError(unfit)


def _whole(command: tuple[Any, ...], scripts: dict[str, Script]) -> tuple[Any, ...]:
    """A script call with the script's text."""
    return ("EVAL", scripts[command[1]].source, *command[2:])


async def _talk(connection: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Sends all, reads all. A connection that breaks off in the middle is closed: its replies would be misread.

    The parser is our own: the connection's sets a timer for every single reply.
    """
    replies: list[Any] = []
    reader = hiredis.Reader(notEnoughData=_NOT_YET)
    expected = len(commands)
    try:
        # Not by the connection's own send: it goes through asyncio.wait_for, which on Python 3.11 swallows a cancel
        # that comes at the moment of the result, and a task that was told to end goes on.
        connection._writer.write(b"".join(map(hiredis.pack_command, commands)))
        await connection._writer.drain()
        while len(replies) < expected:
            received = await connection._reader.read(READ_BYTES)
            if not received:
                raise ConnectionResetError("the server closed the connection")
            reader.feed(received)
            while (reply := reader.gets()) is not _NOT_YET:
                replies.append(reply)
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return replies
