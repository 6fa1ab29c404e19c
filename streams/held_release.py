"""The leader's work on what is held: it lets go what `streams/release.py` chose, and ends what cannot go any more.

Always in this order: what comes out, its acks, the tombstone. A crash in between lets the same thing go again, under
the same ids: plans and claims absorb it, and an end told twice is told once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from schemas.clock import Clock
from schemas.gaps import Gap
from schemas.messages import CampaignRequested
from schemas.records import Outgoing, Publisher
from schemas.stores import Drops
from schemas.topics import Topics
from streams import page_records
from streams.campaigns import Campaign, Campaigns, is_stopped
from streams.held_flows import LetGo
from streams.hold_orders import Obeying, Orders
from streams.holds import NEVER_MS, Flow
from streams.letting_go import LettingGo, Piece
from streams.page_records import LOST, End
from streams.release import Candidate

log = logging.getLogger(__name__)

ENDS_A_LOOK = 64
"""Parts of a campaign that are ended in one go."""


class HeldRelease:
    """Acts for the leader; `campaigns` says who is paused or stopped."""

    def __init__(
        self,
        campaigns: Campaigns,
        letting_go: LettingGo,
        drops: Drops,
        publisher: Publisher,
        topics: Topics,
        clock: Clock,
        gap: Gap | None = None,
    ) -> None:
        self.holds = letting_go.holds
        self.orders = Orders(topics)
        self._obeying = Obeying(self.orders, letting_go, drops, publisher, topics, clock)
        self._campaigns = campaigns
        self._letting_go = letting_go
        self._publisher = publisher
        self._topics = topics
        self._clock = clock
        self._gap = gap

    def begin(self, unfinished: Sequence[tuple[Campaign, CampaignRequested]]) -> None:
        """A look begins: what the last one did not let go comes up again, and campaigns know what is held of them."""
        self.holds.start_over()
        now_ms, deliveries = self._clock.now_ms(), self.holds.deliveries()
        for campaign, _ in unfinished:
            held = self.holds.recipients(campaign.key)
            if held != campaign.held:
                campaign.held, campaign.held_moved_ms = held, now_ms
            campaign.held_deliveries = deliveries[campaign.key]
        self.holds.tell(now_ms, self._waits)

    def flows(self, now_ms: int) -> dict[Flow, int]:
        """The flows of deliveries that may go, and until when what is due may."""
        found = {}
        for flow in self.holds.flows():
            campaign = self._campaigns.find(flow.campaign)
            if flow.lane and not self._waits(flow):
                # Whoever claims it ends it, if its campaign was stopped: then it need not wait until it is due.
                found[flow] = NEVER_MS if campaign is not None and is_stopped(campaign, now_ms) else now_ms
        return found

    async def let_go(self, chosen: LetGo, running: Mapping[str, Candidate]) -> None:
        """Publishes what was chosen, and tombstones of what went as a whole. running: by campaign. Raises Transient.

        What is left of a part that went in pieces stays; if this leader dies, all of it goes again.
        """
        now_ms = self._clock.now_ms()
        outgoing: list[Outgoing] = []
        for piece in chosen.pieces:
            outgoing += self._released(running[piece.part.flow.campaign], piece, now_ms)
        for piece in chosen.lost:
            request = running[piece.part.flow.campaign].request
            log.error("hold.audience_lost", extra={"campaign": piece.part.flow.campaign, "page": piece.part.page})
            outgoing += page_records.ended(self._topics, request, piece.part.page, piece.users(), LOST, now_ms)
        deliveries = await self._letting_go.deliveries(chosen.deliveries, now_ms)
        outgoing += [record for _, record in deliveries if record is not None]
        await self._publisher.publish(outgoing)
        if outgoing:
            self._pass("after_held_release")
        last = {piece.part.hold_id: piece for piece in [*chosen.pieces, *chosen.lost]}
        parts = [piece.part for piece in last.values() if not piece.rest]
        await self._letting_go.bury([*parts, *(thing for thing, _ in deliveries)], self._publisher)
        for piece in last.values():
            if piece.rest:
                self.holds.shrink(piece.part, piece.rest)

    async def end_parts(self, campaign: Campaign, request: CampaignRequested, end: End, until_ms: int) -> None:
        """The recipients of parts that are due by then get this outcome, some parts at a time. Raises Transient."""
        parts = self.holds.take_parts(campaign.key, until_ms, ENDS_A_LOOK)
        pieces = [await self._letting_go.piece(request, part) for part in parts]
        now_ms = self._clock.now_ms()
        outgoing: list[Outgoing] = []
        for piece in pieces:
            outgoing += page_records.ended(self._topics, request, piece.part.page, piece.users(), end, now_ms)
        await self._publisher.publish(outgoing)
        await self._letting_go.bury(parts, self._publisher)

    async def obey(self) -> None:
        """Does what operators ordered about single deliveries. Raises Transient."""
        await self._obeying.obey()

    async def drop_leftovers(self) -> None:
        """Parts of campaigns whose every recipient has an outcome tell nothing any more. Raises Transient."""
        for flow in self.holds.flows():
            campaign = self._campaigns.find(flow.campaign)
            if not flow.lane and campaign is not None and campaign.is_finished:
                await self._letting_go.bury(
                    self.holds.take_parts(flow.campaign, NEVER_MS, ENDS_A_LOOK), self._publisher
                )

    def _waits(self, flow: Flow) -> bool:
        campaign = self._campaigns.find(flow.campaign)
        if campaign is None or not campaign.is_paused:
            return False
        return not is_stopped(campaign, self._clock.now_ms())

    def _released(self, candidate: Candidate, piece: Piece, now_ms: int) -> list[Outgoing]:
        page, part = piece.page, piece.part
        assert page is not None, "a page that is lost is not let go"
        return page_records.released(
            self._topics,
            candidate,
            part.page,
            part.source_offset,
            part.hop,
            piece.slots,
            piece.recipients,
            page.headers,
            piece.released_at_ms(now_ms),
            now_ms,
        )

    def _pass(self, gap: str) -> None:
        if self._gap is not None:
            self._gap(gap)
