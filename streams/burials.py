"""What a campaign leaves in the log is removed long after it has ended: then its id is free again.

Done by dispatch's leader (`schemas/forgetting.py` says when), of campaigns whose request the log does not hold any
more and of which nothing is in hold. Tombstones of state, counts and orders come first, acked, then that of the cursor:
while anything is left the id counts as used, so no new campaign of it can come between them. What a crash leaves, the
next leader finds; from its first tombstone on nobody tells of a campaign. A leader waits for an hour before it begins:
what one that was deposed still had under way is in the log by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence

from schemas import keys
from schemas.clock import Clock
from schemas.errors import Transient
from schemas.records import LogReader, Outgoing, Publisher
from schemas.topics import Topics
from streams.campaigns import Campaign, Campaigns
from streams.holds import Holds
from streams.leader import Leadership

log = logging.getLogger(__name__)

EVERY_MS = 3_600_000
CATCH_UP_S = 5.0
"""Campaigns that run must not wait for this."""
AT_ONCE = 100
"""Campaigns that are buried in one go, with some ten tombstones each."""
NEXT_MS = 60_000
"""When there are more: until the next go."""


class Burials:
    """Acts for the leader: once an hour, and every minute while more are due than fit in one go."""

    def __init__(
        self,
        campaigns: Campaigns,
        holds: Holds,
        reader: LogReader,
        leadership: Leadership,
        publisher: Publisher,
        topics: Topics,
        clock: Clock,
    ) -> None:
        self._campaigns = campaigns
        self._holds = holds
        self._reader = reader
        self._leadership = leadership
        self._publisher = publisher
        self._topics = topics
        self._clock = clock
        self.start_over()

    def start_over(self) -> None:
        """A leader begins."""
        self._next_at_ms = self._clock.now_ms() + EVERY_MS

    async def run_due(self, epoch: int, caught_up: Callable[[], Awaitable[None]]) -> None:
        """Buries who is due when it is time. Raises Transient: what is left has its turn in an hour.

        caught_up: returns once all that was in the log is known.
        """
        now_ms = self._clock.now_ms()
        if now_ms < self._next_at_ms:
            return
        self._next_at_ms = now_ms + EVERY_MS
        self._campaigns.forget_old(now_ms)
        if not self._campaigns.quiet(now_ms):
            return
        try:
            async with asyncio.timeout(CATCH_UP_S):
                await caught_up()
        except TimeoutError:
            raise Transient("what is written of campaigns could not be read to its end in time") from None
        gone = await self._gone(self._campaigns.quiet(now_ms))
        held = {flow.campaign for flow in self._holds.flows()}
        due = [campaign for campaign in gone if campaign.key not in held]
        await self._bury(due[:AT_ONCE], epoch)
        if len(due) > AT_ONCE:
            self._next_at_ms = now_ms + NEXT_MS

    async def _gone(self, campaigns: Sequence[Campaign]) -> list[Campaign]:
        """Those whose request the log does not hold: who reads one later would run the campaign again."""
        topic = self._topics.campaign_requests
        partitions = {one.requested_at.partition for one in campaigns if one.requested_at is not None}
        kept = await self._reader.offsets_of([(topic, partition) for partition in partitions])

        def is_gone(campaign: Campaign) -> bool:
            place = campaign.requested_at
            return place is None or place.offset < kept[topic, place.partition][0]

        return [campaign for campaign in campaigns if is_gone(campaign)]

    async def _bury(self, campaigns: Sequence[Campaign], epoch: int) -> None:
        """What was written is forgotten by everybody who reads it, here as well."""
        if not campaigns or self._leadership.epoch != epoch:
            return
        first = [record for campaign in campaigns for record in self._first(campaign)]
        await self._publisher.publish(first)
        if self._leadership.epoch != epoch:
            return
        last = [Outgoing(self._topics.cursor, campaign.key.encode(), None) for campaign in campaigns]
        await self._publisher.publish(last)
        log.info("campaigns.forgotten", extra={"campaigns": len(campaigns)})

    def _first(self, campaign: Campaign) -> Iterator[Outgoing]:
        tenant, campaign_id, _ = keys.campaign_part(campaign.key.encode())
        if campaign.state is not None:
            yield Outgoing(self._topics.campaign_state, campaign.key.encode(), None)
        for partition in campaign.progress:
            key = keys.progress_key(tenant, campaign_id, partition)
            yield Outgoing(self._topics.progress, key.encode(), None)
        for order in campaign.orders.given():
            key = keys.control_key(tenant, campaign_id, order)
            yield Outgoing(self._topics.campaign_control, key.encode(), None)
