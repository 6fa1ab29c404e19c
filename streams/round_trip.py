"""One pipelined trip to Redis whose answers can be trusted: it ends by reading the epoch key, checked first.

Packed by hiredis and read straight from the connection: a redis.asyncio pipeline does the same at twice
the CPU, and fan-out makes two commands per recipient.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import hiredis

from schemas.errors import StoreDown
from schemas.stores import Epoch, Pipeline
from streams import redis_door

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.asyncio.connection import AbstractConnection

TIMEOUT_S = 5.0
READ_BYTES = 65_536
_NOT_YET = object()


async def trusted(redis: Redis, epoch: Epoch, store: str, ask: Callable[[Pipeline], None]) -> list[Any]:
    """The replies to what `ask` put into the pipeline, in order. store names the asker in metrics.

    Raises StoreDown when Redis is away, refuses, or was not rebuilt from the log.
    """
    commands = _Commands()
    ask(commands)
    epoch.ask(commands)
    pool = redis.connection_pool
    with redis_door.answering(store):
        async with asyncio.timeout(TIMEOUT_S):
            connection = await pool.get_connection()  # type: ignore[no-untyped-call]
            try:
                *replies, last = await _talk(connection, commands.packed)
            finally:
                await pool.release(connection)
    epoch.check(last)
    for at in commands.maps:
        pairs = replies[at]
        replies[at] = dict(zip(pairs[::2], pairs[1::2], strict=True))
    return replies


class _Commands:
    """What a pipelined round trip will send. maps: places of the replies that are hashes, flat on the wire."""

    def __init__(self) -> None:
        self.packed: list[bytes] = []
        self.maps: list[int] = []

    def execute_command(self, *args: Any) -> None:
        if args[0] == "HGETALL":
            self.maps.append(len(self.packed))
        self.packed.append(hiredis.pack_command(args))


async def _talk(connection: AbstractConnection, packed: list[bytes]) -> list[Any]:
    """Sends all, reads all. A connection that breaks off in between is closed: its replies would be misread."""
    try:
        await connection.send_packed_command(b"".join(packed))
        return await _replies(connection, len(packed))
    except BaseException:
        await connection.disconnect(nowait=True)
        raise


async def _replies(connection: AbstractConnection, expected: int) -> list[Any]:
    """Read with a parser of our own: the connection's sets a timer for every single reply."""
    parser = hiredis.Reader(notEnoughData=_NOT_YET)
    replies: list[Any] = []
    while True:
        while (reply := parser.gets()) is not _NOT_YET:
            replies.append(reply)
        if len(replies) >= expected:
            break
        received = await connection._reader.read(READ_BYTES)  # type: ignore[union-attr]
        if not received:
            raise ConnectionError("the server closed the connection")
        parser.feed(received)
    refused = next((reply for reply in replies if isinstance(reply, hiredis.ReplyError)), None)
    if refused is not None:
        raise StoreDown(f"Redis refuses a command: {refused}")
    return replies
