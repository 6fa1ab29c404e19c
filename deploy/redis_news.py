"""The body of `streams.inbox_live.Line`: one connection over which channels of Redis are heard."""

from __future__ import annotations

from contextlib import suppress

from redis.asyncio import Redis

from deploy.redis_client import answering
from schemas.errors import StoreDown


class RedisLine:
    """Opened by its first `hear`. store names the asker in metrics and errors."""

    def __init__(self, redis: Redis, store: str) -> None:
        self._pubsub = redis.pubsub()
        self._store = store

    async def hear(self, channel: bytes) -> None:
        with answering(self._store):
            await self._pubsub.subscribe(channel)

    async def ignore(self, channel: bytes) -> None:
        with answering(self._store):
            await self._pubsub.unsubscribe(channel)

    async def next(self, wait_s: float) -> tuple[bytes, bytes | None] | None:
        with answering(self._store):
            message = await self._pubsub.get_message(timeout=wait_s)
        if message is None or message["type"] not in ("subscribe", "message"):
            return None
        return message["channel"], message["data"] if message["type"] == "message" else None

    async def close(self) -> None:
        with suppress(StoreDown), answering(self._store):
            await self._pubsub.aclose()  # type: ignore[no-untyped-call]
