"""Opens Redis the way every process needs it, and makes its errors ours, for `redis_trips` and `redis_news`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from schemas import metrics
from schemas.errors import Misconfigured, StoreDown
from schemas.trips import Epoch

ANSWER_S = 2.0
"""Redis counts as down when it needs longer: lanes wait, they do not hang."""
CONNECTIONS = 64
OLDEST = 7
"""Major version; the first whose SET takes NX and GET together."""


def connect(url: str, epoch: Epoch) -> Redis:
    """A client whose connections store the server's run_id in `epoch` as they open.

    Raises Misconfigured for an address that cannot be read; the connections do for a server that is too old.

    Nothing is retried in here: a script may have run before its answer was lost, and only its caller knows
    what that means. A caller waits for a free connection for as long as it would wait for an answer.
    """

    async def note_server(connection: AbstractConnection) -> None:
        # With a time-out of its own the connection would send through asyncio.wait_for, which on Python 3.11 swallows
        # a cancel that comes meanwhile: a process told to stop in its first second would go on.
        connection.socket_timeout = None
        try:
            async with asyncio.timeout(ANSWER_S):
                await connection.on_connect()
                await connection.send_command("INFO", "server")
                epoch.run_id = run_id(await connection.read_response())
        finally:
            connection.socket_timeout = ANSWER_S

    try:
        pool = BlockingConnectionPool.from_url(
            url,
            redis_connect_func=note_server,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
            max_connections=CONNECTIONS,
            timeout=ANSWER_S,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:
        raise Misconfigured(f"redis.url: {error}") from None
    return Redis.from_pool(pool)


@contextmanager
def answering(store: str) -> Iterator[None]:
    """Raises StoreDown for whatever the client raises when Redis does not answer or does not do as told."""
    try:
        yield
    except (exceptions.RedisError, OSError, TimeoutError) as error:
        metrics.REDIS_FAILURES.labels(store).inc()
        raise StoreDown(f"Redis does not answer the {store} store: {type(error).__name__}: {error}") from error


def run_id(info: bytes) -> bytes:
    """The server's run_id, from its answer to INFO. Raises Misconfigured when the server is too old."""
    fields = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
    version = fields.get(b"redis_version", b"").strip().decode()
    if version and int(version.partition(".")[0]) < OLDEST:
        raise Misconfigured(f"Redis {version} is too old: Tidings needs {OLDEST}.0 or newer (SET with NX and GET)")
    return fields.get(b"run_id", b"").strip()
