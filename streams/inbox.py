"""In-app messages of a user in Redis: the newest 200 of 30 days, an exact unread count, news as they happen.

The topic `inbox` is the truth: senders and readers write there first, and `route recipients` puts the same
records here again after Redis was emptied. Whatever is put twice counts once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from schemas import keys
from schemas.clock import Clock
from schemas.messages import InboxMessage
from schemas.stores import Epoch, InboxItem, InboxNews, InboxView, Pipeline
from streams import redis_door
from streams.inbox_format import pack, unpack
from streams.inbox_live import LiveInboxes
from streams.shared_trips import SharedTrips

if TYPE_CHECKING:
    from redis.asyncio import Redis

KEPT = 200
KEPT_S = 30 * 24 * 3600


class RedisInbox:
    """Body of stores.Inbox."""

    def __init__(self, redis: Redis, epoch: Epoch, clock: Clock) -> None:
        self._redis = redis
        self._epoch = epoch
        self._clock = clock
        self._put = redis_door.script("inbox_put.lua")
        self._mark = redis_door.script("inbox_mark.lua")
        self._live = LiveInboxes(redis)
        self._trips = SharedTrips(redis, "inbox")

    async def put(self, message: InboxMessage) -> None:
        await self._trips.go(lambda pipeline: self.write(pipeline, message))

    async def view(self, tenant: str, user_id: str) -> InboxView:
        with redis_door.answering("inbox"):
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.execute_command("HGETALL", keys.redis_inbox(tenant, user_id))
                self._epoch.ask(pipeline)
                stored, epoch = await pipeline.execute()
        self._epoch.check(epoch)
        seq = int(stored.pop(b"seq", b"0"))
        items = [_item(tenant, user_id, name, value) for name, value in stored.items()]
        fresh = [item for item in items if item.message.at_ms >= self._oldest_ms()]
        fresh.sort(key=_newest_first)
        unread = sum(not item.message.read_at_ms for item in fresh)
        return InboxView(seq, unread, tuple(fresh))

    async def mark_read(self, tenant: str, user_id: str, notification_ids: Sequence[str], at_ms: int) -> int:
        with redis_door.answering("inbox"):
            async with self._redis.pipeline(transaction=False) as pipeline:
                self._mark_command(pipeline, tenant, user_id, at_ms, notification_ids)
                (left,) = await pipeline.execute()
        return int(left)

    def live(self, tenant: str, user_id: str) -> AbstractAsyncContextManager[AsyncIterator[InboxNews]]:
        return self._live.following(tenant, user_id)

    async def close(self) -> None:
        """Ends the live news; whoever follows them is told to reconnect."""
        await self._live.close()

    def write(self, pipeline: Pipeline, message: InboxMessage) -> None:
        """Appends one command that puts the message, or only marks it as read where it is known already."""
        tenant, user_id = message.tenant, message.user_id
        profile = keys.redis_profile(tenant, user_id)
        limits = (KEPT, self._oldest_ms(), KEPT_S, keys.redis_inbox_live(tenant, user_id))
        content = (message.notification_id, pack(message), message.at_ms, message.read_at_ms)
        pipeline.execute_command("EVAL", self._put, 4, *_keys(tenant, user_id), profile, *content, *limits)

    def remove(self, pipeline: Pipeline, tenant: str, user_id: str, notification_id: str) -> None:
        """Appends one command that removes the message."""
        self._mark_command(pipeline, tenant, user_id, 0, [notification_id])

    def _mark_command(
        self, pipeline: Pipeline, tenant: str, user_id: str, at_ms: int, notification_ids: Sequence[str]
    ) -> None:
        live = keys.redis_inbox_live(tenant, user_id)
        pipeline.execute_command("EVAL", self._mark, 3, *_keys(tenant, user_id), at_ms, live, *notification_ids)

    def _oldest_ms(self) -> int:
        return self._clock.now_ms() - KEPT_S * 1000


def _item(tenant: str, user_id: str, name: bytes, value: bytes) -> InboxItem:
    seq, read_at_ms, body = value.split(b" ", 2)
    return InboxItem(int(seq), unpack(tenant, user_id, name, read_at_ms, body))


def _keys(tenant: str, user_id: str) -> tuple[str, str, str]:
    return (
        keys.redis_inbox(tenant, user_id),
        keys.redis_inbox_order(tenant, user_id),
        keys.redis_inbox_unread(tenant, user_id),
    )


def _newest_first(item: InboxItem) -> tuple[int, int]:
    return -item.message.at_ms, -item.seq
