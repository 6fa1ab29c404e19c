"""A user's timeline in Redis, as the API reads it; senders push its entries when they settle a delivery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from schemas import keys, timeline
from schemas.stores import Epoch
from streams import redis_door

if TYPE_CHECKING:
    from redis.asyncio import Redis


class RedisTimeline:
    """Body of stores.Timeline."""

    def __init__(self, redis: Redis, epoch: Epoch) -> None:
        self._redis = redis
        self._epoch = epoch

    async def newest(self, tenant: str, user_id: str) -> Sequence[timeline.Entry]:
        with redis_door.answering("timeline"):
            async with self._redis.pipeline(transaction=False) as pipeline:
                key = keys.redis_timeline(tenant, user_id)
                pipeline.execute_command("LRANGE", key, 0, timeline.ENTRIES - 1)
                self._epoch.ask(pipeline)
                stored, epoch = await pipeline.execute()
        self._epoch.check(epoch)
        return [timeline.unpack(raw) for raw in stored]
