"""In-app messages of a user in Redis: the newest 200 of 30 days, an exact unread count, news as they happen.

The topic `inbox` is the truth: senders and readers write there first, and `route recipients` puts the same
records here again after Redis was emptied. Whatever is put twice counts once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

from schemas import keys
from schemas.clock import Clock
from schemas.messages import InboxMessage
from schemas.shared_trips import SharedTrips
from schemas.stores import InboxItem, InboxNews, InboxView
from schemas.trips import Epoch, Trip, Trips, asked, script_beside, trusted
from streams.inbox_format import pack, unpack
from streams.inbox_live import LiveInboxes, OpenLine

PUT = script_beside(__file__, "inbox_put.lua")
MARK = script_beside(__file__, "inbox_mark.lua")

KEPT = 200
KEPT_S = 30 * 24 * 3600


class RedisInbox:
    """Body of stores.Inbox."""

    def __init__(self, trips: Trips, open_line: OpenLine, epoch: Epoch, clock: Clock) -> None:
        self._trips = trips
        self._epoch = epoch
        self._clock = clock
        self._live = LiveInboxes(open_line)
        self._shared = SharedTrips(trips, epoch)

    async def put(self, message: InboxMessage) -> None:
        await self._shared.go(lambda trip: self.write(trip, message))

    async def view(self, tenant: str, user_id: str) -> InboxView:
        whole = ("HGETALL", keys.redis_inbox(tenant, user_id))
        (stored,) = await trusted(self._trips, self._epoch, lambda trip: trip.execute_command(*whole))
        seq = int(stored.pop(b"seq", b"0"))
        items = [_item(tenant, user_id, name, value) for name, value in stored.items()]
        fresh = [item for item in items if item.message.at_ms >= self._oldest_ms()]
        fresh.sort(key=_newest_first)
        unread = sum(not item.message.read_at_ms for item in fresh)
        return InboxView(seq, unread, tuple(fresh))

    async def mark_read(self, tenant: str, user_id: str, notification_ids: Sequence[str], at_ms: int) -> int:
        (left,) = await asked(
            self._trips, lambda trip: self._mark_command(trip, tenant, user_id, at_ms, notification_ids)
        )
        return int(left)

    def live(self, tenant: str, user_id: str) -> AbstractAsyncContextManager[AsyncIterator[InboxNews]]:
        return self._live.following(tenant, user_id)

    async def close(self) -> None:
        """Ends the live news; whoever follows them is told to reconnect."""
        await self._live.close()

    def write(self, trip: Trip, message: InboxMessage) -> None:
        """Appends one command that puts the message, or only marks it as read where it is known already."""
        tenant, user_id = message.tenant, message.user_id
        profile = keys.redis_profile(tenant, user_id)
        limits = (KEPT, self._oldest_ms(), KEPT_S, keys.redis_inbox_live(tenant, user_id))
        content = (message.notification_id, pack(message), message.at_ms, message.read_at_ms)
        trip.run(PUT, (*_keys(tenant, user_id), profile), *content, *limits)

    def remove(self, trip: Trip, tenant: str, user_id: str, notification_id: str) -> None:
        """Appends one command that removes the message."""
        self._mark_command(trip, tenant, user_id, 0, [notification_id])

    def _mark_command(self, trip: Trip, tenant: str, user_id: str, at_ms: int, notification_ids: Sequence[str]) -> None:
        live = keys.redis_inbox_live(tenant, user_id)
        trip.run(MARK, _keys(tenant, user_id), at_ms, live, self._oldest_ms(), *notification_ids)

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
