"""A user's timeline in Redis, as the API reads it; senders push its entries when they settle a delivery."""

from __future__ import annotations

from collections.abc import Sequence

from schemas import keys, timeline
from schemas.trips import Epoch, Trips, trusted


class RedisTimeline:
    """Body of stores.Timeline."""

    def __init__(self, trips: Trips, epoch: Epoch) -> None:
        self._trips = trips
        self._epoch = epoch

    async def newest(self, tenant: str, user_id: str) -> Sequence[timeline.Entry]:
        newest = ("LRANGE", keys.redis_timeline(tenant, user_id), 0, timeline.ENTRIES - 1)
        (stored,) = await trusted(self._trips, self._epoch, lambda trip: trip.execute_command(*newest))
        return [timeline.unpack(raw) for raw in stored]
