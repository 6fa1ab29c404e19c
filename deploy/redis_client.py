"""Opens Redis the way every process needs it: each new connection notes which server it reached."""

from __future__ import annotations

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from schemas.stores import Epoch

ANSWER_S = 2.0
"""Redis counts as down when it needs longer: lanes wait, they do not hang."""
CONNECTIONS = 64


def connect(url: str, epoch: Epoch) -> Redis:
    """A client whose connections store the server's run_id in `epoch` as they open.

    Nothing is retried in here: a script may have run before its answer was lost, and only its caller knows
    what that means. A caller waits for a free connection for as long as it would wait for an answer.
    """

    async def note_server(connection: AbstractConnection) -> None:
        await connection.on_connect()
        await connection.send_command("INFO", "server")
        epoch.run_id = _run_id(await connection.read_response())

    pool = BlockingConnectionPool.from_url(
        url,
        redis_connect_func=note_server,
        socket_timeout=ANSWER_S,
        socket_connect_timeout=ANSWER_S,
        max_connections=CONNECTIONS,
        timeout=ANSWER_S,
        retry=Retry(NoBackoff(), 0),
    )
    return Redis.from_pool(pool)


def _run_id(info: bytes) -> bytes:
    for line in info.splitlines():
        if line.startswith(b"run_id:"):
            return line.removeprefix(b"run_id:").strip()
    return b""
