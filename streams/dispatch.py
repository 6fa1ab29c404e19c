"""One leader lets campaigns go: page after page, fairly, at the providers' pace, and says how they are doing.

Before it: `campaign.audience` and `campaign.requests`; after it: `campaign.pages` and fan-out. What goes next is
decided in `streams/release.py`, what a campaign is in `streams/campaigns.py`; here it is written down. A crash
anywhere releases a few pages again, with the same ids: claims and plans absorb that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from schemas import codec, keys, metrics
from schemas.clock import Clock
from schemas.errors import Transient
from schemas.messages import (
    CampaignCursor,
    CampaignRequested,
    CampaignState,
    CampaignStatus,
    EventKind,
    ReleasedPage,
)
from schemas.reasons import Reason
from schemas.records import Outgoing, Publisher, Tails
from schemas.topics import Topics
from streams import campaigns as life
from streams import page_status
from streams.campaigns import Campaign, Campaigns
from streams.grants import Grants
from streams.leader import Leadership
from streams.page_reader import PageAt, ReadAhead
from streams.release import Candidate, Released, Releases

log = logging.getLogger(__name__)

FORGET_EVERY_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class DispatchOptions:
    """look_every_s: how often lanes are looked at. state_every_ms: a running campaign's state is written at least
    so often. ends_a_look: pages of stopped campaigns that are ended in one go.
    """

    look_every_s: float = 0.25
    state_every_ms: int = 1_000
    ends_a_look: int = 64


class Dispatch:
    """The leader's loop. Every instance follows the campaigns; only the one that leads acts.

    followed: set once it knows what was in the log when it started.
    """

    def __init__(
        self,
        campaigns: Campaigns,
        releases: Releases,
        ahead: ReadAhead,
        grants: Grants,
        leadership: Leadership,
        tails: Tails,
        publisher: Publisher,
        topics: Topics,
        clock: Clock,
        options: DispatchOptions | None = None,
    ) -> None:
        self._campaigns = campaigns
        self._releases = releases
        self._ahead = ahead
        self._grants = grants
        self._leadership = leadership
        self._tails = tails
        self._publisher = publisher
        self._topics = topics
        self._clock = clock
        self._options = options or DispatchOptions()
        self._stopping = asyncio.Event()
        self.followed = asyncio.Event()
        self._forgot_at_ms = clock.now_ms()

    async def run(self) -> None:
        """Returns after stop()."""
        view = await self._tails.follow(self._campaigns.topics, self._campaigns.on_record)
        led_epoch: int | None = None
        while not self._stopping.is_set():
            epoch = self._leadership.epoch
            try:
                if not self.followed.is_set():
                    await self._until_stopped_or(view.caught_up())
                    self.followed.set()
                elif epoch is None:
                    await self._until_stopped_or(self._leadership.acquired())
                elif epoch != led_epoch:
                    await self._until_stopped_or(view.caught_up())
                    self._ahead.start_over()
                    led_epoch = epoch
                else:
                    await self.look(epoch)
                    await self._until_stopped_or(asyncio.sleep(self._options.look_every_s))
            except Transient as error:
                log.warning("dispatch.look_failed", extra={"error": str(error)})
                self._ahead.start_over()
                await self._until_stopped_or(asyncio.sleep(self._options.look_every_s))

    def stop(self) -> None:
        self._stopping.set()

    async def look(self, epoch: int) -> None:
        """One round: end what was stopped, let go what fits, tell how campaigns are. Raises Transient."""
        unfinished = list(self._campaigns.unfinished())
        now_ms = self._clock.now_ms()
        stopped = {c.key: why for c, request in unfinished if (why := life.stop_status(c, request, now_ms))}
        await self._tell(epoch, now_ms)
        for campaign, request in unfinished:
            has_pages = campaign.next_page < request.pages and not self._ahead.is_lost(campaign.key)
            if campaign.key in stopped and has_pages:
                await self._end_pages(campaign, request, stopped[campaign.key], epoch)
        running = [
            candidate
            for campaign, request in unfinished
            if campaign.key not in stopped and (candidate := self._releases.candidate(campaign, request))
        ]
        metrics.CAMPAIGNS_RUNNING.set(sum(c.campaign.next_page < c.request.pages for c in running))
        released = await self._releases.next(running)
        await self._let_go(released, epoch)
        if released.tokens:
            await self._grants.give(released.tokens)
        if now_ms - self._forgot_at_ms > FORGET_EVERY_MS:
            self._forgot_at_ms = now_ms
            self._campaigns.forget_old(now_ms)

    async def _let_go(self, released: Released, epoch: int) -> None:
        """Pages first, cursors after their ack."""
        if not released.pages or self._leadership.epoch != epoch:
            return
        now_ms = self._clock.now_ms()
        await self._publisher.publish([self._page_record(c, page, now_ms) for c, page in released.pages])
        for candidate, _ in released.pages:
            metrics.PAGES_RELEASED.labels(candidate.request.tenant).inc()
        await self._move_cursors([(c.campaign, c.request, page) for c, page in released.pages], epoch)

    async def _end_pages(self, campaign: Campaign, request: CampaignRequested, why: CampaignStatus, epoch: int) -> None:
        """The recipients of pages that will never go out end as cancelled or expired, so that the counts close."""
        now_ms, ended = self._clock.now_ms(), []
        outgoing: list[Outgoing] = []
        for _ in range(min(self._options.ends_a_look, request.pages - campaign.next_page)):
            page = await self._ahead.take(campaign, request, 1)
            if page is None:
                break
            ended.append((campaign, request, page))
            outgoing += _ends(page, request, why, self._topics.status, now_ms)
        await self._publisher.publish(outgoing)
        await self._move_cursors(ended, epoch)

    async def _move_cursors(self, gone: Sequence[tuple[Campaign, CampaignRequested, PageAt]], epoch: int) -> None:
        """Behind the last of these pages of each campaign."""
        cursors: dict[str, CampaignCursor] = {}
        for campaign, request, page in gone:
            before = cursors[campaign.key].released if campaign.key in cursors else campaign.released
            cursors[campaign.key] = CampaignCursor(
                request.tenant,
                request.campaign_id,
                epoch,
                page.page.page + 1,
                page.offset + 1,
                before + len(page.page.recipients),
                self._clock.now_ms(),
            )
        await self._publisher.publish([self._cursor_record(cursor) for cursor in cursors.values()])
        for campaign, _, _ in gone:
            campaign.cursor = cursors[campaign.key]

    async def _tell(self, epoch: int, now_ms: int) -> None:
        """Publishes the state of campaigns that changed, and of each running one every second.

        What a leader of a lower epoch wrote over is written again.
        """
        touched, overwritten = self._campaigns.news()
        told, outgoing = [], []
        for campaign, request in touched:
            state = life.state(campaign, request, epoch, now_ms)
            if campaign.key in overwritten and campaign.cursor is not None:
                outgoing.append(self._cursor_record(campaign.cursor))
            if campaign.key in overwritten or self._is_news(campaign, state, now_ms):
                outgoing.append(self._state_record(state))
                told.append((campaign, state))
        try:
            await self._publisher.publish(outgoing)
        except Transient:
            self._campaigns.tell_again([campaign for campaign, _ in told], overwritten)
            raise
        for campaign, state in told:
            self._note_completion(campaign, state)
            self._campaigns.told(campaign, state)

    def _is_news(self, campaign: Campaign, state: CampaignState, now_ms: int) -> bool:
        before = campaign.state
        if before is None or life.differs(before, state):
            return True
        return before.finished_at is None and now_ms - before.at >= self._options.state_every_ms

    def _note_completion(self, campaign: Campaign, state: CampaignState) -> None:
        if state.finished_at is not None and not campaign.is_finished:
            metrics.CAMPAIGNS_COMPLETED.labels(state.status).inc()
            log.info("campaign.completed", extra={"campaign": campaign.key, "status": state.status})

    def _page_record(self, candidate: Candidate, page: PageAt, now_ms: int) -> Outgoing:
        released = _released(candidate, page, now_ms)
        key = keys.page_key(released.tenant, released.campaign_id, released.page)
        return Outgoing(self._topics.pages, key.encode(), codec.encode(released), page.headers)

    def _cursor_record(self, cursor: CampaignCursor) -> Outgoing:
        key = keys.campaign_key(cursor.tenant, cursor.campaign_id)
        return Outgoing(self._topics.cursor, key.encode(), codec.encode(cursor))

    def _state_record(self, state: CampaignState) -> Outgoing:
        key = keys.campaign_key(state.tenant, state.campaign_id)
        return Outgoing(self._topics.campaign_state, key.encode(), codec.encode(state))

    async def _until_stopped_or(self, waiting: Coroutine[Any, Any, object]) -> None:
        """Waits for either; what still waits when it is time to stop is given up."""
        work, stop = asyncio.ensure_future(waiting), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            work.cancel()
            stop.cancel()


def _released(candidate: Candidate, page: PageAt, now_ms: int) -> ReleasedPage:
    request = candidate.request
    return ReleasedPage(
        tenant=request.tenant,
        campaign_id=request.campaign_id,
        page=page.page.page,
        template=request.template,
        params=request.params,
        channels=request.channels,
        priority=candidate.use.priority,
        accepted_at_ms=request.accepted_at_ms,
        released_at_ms=now_ms,
        expires_at_ms=request.expires_at_ms,
        source_offset=page.offset,
        hop=0,
        slots=(),
        recipients=page.page.recipients,
    )


_ENDS = {
    CampaignStatus.CANCELLED: (EventKind.CANCELLED, Reason.CAMPAIGN_CANCELLED),
    CampaignStatus.EXPIRED: (EventKind.EXPIRED, Reason.EXPIRED),
}


def _ends(
    page: PageAt, request: CampaignRequested, why: CampaignStatus, status_topic: str, now_ms: int
) -> Iterable[Outgoing]:
    kind, reason = _ENDS[why]
    who = [(position, recipient.user_id) for position, recipient in enumerate(page.page.recipients)]
    events = page_status.ends(who, kind, reason, request.template, request.accepted_at_ms, now_ms)
    return page_status.records(status_topic, request.tenant, request.campaign_id, page.page.page, events)
