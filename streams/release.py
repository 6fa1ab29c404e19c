"""Which pages go out now, and how many bulk singles: one look at the lanes, then turn by turn until they are full.

Every flow (a campaign, or the bulk singles of a tenant) takes its turns in the slowest of the lanes it fills, and
goes only when all of these have room. Fallback lanes further down only must not be overfull; one whose provider is
down holds up nobody who has another. Writes nothing: `streams/dispatch.py` does, and moves the cursors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from schemas import metrics
from schemas.clock import Clock
from schemas.messages import CampaignRequested, Channel, Priority
from schemas.policies import Policies
from schemas.reasons import Reason
from schemas.topics import Topics
from streams import fairness, lanes
from streams.backlog import Backlog, OnTheirWay
from streams.campaigns import Campaign
from streams.fairness import Claimant, RoundRobin
from streams.grants import Grants, Wish
from streams.pace import Allowance
from streams.page_reader import PageAt, ReadAhead

ProviderRate = Callable[[Channel], Awaitable[float]]
"""Sends per second of a channel's usable providers; 0 while there is none. For inapp a nominal rate."""
PAGES_A_LOOK = 256
BYTES_A_LOOK = 8_000_000
GRANT_PIECE = 50
GRANTS = "grants "
"""Names the flow of a tenant's bulk singles; a campaign's key never holds a space."""

Flows = Mapping[tuple[str, str], Wish]
"""(tenant, lane) -> what bulk singles want of it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A campaign and the lanes it may use."""

    campaign: Campaign
    request: CampaignRequested
    use: lanes.Use


@dataclass(frozen=True, slots=True)
class _Going:
    """A campaign at one look. fills: lanes that its pages fill; beside: fallback lanes that they may spill into."""

    candidate: Candidate
    fills: tuple[lanes.Lane, ...]
    beside: tuple[lanes.Lane, ...]

    @property
    def turns_in(self) -> str:
        return min(self.fills, key=lambda lane: (lane.rate_per_s, lane.name)).name

    def fits(self, recipients: int, now_s: float) -> bool:
        has_room = all(lane.has_room(recipients, now_s) for lane in self.fills)
        return has_room and not any(lane.is_overfull for lane in self.beside)


@dataclass(slots=True)
class Released:
    """What one look let go: pages in order, and tokens per (tenant, lane). at_end: the log holds no more of them."""

    pages: list[tuple[Candidate, PageAt]] = field(default_factory=list)
    at_end: list[Candidate] = field(default_factory=list)
    tokens: dict[tuple[str, str], int] = field(default_factory=dict)
    size: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.pages) >= PAGES_A_LOOK or self.size >= BYTES_A_LOOK


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
        self._weights = tenant_weights
        self._clock = clock
        self._served = served
        self._on_their_way = OnTheirWay()
        self._robins: dict[str, RoundRobin] = {}
        self._paces: dict[str, Allowance] = {}
        self._bulk_lanes = {topics.lane(channel, Priority.BULK): channel for channel in Channel}

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

    async def next(self, running: Sequence[Candidate]) -> Released:
        """What goes now. running: every campaign whose pages may go out or be on their way.

        Raises Transient (StoreDown when Redis does not answer).
        """
        now_ms = self._clock.now_ms()
        waiting = [candidate for candidate in running if self._may_go(candidate, now_ms)]
        self._ahead.keep_only({candidate.campaign.key for candidate in waiting})
        flows = [(tenant, lane) for tenant in self._topics.tenants for lane in self._bulk_lanes]
        wishes = {flow: wish for flow, wish in (await self._grants.wishes(flows)).items() if wish.wanted}
        channels = {lane: channel for candidate in waiting for lane, channel in candidate.use.lanes.items()}
        channels |= {lane: self._bulk_lanes[lane] for _, lane in wishes}
        released = Released()
        if channels:
            rates = await self._rates(running, channels)
            found = await self._look(channels, rates, running, wishes)
            going = [one for candidate in waiting if (one := _going(candidate, found, rates)).fills]
            for lane in found.values():
                await self._fill(lane, [one for one in going if one.turns_in == lane.name], wishes, released)
        return released

    def _may_go(self, candidate: Candidate, now_ms: int) -> bool:
        campaign, request = candidate.campaign, candidate.request
        is_due = campaign.next_page < request.pages and now_ms >= request.send_at_ms
        return is_due and not campaign.is_paused

    async def _rates(self, running: Sequence[Candidate], named: Mapping[str, Channel]) -> dict[Channel, float]:
        """What usable providers allow, for each channel of these lanes and campaigns."""
        channels = {*named.values(), *(c for candidate in running for c in candidate.use.lanes.values())}
        return {channel: await self._provider_rate(channel) for channel in sorted(channels)}

    async def _look(
        self,
        channels: Mapping[str, Channel],
        rates: Mapping[Channel, float],
        running: Sequence[Candidate],
        wishes: Flows,
    ) -> dict[str, lanes.Lane]:
        """These lanes (name -> its channel) as they are now."""
        lying = await self._backlog.lying({lane: rates[channel] for lane, channel in channels.items()})
        coming = await self._coming(running, rates)
        for (_, lane), wish in wishes.items():
            coming[lane] = coming.get(lane, 0.0) + wish.tokens
        return {
            lane: self._lane(lane, rates[channel], lying[lane], coming.get(lane, 0.0))
            for lane, channel in channels.items()
        }

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
        started = [candidate for candidate in running if candidate.campaign.next_page]
        fanned = await self._backlog.fanned_pages([(c.request.tenant, c.request.campaign_id) for c in started])
        coming: dict[str, float] = {}
        for candidate, pages in zip(started, fanned, strict=True):
            recipients = self._on_their_way.recipients(candidate.campaign, pages, self._clock.steady_s())
            for lane in candidate.use.filled(rates):
                coming[lane] = coming.get(lane, 0.0) + recipients
        return coming

    async def _fill(self, lane: lanes.Lane, going: Sequence[_Going], wishes: Flows, released: Released) -> None:
        """Turn by turn among those who take their turns in this lane, until nothing of theirs fits."""
        robin = self._robins.setdefault(lane.name, RoundRobin())
        campaigns = {one.candidate.campaign.key: one for one in going}
        wanted = {tenant: wish.missing for (tenant, wished), wish in wishes.items() if wished == lane.name}
        robin.keep_only({*campaigns, *(GRANTS + tenant for tenant in wanted)})
        while not released.is_full:
            claimants = [*self._claimants(campaigns), *self._grant_claimants(wanted, lane)]
            name = robin.take(fairness.spread(claimants, self._weights))
            if name is None:
                return
            if name.startswith(GRANTS):
                _take_tokens(name.removeprefix(GRANTS), wanted, lane, released)
            else:
                await self._take_page(campaigns, name, released)

    def _claimants(self, campaigns: Mapping[str, _Going]) -> Iterator[Claimant]:
        now_s = self._clock.steady_s()
        for key, going in campaigns.items():
            candidate = going.candidate
            size = self._ahead.size(candidate.campaign, candidate.request)
            if going.fits(size, now_s) and self._within_pace(candidate.campaign, now_s):
                yield Claimant(key, candidate.request.tenant, candidate.campaign.weight, size)

    def _grant_claimants(self, wanted: Mapping[str, int], lane: lanes.Lane) -> Iterator[Claimant]:
        now_s = self._clock.steady_s()
        for tenant, missing in wanted.items():
            tokens = min(missing, GRANT_PIECE)
            if tokens and lane.has_room(tokens, now_s):
                yield Claimant(GRANTS + tenant, tenant, 1, tokens)

    def _within_pace(self, campaign: Campaign, now_s: float) -> bool:
        if not campaign.pace_per_s:
            return True
        return self._paces.setdefault(campaign.key, Allowance(now_s)).left(campaign.pace_per_s, now_s) > 0

    async def _take_page(self, campaigns: dict[str, _Going], key: str, released: Released) -> None:
        going = campaigns[key]
        candidate = going.candidate
        page = await self._ahead.take(candidate.campaign, candidate.request, len(campaigns))
        if page is None or page.page.page + 1 >= candidate.request.pages:
            del campaigns[key]
        if page is None:
            released.at_end.append(candidate)
            return
        released.pages.append((candidate, page))
        released.size += sum([len(r.params) + len(r.user_id) for r in page.page.recipients])
        recipients = len(page.page.recipients)
        for lane in going.fills:
            lane.add(recipients)
        if candidate.campaign.pace_per_s:
            self._paces[key].spend(recipients)


def _going(candidate: Candidate, found: Mapping[str, lanes.Lane], rates: Mapping[Channel, float]) -> _Going:
    """Without any lane to fill it has to wait."""
    use = candidate.use
    fills = use.filled(rates)
    beside = [lane for lane, channel in use.fallback.items() if lane not in fills and rates[channel] > 0]
    return _Going(candidate, tuple([found[lane] for lane in fills]), tuple([found[lane] for lane in beside]))


def _take_tokens(tenant: str, wanted: dict[str, int], lane: lanes.Lane, released: Released) -> None:
    tokens = min(wanted[tenant], GRANT_PIECE)
    wanted[tenant] -= tokens
    lane.add(tokens)
    released.tokens[tenant, lane.name] = released.tokens.get((tenant, lane.name), 0) + tokens
