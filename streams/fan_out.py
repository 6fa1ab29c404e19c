"""A page becomes deliveries: one trip to Redis for profiles, one for plans, one write to the log.

`streams/agents.py` feeds it pages and acks them in order once `expand` has returned. A page expanded twice gives
the same records: ids follow from campaign, page and position, and the plan that was made first stays. Who is due later
by the local time of the campaign, or has quiet hours, waits in hold as a part of the page (`streams/page_waits.py`),
without any plan. Of a cancelled campaign, or an expired page, nobody gets a plan any more: a page that a deposed leader
let go after its successor had ended it ends the same once more, and what was said to have ended stays so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from retry_topics import hold
from schemas import keys, metrics
from schemas.clock import Clock
from schemas.gaps import Gap
from schemas.messages import CampaignOrder, Channel, EventKind, Recipient, ReleasedPage, StatusEvent
from schemas.policies import Policies, TemplatePolicy
from schemas.quiet_hours import QuietHours
from schemas.reasons import Reason
from schemas.records import Headers, Outgoing, Publisher
from schemas.stores import Profile, Profiles, SlotView, StatusReads
from schemas.topics import Topics
from schemas.trips import Epoch, Trip, Trips, trusted
from streams import fanned, lane_records, page_status, page_waits, planning, plans, row_waits

ASK_ROWS_AFTER_MS = 22 * 3_600_000
"""Plans are kept for 24 h: a page let go longer ago than this asks its row what was planned already."""
_OPEN = frozenset({"accepted", EventKind.SCHEDULED, EventKind.HELD})
"""What is shown of a slot about which nothing was decided yet."""


class _Place(NamedTuple):
    """One recipient of the page."""

    slot: int
    recipient: Recipient
    intent: str


class _Before(NamedTuple):
    """Slots of an old page. decided: the row knows a plan, or their end; known: Redis knows the plan too; left: Redis
    has forgotten it, and the row still waits for some of it, which alone may go.
    """

    decided: Collection[int] = ()
    known: Collection[int] = ()
    left: Mapping[int, SlotView] = MappingProxyType({})

    def may_be_kept(self, slot: int) -> bool:
        """Whether the plan that Redis has, if any, is the one that its row would know."""
        return slot not in self.decided or slot in self.known


_YOUNG = _Before()


class FanOut:
    """Expands pages. profiles is read by the same trips; rows only for pages let go long ago.

    order: (tenant, campaign) -> what its owner wants of it now. served: the channels that have a provider; the others
    reach nobody.
    """

    def __init__(
        self,
        policies: Policies,
        profiles: Profiles,
        trips: Trips,
        epoch: Epoch,
        publisher: Publisher,
        topics: Topics,
        clock: Clock,
        rows: StatusReads,
        quiet: QuietHours,
        order: Callable[[str, str], CampaignOrder],
        served: Collection[Channel] = planning.ALL_CHANNELS,
        gap: Gap | None = None,
    ) -> None:
        self._gap = gap
        self._quiet = quiet
        self._order = order
        self._policies = policies
        self._rows = rows
        self._served = served
        self._profiles = profiles
        self._trips = trips
        self._epoch = epoch
        self._publisher = publisher
        self._topics = topics
        self._clock = clock

    async def expand(self, page: ReleasedPage, headers: Headers = ()) -> None:
        """Returns once every delivery and status event of the page is in the log. headers go with each delivery.

        Raises Transient (StoreDown when Redis cannot be trusted): do not ack the page, expand it again.
        """
        started_s, now_ms = self._clock.steady_s(), self._clock.now_ms()
        policy = self._policies.get(page.template)
        if policy is None:
            outgoing = await self._stopped(page, None, EventKind.FAILED, Reason.UNKNOWN_TEMPLATE, now_ms, headers)
        elif page.expires_at_ms <= now_ms:
            outgoing = await self._stopped(page, policy, EventKind.EXPIRED, Reason.EXPIRED, now_ms, headers)
        elif self._order(page.tenant, page.campaign_id) is CampaignOrder.CANCELLED:
            stop = EventKind.CANCELLED, Reason.CAMPAIGN_CANCELLED
            outgoing = await self._stopped(page, policy, *stop, now_ms, headers)
        else:
            page, before = await self._still_due(page, now_ms)
            outgoing = await self._planned(page, before, policy, now_ms, headers)
        await self._publisher.publish(outgoing)
        if self._gap is not None:
            self._gap("after_fan_out")
        metrics.PAGES_FANNED_OUT.inc()
        metrics.PAGE_SECONDS.observe(self._clock.steady_s() - started_s)

    async def _still_due(self, page: ReleasedPage, now_ms: int) -> tuple[ReleasedPage, _Before]:
        """The page without the slots that had a plan which Redis has forgotten, and wait for none of it any more.

        Who is left goes as if let go now: nothing planned is nothing called, and a sender parks what is old. A plan
        that is known may be of a moment ago, and the lanes not have it yet; if they do, its claim is known as well.
        Nor need the lanes have what a row still waits for (`streams/row_waits.py`).
        """
        before = await self._before(page, now_ms)
        if before is _YOUNG:
            return page, before
        slots = tuple(slot for slot in _due(page) if before.may_be_kept(slot) or slot in before.left)
        if not slots:
            return replace(page, slots=(), recipients=()), before
        return replace(page, slots=slots, released_at_ms=now_ms), before

    async def _before(self, page: ReleasedPage, now_ms: int) -> _Before:
        """What the row knows of a page let go so long ago that Redis may have forgotten it."""
        if now_ms - page.released_at_ms < ASK_ROWS_AFTER_MS:
            return _YOUNG
        row = await self._rows.row(page.tenant, _row(page))
        decided = {slot: view for slot, view in enumerate(row) if view is not None and _is_decided(view)}
        known = await self._known(page, decided.keys() & set(_due(page)))
        left = {slot: view for slot, view in decided.items() if slot not in known and row_waits.untouched(view)}
        return _Before(decided.keys(), known, left)

    async def _known(self, page: ReleasedPage, slots: Collection[int]) -> Collection[int]:
        """Those of these slots whose plan Redis has. A user named twice may have that of another place there."""
        places = [place for place in _places(page)[0] if place.slot in slots]
        found = await self._with_plans(page, places)
        return {
            place.slot
            for place, plan in found
            if plan is not None and planning.unpack(plan)[1] == keys.Address(_row(page), place.slot)
        }

    async def _stopped(
        self,
        page: ReleasedPage,
        policy: TemplatePolicy | None,
        kind: EventKind,
        reason: Reason,
        now_ms: int,
        headers: Headers,
    ) -> list[Outgoing]:
        """Who has a plan already keeps it, since the lanes may have a part of it; nobody else gets one.

        Where Redis has forgotten the plan, what the row still waits for ends by name.
        """
        before = await self._before(page, now_ms)
        kept = []
        if policy is not None:
            places = [place for place in _places(page)[0] if before.may_be_kept(place.slot)]
            kept = [place for place, plan in await self._with_plans(page, places) if plan is not None]
        ended = sorted({*_due(page)}.difference(before.decided, [place.slot for place in kept]))
        outgoing = self._ended(page, ended, kind, reason, now_ms)
        lost = [slot for slot in _due(page) if slot in before.left]
        named = [(slot, name) for slot in lost for name in sorted(row_waits.untouched(before.left[slot]))]
        outgoing += self._status(page, [StatusEvent(slot, kind, now_ms, name, reason=reason) for slot, name in named])
        if policy is not None and kept:
            outgoing += await self._due_now(page, policy, kept, await self._profiles_of(page, kept), now_ms, headers)
        return outgoing

    async def _with_plans(self, page: ReleasedPage, places: Sequence[_Place]) -> list[tuple[_Place, bytes | None]]:
        """Each with the plan that Redis has for its user."""

        def ask(trip: Trip) -> None:
            for place in places:
                plans.ask_known(trip, page.tenant, place.recipient.user_id, place.intent)

        return list(zip(places, await trusted(self._trips, self._epoch, ask), strict=True)) if places else []

    async def _planned(
        self, page: ReleasedPage, before: _Before, policy: TemplatePolicy, now_ms: int, headers: Headers
    ) -> list[Outgoing]:
        """Who had a plan before waits for no start or morning any more."""
        places: Sequence[_Place]
        profiles: Sequence[Profile]
        places, repeated = _places(page)
        profiles = await self._profiles_of(page, places)
        lost = [(place, profile) for place, profile in zip(places, profiles, strict=True) if place.slot in before.left]
        again = self._again(page, policy, lost, before.left, now_ms, headers)
        places, profiles = _without(before.left, places, profiles)
        zones = [(slot, zone) for slot, zone in _zones(places, profiles) if slot not in before.known]
        later = page_waits.later(page, zones, self._quiet.of(page.tenant, policy), now_ms)
        places, profiles = _without(later.slots(), places, profiles)
        due = await self._due_now(page, policy, places, profiles, now_ms, headers)
        events = [_slot_end(page, slot, Reason.DUPLICATE_RECIPIENT, now_ms) for slot in repeated]
        events += page_waits.told(page, later, now_ms)
        for wait in later.waits:
            metrics.PUT_INTO_HOLD.labels(self._topics.pages, wait.reason).inc()
        holds = [hold.page_record(self._topics, held, headers) for held in page_waits.parts(page, later.waits, now_ms)]
        return [*due, *again, *self._status(page, events), *holds]

    def _again(
        self,
        page: ReleasedPage,
        policy: TemplatePolicy,
        lost: Sequence[tuple[_Place, Profile]],
        rows: Mapping[int, SlotView],
        now_ms: int,
        headers: Headers,
    ) -> list[Outgoing]:
        """What the row still waits for of these, whoever they are by now. Their plans it has: it is told none, and
        Redis keeps none, so that the row stays what says who may go.
        """
        lanes, events = lane_records.LaneRecords(page, _row(page), self._topics, headers), []
        for place, profile in lost:
            plan = planning.plan(policy, page.channels, profile, place.recipient.to, self._served)
            if begun := row_waits.begun(plan, rows[place.slot]):
                further = planning.plan(policy, begun, profile, place.recipient.to, self._served)
                left = plan.fallback[plan.fallback.index(begun[-1]) + 1 :]
                plan = planning.Plan(plan.parts + further.parts, left)
            plan, unreached = row_waits.left_of(plan, rows[place.slot])
            lanes.add(place.slot, place.recipient, place.intent, plan)
            events += [
                StatusEvent(place.slot, EventKind.SUPPRESSED, now_ms, name, reason=reason)
                for name, reason in unreached.items()
            ]
        return [*lanes.finished(), *self._status(page, events)]

    async def _due_now(
        self,
        page: ReleasedPage,
        policy: TemplatePolicy,
        places: Sequence[_Place],
        profiles: Sequence[Profile],
        now_ms: int,
        headers: Headers,
    ) -> list[Outgoing]:
        """The deliveries of these, and what their row is told."""
        held = await self._held(page, places, self._offers(page, policy, places, profiles))
        if self._gap is not None:
            self._gap("after_page_plan")
        row = _row(page)
        lanes, plans_ = lane_records.LaneRecords(page, row, self._topics, headers), page_status.Plans(page, row, now_ms)
        events = []
        for place, plan in zip(places, held, strict=True):
            if plan is None:
                events.append(_slot_end(page, place.slot, Reason.DUPLICATE_RECIPIENT, now_ms))
            elif not plan.parts:
                events.append(_slot_end(page, place.slot, Reason.NO_CHANNEL, now_ms))
            else:
                plans_.add(place.slot, plan.suffixes(), place.recipient.user_id)
                events += planning.unsent(plan, place.slot, now_ms)
                lanes.add(place.slot, place.recipient, place.intent, plan)
        return [*lanes.finished(), *plans_.finished(self._topics.status), *self._status(page, events)]

    async def _profiles_of(self, page: ReleasedPage, places: Sequence[_Place]) -> list[Profile]:
        def ask(trip: Trip) -> None:
            for place in places:
                self._profiles.ask(trip, page.tenant, place.recipient.user_id)

        return [self._profiles.read(reply) for reply in await trusted(self._trips, self._epoch, ask)]

    def _offers(
        self, page: ReleasedPage, policy: TemplatePolicy, places: Sequence[_Place], profiles: Sequence[Profile]
    ) -> list[tuple[planning.Plan, bytes]]:
        """A plan for each, by what is known of the person now; also packed."""
        row, offers = _row(page), []
        for place, profile in zip(places, profiles, strict=True):
            plan = planning.plan(policy, page.channels, profile, place.recipient.to, self._served)
            offers.append((plan, planning.pack(plan, keys.Address(row, place.slot))))
        return offers

    async def _held(
        self, page: ReleasedPage, places: Sequence[_Place], offers: Sequence[tuple[planning.Plan, bytes]]
    ) -> list[planning.Plan | None]:
        """The plan that holds for each; None when it was made for another place of the campaign.

        Dispatch learns in the same trip that the page reaches the lanes.
        """

        def ask(trip: Trip) -> None:
            for place, (_, packed) in zip(places, offers, strict=True):
                plans.ask(trip, page.tenant, place.recipient.user_id, place.intent, packed)
            fanned.ask_mark(trip, page)

        replies = await trusted(self._trips, self._epoch, ask)
        return [
            plan if reply is None or reply == packed else _earlier(page, place, reply)
            for place, (plan, packed), reply in zip(places, offers, replies, strict=False)
        ]

    def _ended(
        self, page: ReleasedPage, slots: Sequence[int], kind: EventKind, reason: str, now_ms: int
    ) -> list[Outgoing]:
        users = [(slot, page.recipients[slot].user_id) for slot in slots]
        ends = page_status.ends(users, kind, reason, page.template, page.accepted_at_ms, now_ms)
        return list(self._status(page, ends))

    def _status(self, page: ReleasedPage, events: Sequence[StatusEvent]) -> Iterator[Outgoing]:
        return page_status.records(self._topics.status, page.tenant, page.campaign_id, page.page, events)


def _row(page: ReleasedPage) -> str:
    return keys.recipient_address(page.campaign_id, page.page, 0).row


def _is_decided(view: SlotView) -> bool:
    return bool(view.deliveries) or view.status not in _OPEN


def _due(page: ReleasedPage) -> Sequence[int]:
    return page.slots or range(len(page.recipients))


def _places(page: ReleasedPage) -> tuple[list[_Place], list[int]]:
    """The recipients that were let go, and the positions whose user has an earlier one in the same page."""
    first: dict[str, int] = {}
    for position, recipient in enumerate(page.recipients):
        first.setdefault(recipient.user_id, position)
    intent = keys.recipient_intent(page.tenant, page.campaign_id, "")
    places, repeated = [], []
    for slot in _due(page):
        recipient = page.recipients[slot]
        if first[recipient.user_id] == slot:
            places.append(_Place(slot, recipient, intent + keys.encoded(recipient.user_id)))
        else:
            repeated.append(slot)
    return places, repeated


def _zones(places: Sequence[_Place], profiles: Sequence[Profile]) -> Iterator[tuple[int, str]]:
    """Each one's own zone, "" where nobody said any."""
    for place, profile in zip(places, profiles, strict=True):
        to = place.recipient.to
        yield place.slot, (to.time_zone if to is not None else "") or profile.time_zone


def _without(
    slots: Collection[int], places: Sequence[_Place], profiles: Sequence[Profile]
) -> tuple[Sequence[_Place], Sequence[Profile]]:
    if not slots:
        return places, profiles
    kept = [(place, profile) for place, profile in zip(places, profiles, strict=True) if place.slot not in slots]
    return [place for place, _ in kept], [profile for _, profile in kept]


def _earlier(page: ReleasedPage, place: _Place, raw: bytes) -> planning.Plan | None:
    plan, owner = planning.unpack(raw)
    return plan if owner == keys.Address(_row(page), place.slot) else None


def _slot_end(page: ReleasedPage, slot: int, reason: Reason, now_ms: int) -> StatusEvent:
    user_id = page.recipients[slot].user_id
    return planning.slot_end(slot, EventKind.SUPPRESSED, reason, now_ms, user_id, page.template, page.accepted_at_ms)
