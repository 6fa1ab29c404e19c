"""A single request: who may be reached how, when, and one delivery into each lane, or into hold until its start.

`route requests` and `route bulk` are this handler, run by the engine with their own entry topics and groups.
Upstream of it: the API or whoever publishes events directly; downstream: the lanes, `hold` and `delivery.status`.
A bulk single spends its grant when it goes into a lane, and waits for it in `streams/singles_queue.py`: what is held
needs none, `dispatch` fires it within the lane's window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from schemas import codec, keys, metrics
from schemas.clock import Clock
from schemas.errors import Poison, Refused, StoreDown, Transient
from schemas.gaps import Gap
from schemas.messages import Channel, EventKind, NotificationRequested, Priority, Snapshot
from schemas.policies import Policies
from schemas.reasons import ParkReason, Reason
from schemas.records import Answer, AnswerTo, Defer, Done, Outgoing, Recall, Record, RowEvent
from schemas.stores import Profile, Profiles, SlotView, StatusReads, Suppressions
from schemas.topics import Topics
from schemas.trips import Epoch, Trip, Trips, trusted
from streams import planning, plans, single_records, singles_queue, snapshots, starts
from streams.single_records import NOTHING, Single
from streams.singles_queue import Flows, Place, SinglesQueue
from streams.snapshots import Snapshots
from streams.starts import Start

CheckEvent = Callable[[NotificationRequested, int], NotificationRequested]
"""The API's own rules: the event with its times filled in, given the time on its record. Raises Refused."""
Park = Callable[[Record, str, str, tuple[RowEvent, ...]], Done]
"""The answer that parks a record: (record, error class, text, what its row is told)."""
CLAIMED_FOR_MS = 22 * 3_600_000
"""Claims live for 24 h: of what may have been sent longer ago they may know nothing any more, its row does."""
DEFAULT_ZONE = "UTC"


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry topic: whose it is, its log epoch, and the lanes its requests are meant for."""

    tenant: str
    epoch: str
    priority: Priority


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """look_again_ms: a request for which no grant comes is looked at again after this. hold_above_ms: who is due later
    than this waits in hold. read_again_ms: pause of one whose row cannot be read now.
    """

    look_again_ms: int = 30_000
    hold_above_ms: int = 5_000
    read_again_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class Doors:
    """What `deploy` hands over from other rooms. served: the channels that have a provider; others reach nobody.

    zones: tenant -> the time zone of users who have none (UTC for a tenant not named). rows: what became of requests
    older than claims. suppressions: read where a template is sent while Redis is away; None: none of them is.
    """

    check_event: CheckEvent
    park: Park
    profiles: Profiles
    rows: StatusReads
    served: Collection[Channel] = planning.ALL_CHANNELS
    zones: Mapping[str, str] = field(default_factory=dict)
    suppressions: Suppressions | None = None


_Addresses = tuple[tuple[str, str], ...]
"""(channel, address) each."""


class _Timed(NamedTuple):
    """A request whose person and start are known."""

    single: Single
    profile: Profile
    start: Start


class _Planned(NamedTuple):
    """A request with the plan that holds for it. owner: the address it was made for."""

    single: Single
    start: Start
    plan: planning.Plan
    owner: keys.Address
    is_cancelled: bool
    snapshots: Mapping[str, Snapshot] = NOTHING


class Route:
    """Handler of the entry topics. queue: only for `route bulk`, whose pace dispatch grants."""

    def __init__(
        self,
        entries: Mapping[str, Entry],
        policies: Policies,
        doors: Doors,
        trips: Trips,
        epoch: Epoch,
        topics: Topics,
        ids: keys.Ids,
        clock: Clock,
        queue: SinglesQueue | None = None,
        options: RouteOptions | None = None,
        gap: Gap | None = None,
    ) -> None:
        self._gap = gap
        self._entries = entries
        self._policies = policies
        self._doors = doors
        self._trips = trips
        self._epoch = epoch
        self._topics = topics
        self._ids = ids
        self._clock = clock
        self._queue = queue
        self._options = options or RouteOptions()
        self._snapshots = Snapshots(doors.served, clock)

    async def handle(self, records: Sequence[Record], answer: AnswerTo) -> None:
        """Answers each record. Raises StoreDown when Redis cannot be trusted."""
        now_ms = self._clock.now_ms()
        singles = []
        for record in records:
            taken = self._take_in(record, now_ms)
            if isinstance(taken, Single):
                singles.append(taken)
            else:
                answer(record, taken)
        planned = await self._planned(singles, answer, now_ms) if singles else []
        if planned and self._gap is not None:
            self._gap("after_route_plan")
        waiting: Mapping[Place, Recall] = {}
        if self._queue is not None:
            waiting = await self._queue.admit(self._asking(planned, now_ms), map(singles_queue.place, records))
        await self._answer_all(planned, answer, waiting, now_ms)

    async def _planned(self, singles: Sequence[Single], answer: AnswerTo, now_ms: int) -> list[_Planned]:
        """Those to be answered by their plans. Raises StoreDown once what can go without Redis has gone."""
        left, asked_s = singles, self._clock.steady_s()
        try:
            await self._fix_plans()
            timed = await self._timed(singles, answer, now_ms)
            left = [one.single for one in timed]
            planned = await self._plans(timed, answer, now_ms) if timed else []
            self._snapshots.answered()
            return planned
        except StoreDown:
            if self._snapshots.is_away(asked_s):
                self._route_alone(left, answer, now_ms)
            raise

    async def _fix_plans(self) -> None:
        """First of all: whoever reads the same request again must find the plan that went out. Raises StoreDown."""
        unfixed = self._snapshots.unfixed()
        if not unfixed:
            return

        def ask(trip: Trip) -> None:
            for one in unfixed:
                plans.ask(trip, one.tenant, one.user_id, one.intent, one.packed)

        await trusted(self._trips, self._epoch, ask)
        self._snapshots.fixed()

    def _route_alone(self, singles: Sequence[Single], answer: AnswerTo, now_ms: int) -> None:
        """The plans that are used are kept in Redis as soon as it is back."""
        for single in singles:
            if (alone := self._snapshots.alone(single, now_ms)) is not None:
                metrics.ROUTED.labels(single.policy.priority(single.event.priority)).inc()
                answer(
                    single.record,
                    single_records.in_lanes(self._topics, single, alone.plan, now_ms, alone.snapshots),
                )

    def _take_in(self, record: Record, now_ms: int) -> Single | Answer:
        """The request, or at once what becomes of it when there is nothing to plan."""
        entry = self._entries[record.topic]
        try:
            event = codec.decode(record.value or b"", NotificationRequested)
        except Poison as error:
            return self._doors.park(record, error.reason, error.text, ())
        event = replace(event, tenant=entry.tenant)
        address = _address(record, event, entry)
        try:
            event = self._doors.check_event(event, _known_at_ms(record, event))
        except Refused as error:
            return self._refused(record, event, address, error, now_ms)
        policy = self._policies[event.template]
        if policy.priority(event.priority) is not entry.priority:
            return self._moved(record, event, address)
        return Single(record, event, address, policy, keys.single_intent(event.tenant, event.event_id))

    def _refused(
        self, record: Record, event: NotificationRequested, address: keys.Address, error: Refused, now_ms: int
    ) -> Done:
        """Parked as it came, and failed for whoever asks."""
        reason = _REFUSALS.get(error.field, ParkReason.BAD_REQUEST)
        ended = single_records.end(event, address, EventKind.FAILED, _FAILURES[reason], now_ms, str(error)[:200])
        return self._doors.park(record, reason, str(error), (ended,))

    def _moved(self, record: Record, event: NotificationRequested, address: keys.Address) -> Done:
        """Into the other entry topic, keeping its address."""
        topics, tenant = self._topics, event.tenant
        other = topics.requests_bulk if record.topic == topics.requests(tenant) else topics.requests
        moved = replace(event, origin_row=address.row, origin_slot=address.slot)
        key = keys.user_key(tenant, event.user_id).encode()
        return Done((Outgoing(other(tenant), key, codec.encode(moved), record.headers),))

    async def _timed(self, singles: Sequence[Single], answer: AnswerTo, now_ms: int) -> list[_Timed]:
        """Those to be planned now; who is due in a moment waits for it here, who would be due too late never goes."""

        def ask_profiles(trip: Trip) -> None:
            for single in singles:
                self._doors.profiles.ask(trip, single.event.tenant, single.event.user_id)

        timed = []
        for single, reply in zip(singles, await trusted(self._trips, self._epoch, ask_profiles), strict=True):
            event, profile = single.event, self._doors.profiles.read(reply)
            start = starts.start(event, profile, self._doors.zones.get(event.tenant, DEFAULT_ZONE))
            if start.due_ms > now_ms and start.due_ms >= event.expires_at_ms:
                text = "its start comes after its expiry in the user's time zone"
                answer(single.record, self._expired(single, now_ms, text))
            elif now_ms < start.due_ms <= now_ms + self._options.hold_above_ms:
                answer(single.record, Defer(start.due_ms))
            else:
                timed.append(_Timed(single, profile, start))
        return timed

    async def _plans(self, timed: Sequence[_Timed], answer: AnswerTo, now_ms: int) -> list[_Planned]:
        """The plan that holds for each. The cancel flag is read after the plan is there: whoever sets it later finds
        the plan. Who has expired gets none any more, but keeps the one it had: that may have been sent.
        """
        own = [self._plan(one) for one in timed]
        offered = [planning.pack(plan, one.single.address) for one, plan in zip(timed, own, strict=True)]
        asked = [
            _addresses(one, plan) if self._doors.suppressions else () for one, plan in zip(timed, own, strict=True)
        ]

        def ask_plans(trip: Trip) -> None:
            for (single, _, start), packed in zip(timed, offered, strict=True):
                who = (single.event.tenant, single.event.user_id, single.intent)
                if single.has_expired(now_ms):
                    plans.ask_known(trip, *who)
                else:
                    plans.ask(trip, *who, packed, max(0, start.due_ms - now_ms))
                trip.execute_command("EXISTS", keys.redis_cancel(*who))
            self._ask_barred(trip, timed, asked)

        replies = await trusted(self._trips, self._epoch, ask_plans)
        barred = self._barred(asked, replies[2 * len(timed) :])
        planned = []
        pairs = zip(timed, offered, replies[: 2 * len(timed) : 2], replies[1 : 2 * len(timed) : 2], barred, strict=True)
        for one, packed, held, flag, causes in pairs:
            if held is None and one.single.has_expired(now_ms):
                answer(one.single.record, self._expired(one.single, now_ms))
            else:
                found = planning.unpack(plans.read(held, packed))
                planned.append(self._fixed(one, found, bool(flag), causes, now_ms))
        return planned

    def _expired(self, single: Single, now_ms: int, text: str = "") -> Done:
        """It was never planned."""
        end = single_records.end(single.event, single.address, EventKind.EXPIRED, Reason.EXPIRED, now_ms, text)
        return Done(events=(end,))

    def _fixed(
        self,
        timed: _Timed,
        found: tuple[planning.Plan, keys.Address],
        is_cancelled: bool,
        barred: snapshots.Barred,
        now_ms: int,
    ) -> _Planned:
        """With what it takes along, where its template may be sent without Redis."""
        plan, owner = found
        taken = NOTHING
        if self._doors.suppressions is not None and snapshots.may_go_alone(timed.single):
            taken = self._snapshots.take(timed.single, timed.profile, plan, barred, now_ms)
        return _Planned(timed.single, timed.start, plan, owner, is_cancelled, taken)

    def _ask_barred(self, trip: Trip, timed: Sequence[_Timed], asked: Sequence[_Addresses]) -> None:
        for (single, _, _), addresses in zip(timed, asked, strict=True):
            for channel, address in addresses:
                assert self._doors.suppressions is not None
                self._doors.suppressions.ask(trip, single.event.tenant, channel, address)

    def _barred(self, asked: Sequence[_Addresses], replies: Sequence[Any]) -> list[snapshots.Barred]:
        """Which of each one's addresses must not be written to."""
        left = iter(replies)
        return [
            frozenset(
                one for one in addresses if self._doors.suppressions and self._doors.suppressions.read(next(left))
            )
            for addresses in asked
        ]

    def _plan(self, timed: _Timed) -> planning.Plan:
        """By what is known of the person now."""
        single = timed.single
        return planning.plan(single.policy, single.event.channels, timed.profile, single.event.to, self._doors.served)

    def _asking(self, planned: Sequence[_Planned], now_ms: int) -> Mapping[Place, Flows]:
        """The tokens that each needs who would go into lanes now."""
        asking = {
            singles_queue.place(one.single.record): self._flows(one)
            for one in planned
            if one.owner == one.single.address
            and not (one.is_cancelled or one.single.has_expired(now_ms))
            and one.start.due_ms <= now_ms
        }
        return {where: flows for where, flows in asking.items() if flows}

    async def _answer_all(
        self, planned: Sequence[_Planned], answer: AnswerTo, waiting: Mapping[Place, Recall], now_ms: int
    ) -> None:
        """The old ones last: their rows may take a while to answer."""
        old: list[tuple[_Planned, Done]] = []
        for one in planned:
            given = self._routed(one, waiting, now_ms)
            if isinstance(given, Done) and given.publish and self._may_be_forgotten(one, now_ms):
                old.append((one, given))
            else:
                answer(one.single.record, given)
        for at, (one, given) in enumerate(old):
            try:
                answer(one.single.record, await self._unless_known(one, given))
            except Transient:
                for later, _ in old[at:]:
                    answer(later.single.record, Defer(now_ms + self._options.read_again_ms))
                return

    def _routed(self, planned: _Planned, waiting: Mapping[Place, Recall], now_ms: int) -> Answer:
        single, plan = planned.single, planned.plan
        event, address = single.event, single.address
        if planned.owner != address:
            other = self._ids.notification_id(event.tenant, planned.owner)
            return Done(
                events=(single_records.end(event, address, EventKind.SUPPRESSED, Reason.DUPLICATE_OF, now_ms, other),)
            )
        if planned.is_cancelled:
            return single_records.stopped(single, plan, EventKind.CANCELLED, Reason.CANCELLED_BY_CALLER, now_ms)
        if single.has_expired(now_ms):
            return single_records.stopped(single, plan, EventKind.EXPIRED, Reason.EXPIRED, now_ms)
        if waiting and (recall := waiting.get(singles_queue.place(single.record))) is not None:
            return Defer(min(event.expires_at_ms, now_ms + self._options.look_again_ms), recall)
        metrics.ROUTED.labels(single.policy.priority(event.priority)).inc()
        if planned.start.due_ms <= now_ms:
            return single_records.in_lanes(self._topics, single, plan, now_ms, planned.snapshots)
        return single_records.in_hold(self._topics, single, plan, planned.start, now_ms)

    def _may_be_forgotten(self, planned: _Planned, now_ms: int) -> bool:
        """Whether it may have been sent so long ago that no claim says so: a record read again after a day."""
        known_at_ms = _known_at_ms(planned.single.record, planned.single.event)
        return now_ms - max(known_at_ms, planned.start.due_ms) > CLAIMED_FOR_MS

    async def _unless_known(self, planned: _Planned, given: Done) -> Done:
        """Of what would go out, only what its row still waits for. Raises Transient while nobody can read the row."""
        slot = await self._doors.rows.slot(planned.single.event.tenant, planned.single.address)
        if slot is None:
            return given
        waiting = _untouched(slot)
        suffixes = single_records.sent_out(planned.plan)
        return Done(tuple(one for one, suffix in zip(given.publish, suffixes, strict=True) if suffix in waiting))

    def _flows(self, planned: _Planned) -> Flows:
        """(tenant, lane) of each delivery that goes out."""
        event, policy = planned.single.event, planned.single.policy
        priority = policy.priority(event.priority)
        return tuple(
            [
                (event.tenant, self._topics.lane(part.channel, priority))
                for part in planned.plan.parts
                if not part.reason
            ]
        )


def _addresses(timed: _Timed, plan: planning.Plan) -> _Addresses:
    """Whose suppressions a snapshot needs; none where nothing goes out without Redis."""
    if not snapshots.may_go_alone(timed.single):
        return ()
    return tuple(snapshots.addresses(timed.single, timed.profile, plan))


_REFUSALS = {"event_id": ParkReason.NO_KEY, "template": ParkReason.UNKNOWN_TEMPLATE}
"""Field of a refusal -> error class; all others are bad requests."""
_FAILURES = {
    ParkReason.NO_KEY: Reason.NO_KEY,
    ParkReason.UNKNOWN_TEMPLATE: Reason.UNKNOWN_TEMPLATE,
    ParkReason.BAD_REQUEST: Reason.BAD_REQUEST,
}


def _address(record: Record, event: NotificationRequested, entry: Entry) -> keys.Address:
    """Its place in the log, or where it was first accepted when it was moved or replayed."""
    if _has_origin(event):
        return keys.Address(event.origin_row, event.origin_slot)
    return keys.single_address(entry.epoch, record.partition, record.offset)


def _known_at_ms(record: Record, event: NotificationRequested) -> int:
    """When it was first in the log: by this time its own times are judged, however often it is read."""
    return event.accepted_at_ms if _has_origin(event) else record.timestamp_ms


def _has_origin(event: NotificationRequested) -> bool:
    """Whether it names the place where it was first accepted; what is no place counts as none."""
    return keys.is_single_row(event.origin_row) and 0 <= event.origin_slot < keys.SLOTS_PER_ROW


def _untouched(slot: SlotView) -> frozenset[str]:
    """The deliveries that no call was made for and that have not ended: one whose record was lost is among them."""
    return frozenset(
        keys.shown_suffix(one.channel, one.device) for one in slot.deliveries if not one.calls and one.state in _WAITS
    )


_WAITS = frozenset({"accepted", EventKind.SCHEDULED, EventKind.QUEUED})
