"""The body of `streams.inbox_live.Line`: one connection over which channels of Redis are heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import cast

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection

from deploy.redis_client import answering
from schemas.errors import StoreDown


class RedisLine:
    """One connection at most, taken by the first use. store names the asker in metrics and errors."""

    def __init__(self, redis: Redis, store: str) -> None:
        self._pubsub = redis.pubsub()
        self._store = store
        self._turn = asyncio.Lock()
        self._closed = False

    async def hear(self, channel: bytes) -> None:
        async with self._opened():
            await self._pubsub.subscribe(channel)

    async def ignore(self, channel: bytes) -> None:
        async with self._opened():
            await self._pubsub.unsubscribe(channel)

    async def next(self, wait_s: float) -> tuple[bytes, bytes | None] | None:
        async with self._opened():
            pass  # nobody's turn is taken while nothing comes
        with answering(self._store):
            message = await self._pubsub.get_message(timeout=wait_s)
        if message is None or message["type"] not in ("subscribe", "message"):
            return None
        return message["channel"], message["data"] if message["type"] == "message" else None

    async def close(self) -> None:
        self._closed = True
        async with self._turn:
            with suppress(StoreDown), answering(self._store):
                await self._pubsub.aclose()  # type: ignore[no-untyped-call]

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        """One caller at a time: each of those who find no connection would take one, and only the last would be kept.

        Raises StoreDown also when the line was cut: the client would connect anew, and so does its `get_message`.
        """
        async with self._turn:
            connection = cast("AbstractConnection | None", self._pubsub.connection)
            if self._closed or not (connection is None or connection.is_connected):
                raise StoreDown(f"the line of the {self._store} store was closed or cut")
            with answering(self._store):
                if connection is None:
                    await self._pubsub.connect()  # type: ignore[no-untyped-call]
                yield
