"""Which pages go out now, and how many bulk singles: one look at the lanes, then turn by turn until they are full.

Every flow (a campaign, or the bulk singles of a tenant) goes when it is its turn in all lanes that it fills and
these have room; for as long as it waits nobody overtakes it there. Pieces are small beside a lane's window, so that
turns are finely mixed and a slow lane is not flooded by one page. Fallback lanes further down only must not be
overfull; one whose provider is down holds up nobody who has another. Writes nothing: `streams/dispatch.py` does,
and moves the cursors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from schemas import keys, metrics
from schemas.clock import Clock
from schemas.messages import CampaignRequested, Channel, Priority
from schemas.policies import Policies
from schemas.reasons import Reason
from schemas.topics import Topics
from streams import lanes
from streams.backlog import Backlog, OnTheirWay
from streams.campaigns import Campaign
from streams.fairness import Flow, Turns
from streams.grants import Grants, Wish
from streams.held_flows import HeldDeliveries, HeldParts, LetGo
from streams.holds import Flow as HeldFlow
from streams.holds import parts_of
from streams.letting_go import LettingGo
from streams.pace import Allowance
from streams.page_reader import PageAt, ReadAhead

ProviderRate = Callable[[Channel], Awaitable[float]]
"""Sends per second of a channel's usable providers; 0 while there is none. For inapp a nominal rate."""
PAGES_A_LOOK = 256
BYTES_A_LOOK = 8_000_000
LOOK_S = 1.0
"""So long a look may take: what it chose waits for its end. A hundred campaigns that begin at once are read longer."""
GRANTS = "grants "
"""Names the flow of a tenant's bulk singles; a campaign's key never holds a space."""
HELD = "held "
"""Names a flow of deliveries that were in hold."""

Wishes = Mapping[tuple[str, str], Wish]
"""(tenant, lane) -> what bulk singles want of it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A campaign and the lanes it may use."""

    campaign: Campaign
    request: CampaignRequested
    use: lanes.Use


@dataclass(slots=True)
class Released:
    """What one look let go: pages in order, and tokens per (tenant, lane). at_end: the log holds no more of them.
    held: what comes out of hold.
    """

    pages: list[tuple[Candidate, PageAt]] = field(default_factory=list)
    at_end: list[Candidate] = field(default_factory=list)
    held: LetGo = field(default_factory=LetGo)
    tokens: dict[tuple[str, str], int] = field(default_factory=dict)
    size: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.pages) + len(self.held.pieces) >= PAGES_A_LOOK or self.size >= BYTES_A_LOOK


class Releases:
    """Decides what goes next. tenant_weights: 1 for a tenant not named. window: how full bulk lanes are kept.

    served: the channels that have a provider.
    """

    def __init__(
        self,
        policies: Policies,
        ahead: ReadAhead,
        backlog: Backlog,
        grants: Grants,
        provider_rate: ProviderRate,
        topics: Topics,
        tenant_weights: Mapping[str, float],
        clock: Clock,
        letting_go: LettingGo,
        window: lanes.Window = lanes.DEFAULT,
        served: Collection[Channel] = frozenset(Channel),
    ) -> None:
        self._policies = policies
        self._window = window
        self._ahead = ahead
        self._backlog = backlog
        self._grants = grants
        self._provider_rate = provider_rate
        self._topics = topics
        self._clock = clock
        self._letting_go = letting_go
        self._served = served
        self._on_their_way = OnTheirWay()
        self._turns = Turns(tenant_weights)
        self._paces: dict[str, Allowance] = {}
        self._bulk_lanes = {topics.lane(channel, Priority.BULK) for channel in Channel}
        self._channels = {topics.lane(channel, priority): channel for channel in Channel for priority in Priority}

    def candidate(self, campaign: Campaign, request: CampaignRequested) -> Candidate | Reason:
        """The campaign with its lanes, or why none of it can be sent: UNKNOWN_TEMPLATE, NO_PROVIDER."""
        policy = self._policies.get(request.template)
        if policy is None:
            return Reason.UNKNOWN_TEMPLATE
        use = lanes.use(request, policy, self._topics, self._served)
        return Candidate(campaign, request, use) if use.lanes else Reason.NO_PROVIDER

    async def has_provider(self, candidate: Candidate) -> bool:
        """Whether its pages could go out now: each channel it is sent on is usable, or any that it falls back to.

        Raises Transient (StoreDown when Redis does not answer).
        """
        use = candidate.use
        rates = {channel: await self._provider_rate(channel) for channel in use.lanes.values()}
        sent = [rates[channel] > 0 for channel in use.sent.values()]
        return all(sent) if sent else any(rate > 0 for rate in rates.values())

    def start_over(self) -> None:
        """A new leader knows what the log says, and nothing of what it did when it led before."""
        self._ahead.start_over()
        self._on_their_way.start_over()

    async def next(self, running: Sequence[Candidate], held: Mapping[HeldFlow, int]) -> Released:
        """What goes now. running: every campaign whose pages may go out or be on their way. held: flows of deliveries
        in hold, and until when what is due of them may go.

        Raises Transient (StoreDown when Redis does not answer).
        """
        now_ms, holds = self._clock.now_ms(), self._letting_go.holds
        fresh = {candidate.campaign.key for candidate in running if self._may_go(candidate, now_ms)}
        waiting = [c for c in running if c.campaign.key in fresh or self._has_parts_due(c.campaign, now_ms)]
        held = {flow: until_ms for flow, until_ms in held.items() if holds.has_due(flow, until_ms)}
        self._ahead.keep_only(fresh)
        self._forget_paces(running)
        flows = [(tenant, lane) for tenant in self._topics.tenants for lane in self._bulk_lanes]
        wishes = {flow: wish for flow, wish in (await self._grants.wishes(flows)).items() if wish.wanted}
        channels = {lane: channel for candidate in waiting for lane, channel in candidate.use.lanes.items()}
        channels |= {
            lane: self._channels[lane] for lane in [*(lane for _, lane in wishes), *(flow.lane for flow in held)]
        }
        released = Released()
        if channels:
            rates = await self._rates(running, channels)
            found = await self._look(channels, rates, running, wishes)
            sources = {
                **self._campaigns(waiting, fresh, found, rates, released.held),
                **self._singles(wishes, found),
                **self._held(held, found, released.held),
            }
            for name, share in self._turns.shares({name: source.flow for name, source in sources.items()}).items():
                sources[name].share(self._window, share)
            self._turns.keep_only({*(candidate.campaign.key for candidate in running), *sources})
            await self._fill(sources, released)
        return released

    def _forget_paces(self, running: Sequence[Candidate]) -> None:
        """Those of campaigns that have ended; lanes keep theirs."""
        kept = {candidate.campaign.key for candidate in running} | self._channels.keys()
        self._paces = {name: pace for name, pace in self._paces.items() if name in kept}

    def _may_go(self, candidate: Candidate, now_ms: int) -> bool:
        campaign, request = candidate.campaign, candidate.request
        is_due = campaign.next_page < request.pages and now_ms >= request.send_at_ms
        return is_due and not campaign.is_paused

    def _has_parts_due(self, campaign: Campaign, now_ms: int) -> bool:
        return not campaign.is_paused and self._letting_go.holds.has_due(parts_of(campaign.key), now_ms)

    async def _rates(self, running: Sequence[Candidate], named: Mapping[str, Channel]) -> dict[Channel, float]:
        """What usable providers allow, for each channel of these lanes and campaigns."""
        channels = {*named.values(), *(c for candidate in running for c in candidate.use.lanes.values())}
        return {channel: await self._provider_rate(channel) for channel in sorted(channels)}

    async def _look(
        self,
        channels: Mapping[str, Channel],
        rates: Mapping[Channel, float],
        running: Sequence[Candidate],
        wishes: Wishes,
    ) -> dict[str, lanes.Lane]:
        """These lanes (name -> its channel) as they are now."""
        lying = await self._backlog.lying({lane: self._rate_of(lane, rates[c]) for lane, c in channels.items()})
        coming = await self._coming(running, rates)
        for (_, lane), wish in wishes.items():
            coming[lane] = coming.get(lane, 0.0) + wish.tokens
        return {
            lane: self._lane(lane, rates[channel], lying[lane], coming.get(lane, 0.0))
            for lane, channel in channels.items()
        }

    def _rate_of(self, lane: str, provider_rate_per_s: float) -> float:
        priority = Priority.BULK if lane in self._bulk_lanes else Priority.TRANSACTIONAL
        return self._window.rate(provider_rate_per_s, priority)

    def _lane(self, name: str, rate_per_s: float, lying: float, coming: float) -> lanes.Lane:
        if name in self._bulk_lanes:
            lane = lanes.bulk_lane(name, rate_per_s, lying, coming, self._window)
        else:
            pace = self._paces.setdefault(name, Allowance(self._clock.steady_s()))
            lane = lanes.transactional_lane(name, rate_per_s, lying, coming, pace, self._window)
        metrics.LANE_BACKLOG.labels(name).set(lane.backlog)
        metrics.LANE_RATE.labels(name).set(lane.rate_per_s)
        return lane

    async def _coming(self, running: Sequence[Candidate], rates: Mapping[Channel, float]) -> dict[str, float]:
        """Deliveries expected of pages that fan-out has not brought to the lanes yet."""
        arrived = await self._backlog.arrived(self._on_their_way.marks())
        self._on_their_way.arrived(arrived, self._clock.steady_s())
        coming: dict[str, float] = {}
        for candidate in running:
            recipients = self._on_their_way.recipients(candidate.campaign)
            for lane in candidate.use.filled(rates):
                coming[lane] = coming.get(lane, 0.0) + recipients
        return coming

    def _campaigns(
        self,
        waiting: Sequence[Candidate],
        fresh: Collection[str],
        found: Mapping[str, lanes.Lane],
        rates: Mapping[Channel, float],
        let_go: LetGo,
    ) -> dict[str, _Source]:
        """The campaigns that have a lane to fill; the others have to wait. fresh: those with pages not let go yet."""
        sources: dict[str, _Source] = {}
        now_ms = self._clock.now_ms()
        for candidate in waiting:
            campaign, use = candidate.campaign, candidate.use
            fills = [found[lane] for lane in use.filled(rates)]
            beside = [lane for lane, channel in use.fallback.items() if found[lane] not in fills and rates[channel] > 0]
            if fills and not any(found[lane].is_overfull for lane in beside):
                pace = self._paces.setdefault(campaign.key, Allowance(self._clock.steady_s()))
                parts = HeldParts(campaign, self._letting_go, let_go, self._on_their_way, pace, now_ms)
                pages = _Pages(candidate, self._ahead, self._on_their_way, pace, is_over=campaign.key not in fresh)
                sources[campaign.key] = _Campaign(candidate, fills, parts, pages)
        return sources

    def _held(
        self, flows: Mapping[HeldFlow, int], found: Mapping[str, lanes.Lane], let_go: LetGo
    ) -> dict[str, _Source]:
        """Deliveries in hold. Where no provider is usable nobody takes turns, and some of them go all the same."""
        sources: dict[str, _Source] = {}
        for flow, until_ms in flows.items():
            lane = found[flow.lane]
            source = HeldDeliveries(flow, lane, self._letting_go.holds, let_go, until_ms)
            if lane.rate_per_s > 0:
                sources[f"{HELD}{flow.tenant} {flow.campaign} {flow.lane}"] = source
            else:
                source.go_without_turns(flow.lane not in self._bulk_lanes, self._clock.now_ms())
        return sources

    def _singles(self, wishes: Wishes, found: Mapping[str, lanes.Lane]) -> dict[str, _Source]:
        return {
            f"{GRANTS}{tenant} {lane}": _Singles(tenant, found[lane], wish.missing)
            for (tenant, lane), wish in wishes.items()
        }

    async def _fill(self, sources: Mapping[str, _Source], released: Released) -> None:
        """Turn by turn, until nothing fits any more.

        Whose turn it is while a lane is full holds its place there: nobody else fills that lane in this look, and
        in its other lanes room is kept.
        """
        now_s = self._clock.steady_s()
        full: set[str] = set()
        while not released.is_full and self._clock.steady_s() - now_s < LOOK_S:
            waiting = {
                name: source.flow
                for name, source in sources.items()
                if full.isdisjoint(source.flow.lanes) and source.size(now_s) > 0
            }
            name = self._turns.next(waiting)
            if name is None:
                return
            source, size = sources[name], sources[name].size(now_s)
            blocked = {lane.name for lane in source.fills if not lane.has_room(size, now_s)}
            full |= blocked
            if blocked:
                for lane in source.fills:
                    lane.reserve(size)
                continue
            taken = await source.take(size, released, now_s)
            self._turns.pay(name, source.flow, taken)
            for lane in source.fills:
                lane.add(taken)


class _Source(Protocol):
    """Somebody who lets something go, at one look. fills: the lanes that each piece fills."""

    @property
    def flow(self) -> Flow: ...

    @property
    def fills(self) -> Sequence[lanes.Lane]: ...

    def share(self, window: lanes.Window, share: float) -> None:
        """Keeps its pieces as small as the window wants them of one who gets this share of its lanes."""
        ...

    def size(self, now_s: float) -> int:
        """Of the next piece; 0 while there is none, or the source's own pace forbids it."""
        ...

    async def take(self, size: int, released: Released, now_s: float) -> int:
        """Lets a piece of about this size go; what really went. Raises Transient."""
        ...


class _Campaign:
    """One campaign: what was put off and is due now goes before its next page."""

    def __init__(self, candidate: Candidate, fills: Sequence[lanes.Lane], parts: HeldParts, pages: _Pages) -> None:
        self.fills = fills
        self.flow = Flow(candidate.request.tenant, candidate.campaign.weight, tuple([lane.name for lane in fills]))
        self._pace_per_s = candidate.campaign.pace_per_s
        self._parts = parts
        self._pages = pages

    def share(self, window: lanes.Window, share: float) -> None:
        most = window.piece([lane.rate_per_s for lane in self.fills], share, self._pace_per_s)
        self._parts.most = self._pages.most = most

    def size(self, now_s: float) -> int:
        return self._parts.size(now_s) or self._pages.size(now_s)

    async def take(self, _size: int, released: Released, now_s: float) -> int:
        return await (self._parts.take(now_s) if self._parts.size(now_s) else self._pages.take(released, now_s))


class _Pages:
    """The pages of one campaign that were not let go yet. pace: kept when the campaign has one of its own; is_over:
    there is none that may go. most: recipients of a piece.
    """

    most = 1

    def __init__(
        self,
        candidate: Candidate,
        ahead: ReadAhead,
        on_their_way: OnTheirWay,
        pace: Allowance,
        *,
        is_over: bool,
    ) -> None:
        self._candidate = candidate
        self._ahead = ahead
        self._on_their_way = on_their_way
        self._pace = pace
        self._is_over = is_over

    def size(self, now_s: float) -> int:
        campaign = self._candidate.campaign
        if self._is_over or (campaign.pace_per_s and self._pace.left(campaign.pace_per_s, now_s) <= 0):
            return 0
        return self._ahead.size(campaign, self._candidate.request, self.most)

    async def take(self, released: Released, now_s: float) -> int:
        candidate = self._candidate
        campaign, request = candidate.campaign, candidate.request
        page = await self._ahead.take(campaign, request, self.most)
        if page is None:
            self._is_over = True
            released.at_end.append(candidate)
            return 0
        self._is_over = page.ends_page and page.page.page + 1 >= request.pages
        released.pages.append((candidate, page))
        released.size += len(request.params) + sum([len(r.params) + len(r.user_id) for r in page.recipients])
        mark = keys.redis_fanned(request.tenant, request.campaign_id, page.page.page, 0, page.first)
        self._on_their_way.add(campaign, mark, page.size, now_s)
        self._pace.spend(page.size)
        return page.size


class _Singles:
    """The bulk singles of a tenant that want to go into a lane. missing: so many; most: of a piece."""

    most = 1

    def __init__(self, tenant: str, lane: lanes.Lane, missing: int) -> None:
        self.fills = (lane,)
        self.flow = Flow(tenant, 1, (lane.name,))
        self._missing = missing

    def share(self, window: lanes.Window, share: float) -> None:
        self.most = window.piece([self.fills[0].rate_per_s], share)

    def size(self, now_s: float) -> int:
        return min(self._missing, self.most)

    async def take(self, size: int, released: Released, now_s: float) -> int:
        (lane,) = self.fills
        self._missing -= size
        key = self.flow.tenant, lane.name
        released.tokens[key] = released.tokens.get(key, 0) + size
        return size
