"""What is known of every campaign, kept up to date from its five topics: for answers, never for decisions.

Counts are sums over status partitions of the newest absolute vectors; nothing is ever added up by events.
The first request of an id is the campaign; later ones were answered from it, and are when it is not kept any more, too:
an id is used until dispatch has removed all that the log held of its campaign (`schemas/forgetting.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from producers.campaign import UNKNOWN, Campaign, First
from schemas import codec, forgetting, keys, messages
from schemas.clock import Clock
from schemas.errors import Poison, Transient
from schemas.records import Placed, Record, Tails, TopicView
from schemas.topics import Topics

log = logging.getLogger(__name__)
DAY_MS = 86_400_000
_OfCampaign = (
    messages.CampaignRequested
    | messages.CampaignState
    | messages.CampaignProgress
    | messages.CampaignCursor
    | messages.CampaignControl
)


@dataclass(frozen=True, slots=True)
class Options:
    """finished_days: how long a finished campaign stays visible. most: campaigns kept in memory at all, some 10 KB
    each; beyond it the oldest finished ones go, and some 400 bytes of each stay until its id is free.

    pace is measured over the last pace_window_ms; without progress for twice that it is zero.
    catch_up_s: how long an answer may wait for the newest campaigns. order_seen_s: how long that to an order may
    wait until it was read back, far longer than the log takes. open_tries: a broker that elects leaders
    for new topics may refuse the first.
    """

    finished_days: int = 30
    most: int = 10_000
    pace_window_ms: int = 10_000
    catch_up_s: float = 3.0
    order_seen_s: float = 2.0
    open_tries: int = 10
    open_pause_s: float = 0.5


class _Dropped(NamedTuple):
    """What stays of a campaign that is not kept. heard_ms: when the newest record about it was written."""

    first: First
    heard_ms: int


class CampaignView:
    """All campaigns of the deployment. Opened once per API process; its callbacks run on the event loop."""

    def __init__(self, topics: Topics, clock: Clock, options: Options = Options()) -> None:
        self._topics = topics
        self._clock = clock
        self._options = options
        self._campaigns: dict[str, Campaign] = {}
        self._dropped: dict[str, _Dropped] = {}
        self._view: TopicView | None = None
        self._is_loaded = False
        self._looking = asyncio.Lock()
        self._looks = 0
        self._readers: dict[str, Callable[[Record], None]] = {
            topics.campaign_requests: self._take_request,
            topics.campaign_state: self._take_state,
            topics.progress: self._take_progress,
            topics.cursor: self._take_cursor,
            topics.campaign_control: self._take_control,
        }

    async def open(self, tails: Tails) -> None:
        """Follows the topics; returns once everything that was in them has been seen.

        Raises Transient when the log still does not answer after all tries, Misconfigured without the topics.
        """
        self._view = await tails.follow(tuple(self._readers), self._take)
        for tries_left in reversed(range(self._options.open_tries)):
            try:
                await self._view.caught_up()
                break
            except Transient:
                if not tries_left:
                    raise
                await asyncio.sleep(self._options.open_pause_s)
        self._is_loaded = True
        self._drop_old()
        log.info("campaigns.loaded", extra={"campaigns": len(self._campaigns)})

    @property
    def is_loaded(self) -> bool:
        return self._is_loaded

    async def seen(self, placed: Placed) -> None:
        """Returns once the view holds the campaign request at this place: read your own write."""
        assert self._view is not None
        await self._view.seen(self._topics.campaign_requests, placed)

    async def seen_orders(self, placed: Sequence[Placed]) -> bool:
        """The same of orders; False when they could not be read back in time: they hold all the same."""
        assert self._view is not None
        try:
            async with asyncio.timeout(self._options.order_seen_s):
                for place in placed:
                    await self._view.seen(self._topics.campaign_control, place)
        except TimeoutError:
            return False
        return True

    def find(self, tenant: str, campaign_id: str) -> Campaign | None:
        """The campaign; None when it was never accepted, or finished too long ago."""
        found = self._campaigns.get(keys.campaign_key(tenant, campaign_id))
        return found if found is not None and found.is_known else None

    async def first(self, tenant: str, campaign_id: str) -> First | None:
        """What the id was used for first, by whomever; None while it is free.

        UNKNOWN when the log holds something of its campaign, but not its request. Raises Transient.
        """
        key = keys.campaign_key(tenant, campaign_id)
        if self._first(key) is UNKNOWN:  # the request may be on its way here: topics are read side by side
            await self._catch_up()
        return self._first(key)

    async def find_now(self, tenant: str, campaign_id: str) -> Campaign | None:
        """As find, but never misses what another instance accepted a moment ago. Raises Transient."""
        found = self.find(tenant, campaign_id)
        if found is not None:
            return found
        await self._catch_up()
        return self.find(tenant, campaign_id)

    async def find_newest(self, tenant: str, campaign_id: str) -> Campaign | None:
        """As find, with what other instances did up to now. While the log is slow to answer, with what is known:
        an order must not wait for that. Raises Transient when nothing is known at all.
        """
        try:
            await self._catch_up()
        except Transient:
            found = self.find(tenant, campaign_id)
            if found is None:
                raise
            return found
        return self.find(tenant, campaign_id)

    def newest(self, tenant: str, most: int) -> list[Campaign]:
        """The tenant's campaigns, newest first."""
        mine = [found for found in self._campaigns.values() if found.tenant == tenant and found.is_known]
        return sorted(mine, key=lambda found: (-found.accepted_at_ms, found.campaign_id))[:most]

    def pace_per_s(self, campaign: Campaign) -> float:
        return campaign.pace_per_s(self._clock.now_ms(), self._options.pace_window_ms)

    async def _catch_up(self) -> None:
        """Sees everything that was in the log at the call. Callers who come meanwhile share the next look."""
        assert self._view is not None
        wanted = self._looks + 1
        try:
            async with asyncio.timeout(self._options.catch_up_s), self._looking:
                if self._looks < wanted:
                    self._looks += 1
                    await self._view.caught_up()
        except TimeoutError:
            raise Transient("the campaign topics could not be read to their end in time") from None

    def _take(self, record: Record) -> None:
        if record.value is None:
            self._bury(record)
            return
        try:
            self._readers[record.topic](record)
        except Poison as error:
            extra = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            log.error("campaigns.record_skipped", extra={**extra, "error": error.text})

    def _take_request(self, record: Record) -> None:
        message = codec.decode(record.value, messages.CampaignRequested)
        key = keys.campaign_key(message.tenant, message.campaign_id)
        if forgetting.is_old(self._heard_ms(key), record.timestamp_ms):
            # Its id was free again; the tombstones may be read later, as topics are read side by side.
            self._forget(key)
        if self._first(key) in (None, UNKNOWN):
            self._heard_of(message, record).requested = message

    def _take_state(self, record: Record) -> None:
        message = codec.decode(record.value, messages.CampaignState)
        campaign = self._heard_of(message, record)
        held = campaign.state
        if held is None or (message.epoch, message.version) >= (held.epoch, held.version):
            campaign.state = message
            if message.finished_at:
                campaign.samples.clear()

    def _take_progress(self, record: Record) -> None:
        message = codec.decode(record.value, messages.CampaignProgress)
        campaign = self._heard_of(message, record)
        held = campaign.progress.get(message.partition)
        if held is not None and held.version > message.version:
            return
        campaign.progress[message.partition] = message
        campaign.progress_ms[message.partition] = record.timestamp_ms
        campaign.note_progress(record.timestamp_ms)

    def _take_cursor(self, record: Record) -> None:
        message = codec.decode(record.value, messages.CampaignCursor)
        campaign = self._heard_of(message, record)
        held = campaign.cursor
        if held is None or (message.epoch, message.released) >= (held.epoch, held.released):
            campaign.cursor = message

    def _take_control(self, record: Record) -> None:
        message = codec.decode(record.value, messages.CampaignControl)
        self._heard_of(message, record).orders.take(message)

    def _bury(self, record: Record) -> None:
        """Takes a tombstone (`schemas/forgetting.py`). After the first its campaign is not kept, as the rest does not
        add up; the last, that of the cursor, frees its id.
        """
        tenant, campaign_id, part = keys.campaign_part(record.key or b"")
        key, at_ms = keys.campaign_key(tenant, campaign_id), record.timestamp_ms
        is_last = record.topic == self._topics.cursor
        is_over = forgetting.is_old(self._heard_ms(key), at_ms)
        campaign = self._campaigns.get(key) or Campaign(tenant, campaign_id)
        if is_last:
            campaign.lose_cursor(at_ms)
        elif record.topic == self._topics.campaign_state:
            campaign.lose_state(at_ms)
        elif record.topic == self._topics.progress:
            campaign.lose_counts(part, at_ms)
        elif record.topic == self._topics.campaign_control:
            campaign.orders.lose(part, at_ms)
        if is_last and is_over:
            self._forget(key)
        elif campaign.is_empty:
            self._campaigns.pop(key, None)
        elif is_over and campaign.is_known:
            self._drop(key)

    def _forget(self, key: str) -> None:
        """The id is free."""
        self._campaigns.pop(key, None)
        self._dropped.pop(key, None)

    def _heard_of(self, message: _OfCampaign, record: Record) -> Campaign:
        """The campaign that this record is about."""
        key = keys.campaign_key(message.tenant, message.campaign_id)
        found = self._campaigns.get(key)
        if found is None:
            if self._is_loaded and len(self._campaigns) >= self._options.most:
                self._drop_old()
            found = self._campaigns[key] = Campaign(message.tenant, message.campaign_id)
        found.heard_ms = max(found.heard_ms, record.timestamp_ms)
        return found

    def _heard_ms(self, key: str) -> int:
        """When the newest record about it was written; 0 when nothing is known of it."""
        campaign, dropped = self._campaigns.get(key), self._dropped.get(key)
        return max(campaign.heard_ms if campaign else 0, dropped.heard_ms if dropped else 0)

    def _first(self, key: str) -> First | None:
        campaign, dropped = self._campaigns.get(key), self._dropped.get(key)
        if campaign is not None and campaign.first is not None:
            return campaign.first
        if dropped is not None:
            return dropped.first
        return UNKNOWN if campaign is not None else None

    def _drop_old(self) -> None:
        """Keeps what finished long ago no more; above the bound, the oldest finished ones and strays as well.

        What they were asked for stays until their ids are free.
        """
        horizon_ms = self._clock.now_ms() - self._options.finished_days * DAY_MS
        done = {key: found for key, found in self._campaigns.items() if found.finished_at_ms or not found.is_known}
        by_age = sorted(done, key=lambda key: done[key].finished_at_ms)
        surplus = len(self._campaigns) - self._options.most * 9 // 10
        for position, key in enumerate(by_age):
            if position < surplus or 0 < done[key].finished_at_ms < horizon_ms:
                self._drop(key)

    def _drop(self, key: str) -> None:
        dropped = _Dropped(self._first(key) or UNKNOWN, self._heard_ms(key))
        del self._campaigns[key]
        self._dropped[key] = dropped
