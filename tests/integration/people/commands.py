"""Plain Redis commands: the client's own types cannot be awaited."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis


async def run(redis: Redis, *command: Any) -> Any:
    return await redis.execute_command(*command)  # type: ignore[no-untyped-call]
