"""Many questions to Redis in one round trip; the door where Redis's own errors become ours.

The stores of a send (`claims`, `limits`, `breaker`, and the ports of `schemas.stores`) each add commands
to a trip; `lane_worker` makes the trip. A redis.asyncio pipeline would do the same at twice the CPU.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import hiredis
from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

from schemas import metrics
from schemas.errors import StoreDown

# Answers of a server that is full, loading, a replica or otherwise not fit to be written to.
_UNFIT = ("OOM", "LOADING", "READONLY", "MISCONF", "NOAUTH", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "BUSY ")


READ_BYTES = 262_144


class Script:
    """A Lua script, named by the hash under which the server keeps it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


def script_beside(module_file: str, *names: str) -> Script:
    """The Lua files of these names beside the module, joined in order (shared parts come first)."""
    folder = Path(module_file).parent
    return Script("\n".join((folder / name).read_text(encoding="utf-8") for name in names))


class Trip(Protocol):
    """One round trip in the making."""

    def execute_command(self, *args: Any) -> Any: ...

    async def execute(self) -> list[Any]:
        """The replies in order; a command's own failure stands in its place as an exception.

        Raises StoreDown when the server could not be asked or must not be trusted.
        """
        ...


class Trips(Protocol):
    """Opens round trips."""

    def begin(self) -> Trip: ...


class RedisTrips:
    """Round trips over the client's connection pool (one server; a cluster needs a body of its own)."""

    def __init__(self, redis: Redis, scripts: Sequence[Script], timeout_s: float = 5.0) -> None:
        self._pool = redis.connection_pool
        self._sources = {script.sha: script.source for script in scripts}
        self._timeout_s = timeout_s

    def begin(self) -> Trip:
        return _RedisTrip(self)

    async def ask(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """The commands' replies; scripts that the server does not know (it was restarted) are sent along."""
        replies = await self._exchange(commands)
        unknown = [at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            whole = [("EVAL", self._sources[commands[at][1]], *commands[at][2:]) for at in unknown]
            for at, reply in zip(unknown, await self._exchange(whole), strict=True):
                replies[at] = reply
        return replies

    async def _exchange(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        packed = b"".join([hiredis.pack_command(command) for command in commands])
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
                try:
                    return await _talk(connection, packed, len(commands))
                finally:
                    await self._pool.release(connection)
        except (RedisError, OSError, TimeoutError) as error:
            metrics.REDIS_FAILURES.labels("send").inc()
            raise StoreDown(f"Redis did not answer: {type(error).__name__}: {error}") from error


class _RedisTrip:
    __slots__ = ("_commands", "_maps", "_trips")

    def __init__(self, trips: RedisTrips) -> None:
        self._trips = trips
        self._commands: list[tuple[Any, ...]] = []
        self._maps: list[int] = []

    def execute_command(self, *args: Any) -> Any:
        if args[0] == "HGETALL":
            self._maps.append(len(self._commands))
        self._commands.append(args)

    async def execute(self) -> list[Any]:
        if not self._commands:
            return []
        replies = await self._trips.ask(self._commands)
        for at in self._maps:  # flat on the wire; the stores read them as a client's pipeline would give them
            flat = replies[at]
            if not isinstance(flat, Exception):
                replies[at] = dict(zip(flat[::2], flat[1::2], strict=True))
        return replies


async def _talk(connection: Any, packed: bytes, expected: int) -> list[Any]:
    """Sends all, reads all. A connection that breaks off in the middle is closed: its replies would be misread."""
    replies: list[Any] = []
    try:
        await connection.send_packed_command(packed)
        # The client's own read_response costs five times as much a reply; both are held together by the
        # contract tests of the claims.
        reader, stream = connection._parser._reader, connection._reader
        while len(replies) < expected:
            reply = reader.gets(False)
            if reply is NOT_ENOUGH_DATA:
                received = await stream.read(READ_BYTES)
                if not received:
                    raise ConnectionError("the server closed the connection")
                reader.feed(received)
            else:
                replies.append(_own_failure(reply) if isinstance(reply, Exception) else reply)
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return replies


def _own_failure(error: Exception) -> Exception:
    """A failure of this one command; raises StoreDown when it tells of the server itself."""
    if not isinstance(error, ResponseError) or str(error).startswith(_UNFIT):
        raise StoreDown(f"Redis refuses work: {error}")
    return error
