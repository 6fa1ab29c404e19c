"""One leader lets campaigns go: page after page, fairly, at the providers' pace, and says how they are doing.

Before it: `campaign.audience` and `campaign.requests`; after it: `campaign.pages` and fan-out. What goes next is
decided in `streams/release.py`, what a campaign is in `streams/campaigns.py`; here it is written down. A crash
anywhere releases a few pages again, with the same ids: claims and plans absorb that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemas import codec, keys, metrics
from schemas.clock import Clock
from schemas.errors import Transient
from schemas.gaps import Gap
from schemas.messages import (
    CampaignCursor,
    CampaignRequested,
    CampaignState,
    CampaignStatus,
    EventKind,
)
from schemas.reasons import Reason
from schemas.records import Outgoing, Publisher, Tails, TopicView
from schemas.topics import Topics
from streams import campaigns as life
from streams import cursors, page_records
from streams.burials import Burials
from streams.campaigns import Campaign, Campaigns
from streams.digests import Digests
from streams.grants import Grants
from streams.held_release import HeldRelease
from streams.holds import NEVER_MS
from streams.leader import Leadership
from streams.page_reader import PageAt, ReadAhead
from streams.page_records import LOST, End
from streams.release import PAGES_A_LOOK, Candidate, Released, Releases
from streams.released_before import ReleasedBefore
from streams.stalls import Stalls
from streams.ticks import Ticks

log = logging.getLogger(__name__)

UNNOTED_PAGES = 2 * PAGES_A_LOOK
"""What a leader may have let go and not noted: that of its last look, and of one more when it was deposed meanwhile."""

Gone = tuple[Campaign, CampaignRequested, PageAt | None]
"""A page that is done with; None: all that were left, as the log does not hold them."""


@dataclass(frozen=True, slots=True)
class DispatchOptions:
    """look_every_s: how often lanes are looked at. state_every_ms: a running campaign's state is written at least
    so often. ends_a_look: pages of a campaign that are ended in one go.
    """

    look_every_s: float = 0.25
    state_every_ms: int = 1_000
    ends_a_look: int = 64


class Dispatch:
    """The leader's loop. Every instance follows the campaigns; only the one that leads acts.

    followed: set once it knows what was in the log when it started, all that is held included.
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
        ticks: Ticks,
        held: HeldRelease,
        digests: Digests,
        burials: Burials,
        options: DispatchOptions | None = None,
        gap: Gap | None = None,
    ) -> None:
        self._gap = gap
        self._campaigns = campaigns
        self._releases = releases
        self._ahead = ahead
        self._grants = grants
        self._leadership = leadership
        self._tails = tails
        self._publisher = publisher
        self._topics = topics
        self._clock = clock
        self._ticks = ticks
        self._held = held
        self._digests = digests
        self._burials = burials
        self._views: list[TopicView] = []
        self._options = options or DispatchOptions()
        self._stopping = asyncio.Event()
        self.followed = asyncio.Event()
        self._stalls = Stalls(releases)
        self._before = ReleasedBefore(UNNOTED_PAGES)

    async def run(self) -> None:
        """Returns after stop()."""
        self._views = views = [
            await self._tails.follow(self._campaigns.topics, self._campaigns.on_record),
            await self._tails.follow(self._held.holds.topics, self._held.holds.on_record),
            await self._tails.follow(self._held.orders.topics, self._held.orders.on_record),
        ]
        led_epoch: int | None = None
        while not self._stopping.is_set():
            epoch = self._leadership.epoch
            try:
                if not self.followed.is_set():
                    await self._until_stopped_or(_caught_up(views))
                    self.followed.set()
                elif epoch is None:
                    await self._until_stopped_or(self._leadership.acquired())
                elif epoch != led_epoch:
                    await self._until_stopped_or(_caught_up(views))
                    self._releases.start_over()
                    self._before.start_over(self._clock.now_ms())
                    self._burials.start_over()
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
        """One round: tell how campaigns are, end what cannot go out, let go what fits. Raises Transient."""
        unfinished = list(self._campaigns.unfinished())
        now_ms = self._clock.now_ms()
        self._held.begin(unfinished)
        self._before.keep_only({campaign.key for campaign, _ in unfinished})
        await self._held.obey()
        await self._tell(epoch, now_ms)
        running = []
        for campaign, request in unfinished:
            found = self._releases.candidate(campaign, request)
            end = _end_of(campaign, request, found, now_ms)
            if end is not None and campaign.next_page < request.pages:
                await self._end_pages(campaign, request, end, epoch)
            if campaign.missing and campaign.next_page >= request.pages:
                await self._end_missing(campaign, request, end or LOST, epoch)
            if end is not None and campaign.held:
                await self._held.end_parts(campaign, request, end, now_ms if end in _UNSENDABLE.values() else NEVER_MS)
            if end is None and isinstance(found, Candidate):
                running.append(found)
        metrics.CAMPAIGNS_RUNNING.set(sum(c.campaign.next_page < c.request.pages for c in running))
        self._stalls.tell((campaign for campaign, _ in unfinished), now_ms)
        await self._stalls.ask(running, now_ms)
        released = await self._releases.next(running, self._held.flows(now_ms))
        await self._let_go(released, epoch, now_ms)
        if self._leadership.epoch == epoch:
            await self._held.let_go(released.held, {one.campaign.key: one for one in running})
            await self._held.drop_leftovers()
        if released.tokens:
            await self._grants.give(released.tokens)
        await self._ticks.write_due()
        await self._burials.run_due(epoch, self._catch_up)
        if self._leadership.epoch == epoch:
            await self._digests.let_go()

    async def _let_go(self, released: Released, epoch: int, now_ms: int) -> None:
        """Pages first, cursors after their ack. now_ms: when the look began; whoever stands still since then for a day
        lets go what fan-out asks the rows about.
        """
        if not (released.pages or released.at_end) or self._leadership.epoch != epoch:
            return
        self._pass("before_release")
        outgoing = [record for one, page in released.pages for record in self._page_records(one, page, now_ms)]
        gone: list[Gone] = [(c.campaign, c.request, page) for c, page in released.pages]
        gone += [(c.campaign, c.request, None) for c in released.at_end]
        try:
            await self._publisher.publish(outgoing)
            self._pass("after_release")
            for candidate, _ in released.pages:
                metrics.PAGES_RELEASED.labels(candidate.request.tenant).inc()
            await self._move_cursors(gone, epoch)
        except Transient:
            for candidate, page in released.pages:
                self._before.tried(candidate.campaign, page.page.page)  # nobody knows what the log has of it
            raise

    async def _end_pages(self, campaign: Campaign, request: CampaignRequested, end: End, epoch: int) -> None:
        """The recipients of pages that will never go out get their outcome here, so that the counts close."""
        ended: list[Gone] = []
        outgoing: list[Outgoing] = []
        for _ in range(min(self._options.ends_a_look, request.pages - campaign.next_page)):
            page = await self._ahead.take(campaign, request)
            ended.append((campaign, request, page))
            if page is None:
                break
            users = [recipient.user_id for recipient in page.page.recipients]
            outgoing += self._ends(request, page.page.page, [*enumerate(users)][page.first :], end)
        await self._publisher.publish(outgoing)
        self._pass("after_ends")
        await self._move_cursors(ended, epoch)

    async def _end_missing(self, campaign: Campaign, request: CampaignRequested, end: End, epoch: int) -> None:
        """The recipients of pages that the log does not hold get theirs; who they were nobody knows."""
        cursor = campaign.cursor
        assert cursor is not None, "what is missing is noted in the cursor"
        shares = cursors.shares(cursor, request, self._options.ends_a_look)
        await self._publisher.publish(
            [ended for page, count in shares for ended in self._ends(request, page, enumerate([""] * count), end)]
        )
        moved = replace(cursors.ended(cursor, shares), epoch=epoch, at_ms=self._clock.now_ms())
        await self._publisher.publish([self._cursor_record(moved)])
        self._campaigns.moved(campaign, moved)

    def _ends(
        self, request: CampaignRequested, page: int, users: Iterable[tuple[int, str]], end: End
    ) -> Iterator[Outgoing]:
        return page_records.ended(self._topics, request, page, users, end, self._clock.now_ms())

    async def _move_cursors(self, gone: Sequence[Gone], epoch: int) -> None:
        """Behind the last of these pages of each campaign."""
        moved: dict[str, CampaignCursor] = {}
        for campaign, request, page in gone:
            moved[campaign.key] = cursors.moved(moved.get(campaign.key, campaign.cursor), request, page)
        now_ms = self._clock.now_ms()
        for campaign, request, _ in gone:
            cursor = moved[campaign.key]
            since_ms = self._before.since_ms(campaign, request, cursor.next_page, now_ms)
            moved[campaign.key] = replace(cursor, epoch=epoch, at_ms=since_ms)
        await self._publisher.publish([self._cursor_record(cursor) for cursor in moved.values()])
        for campaign, _, _ in gone:
            self._campaigns.moved(campaign, moved[campaign.key])

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

    def _page_records(self, candidate: Candidate, page: PageAt, now_ms: int) -> list[Outgoing]:
        number, hop = page.page.page, 0
        at_ms = self._before.released_at_ms(candidate.campaign, candidate.request, number, now_ms)
        return page_records.released(
            self._topics,
            candidate,
            number,
            page.offset,
            hop,
            page.slots,
            page.recipients,
            page.headers,
            at_ms,
            now_ms,
        )

    def _cursor_record(self, cursor: CampaignCursor) -> Outgoing:
        key = keys.campaign_key(cursor.tenant, cursor.campaign_id)
        return Outgoing(self._topics.cursor, key.encode(), codec.encode(cursor))

    def _state_record(self, state: CampaignState) -> Outgoing:
        key = keys.campaign_key(state.tenant, state.campaign_id)
        return Outgoing(self._topics.campaign_state, key.encode(), codec.encode(state))

    async def _catch_up(self) -> None:
        await _caught_up(self._views)

    def _pass(self, gap: str) -> None:
        if self._gap is not None:
            self._gap(gap)

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


async def _caught_up(views: Sequence[TopicView]) -> None:
    for view in views:
        await view.caught_up()


_STOPPED: dict[CampaignStatus, End] = {
    CampaignStatus.CANCELLED: (EventKind.CANCELLED, Reason.CAMPAIGN_CANCELLED),
    CampaignStatus.EXPIRED: (EventKind.EXPIRED, Reason.EXPIRED),
}
_UNSENDABLE: dict[Reason, End] = {
    Reason.UNKNOWN_TEMPLATE: (EventKind.FAILED, Reason.UNKNOWN_TEMPLATE),
    Reason.NO_PROVIDER: (EventKind.SUPPRESSED, Reason.NO_PROVIDER),
}


def _end_of(campaign: Campaign, request: CampaignRequested, found: Candidate | Reason, now_ms: int) -> End | None:
    """What the recipients of pages not let go yet end as; None while these may still go out.

    A template or a provider that is not there may come until the campaign's turn does.
    """
    stopped = life.stop_status(campaign, request, now_ms)
    if stopped is not None:
        return _STOPPED[stopped]
    if isinstance(found, Candidate) or campaign.is_paused or now_ms < request.send_at_ms:
        return None
    return _UNSENDABLE[found]
