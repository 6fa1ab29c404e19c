"""A single request: who may be reached how, and one delivery into each lane.

`route requests` and `route bulk` are this handler, run by the engine with their own entry topics and groups.
Upstream of it: the API or whoever publishes events directly; downstream: the lanes and `delivery.status`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas import codec, keys, metrics
from schemas.clock import Clock
from schemas.errors import Poison, Refused
from schemas.gaps import Gap
from schemas.messages import Channel, Delivery, EventKind, NotificationRequested, Priority, StatusEvent
from schemas.policies import Policies, TemplatePolicy
from schemas.reasons import ParkReason, Reason
from schemas.records import Answer, AnswerTo, Defer, Done, Outgoing, Record, RowEvent
from schemas.stores import Profile, Profiles
from schemas.topics import Topics
from schemas.trips import Epoch, Trip, Trips, trusted
from streams import grants, planning, plans

CheckEvent = Callable[[NotificationRequested, int], NotificationRequested]
"""The API's own rules: the event with its times filled in, given the time on its record. Raises Refused."""
Park = Callable[[Record, str, str, tuple[RowEvent, ...]], Done]
"""The answer that parks a record: (record, error class, text, what its row is told)."""
DUE = "tid-not-before"


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry topic: whose it is, its log epoch, and the lanes its requests are meant for."""

    tenant: str
    epoch: str
    priority: Priority


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """ask_again_ms: pause of a request for which no grant is left. wait_at_most_ms: longest single wait for its due
    time, after which it is looked at again.
    """

    ask_again_ms: int = 200
    wait_at_most_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class Doors:
    """What `deploy` hands over from other rooms. served: the channels that have a provider; others reach nobody."""

    check_event: CheckEvent
    park: Park
    profiles: Profiles
    served: Collection[Channel] = planning.ALL_CHANNELS


@dataclass(frozen=True, slots=True)
class _Intake:
    """A readable request on its way through."""

    record: Record
    event: NotificationRequested
    address: keys.Address
    policy: TemplatePolicy
    intent: str


class Route:
    """Handler of the entry topics. purse: only for `route bulk`, whose pace dispatch grants."""

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
        purse: grants.Purse | None = None,
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
        self._purse = purse
        self._options = options or RouteOptions()

    async def handle(self, records: Sequence[Record], answer: AnswerTo) -> None:
        """Answers each record. Raises StoreDown when Redis cannot be trusted."""
        now_ms = self._clock.now_ms()
        intakes = []
        for record in records:
            taken = self._take_in(record, now_ms)
            if isinstance(taken, _Intake):
                intakes.append(taken)
            else:
                answer(record, taken)
        if not intakes:
            return
        planned = await self._plans(intakes)
        if self._gap is not None:
            self._gap("after_route_plan")
        if self._purse is not None:
            await self._purse.fill(self._wanted(intakes, planned))
        for intake, (plan, owner) in zip(intakes, planned, strict=True):
            answer(intake.record, self._routed(intake, plan, owner, now_ms))

    def _take_in(self, record: Record, now_ms: int) -> _Intake | Answer:
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
        if event.expires_at_ms <= now_ms:
            return Done(events=(_end(event, address, EventKind.EXPIRED, Reason.EXPIRED, now_ms),))
        if event.send_at_ms > now_ms:
            return Defer(min(event.send_at_ms, now_ms + self._options.wait_at_most_ms))
        return _Intake(record, event, address, policy, keys.single_intent(event.tenant, event.event_id))

    def _refused(
        self, record: Record, event: NotificationRequested, address: keys.Address, error: Refused, now_ms: int
    ) -> Done:
        """Parked as it came, and failed for whoever asks."""
        reason = _REFUSALS.get(error.field, ParkReason.BAD_REQUEST)
        ended = _end(event, address, EventKind.FAILED, _FAILURES[reason], now_ms, str(error)[:200])
        return self._doors.park(record, reason, str(error), (ended,))

    def _moved(self, record: Record, event: NotificationRequested, address: keys.Address) -> Done:
        """Into the other entry topic, keeping its address."""
        topics, tenant = self._topics, event.tenant
        other = topics.requests_bulk if record.topic == topics.requests(tenant) else topics.requests
        moved = replace(event, origin_row=address.row, origin_slot=address.slot)
        key = keys.user_key(tenant, event.user_id).encode()
        return Done((Outgoing(other(tenant), key, codec.encode(moved), record.headers),))

    async def _plans(self, intakes: Sequence[_Intake]) -> list[tuple[planning.Plan, keys.Address]]:
        """The plan that holds for each, and the address it was made for."""

        def ask_profiles(trip: Trip) -> None:
            for intake in intakes:
                self._doors.profiles.ask(trip, intake.event.tenant, intake.event.user_id)

        profiles = await trusted(self._trips, self._epoch, ask_profiles)
        offered = [
            planning.pack(self._plan(intake, self._doors.profiles.read(reply)), intake.address)
            for intake, reply in zip(intakes, profiles, strict=True)
        ]

        def ask_plans(trip: Trip) -> None:
            for intake, packed in zip(intakes, offered, strict=True):
                plans.ask(trip, intake.event.tenant, intake.event.user_id, intake.intent, packed)

        held = await trusted(self._trips, self._epoch, ask_plans)
        return [planning.unpack(plans.read(reply, packed)) for reply, packed in zip(held, offered, strict=True)]

    def _plan(self, intake: _Intake, profile: Profile) -> planning.Plan:
        """By what is known of the person now."""
        return planning.plan(intake.policy, intake.event.channels, profile, intake.event.to, self._doors.served)

    def _wanted(
        self, intakes: Sequence[_Intake], planned: Sequence[tuple[planning.Plan, keys.Address]]
    ) -> Mapping[tuple[str, str], int]:
        """Tokens needed per (tenant, lane)."""
        return Counter(
            (intake.event.tenant, lane)
            for intake, (plan, owner) in zip(intakes, planned, strict=True)
            if owner == intake.address
            for lane in self._lanes(intake, plan)
        )

    def _routed(self, intake: _Intake, plan: planning.Plan, owner: keys.Address, now_ms: int) -> Answer:
        event, address = intake.event, intake.address
        if owner != address:
            other = self._ids.notification_id(event.tenant, owner)
            return Done(events=(_end(event, address, EventKind.SUPPRESSED, Reason.DUPLICATE_OF, now_ms, other),))
        lanes = self._lanes(intake, plan)
        if self._purse is not None and not self._purse.spend(event.tenant, lanes):
            return Defer(now_ms + self._options.ask_again_ms)
        metrics.ROUTED.labels(intake.policy.priority(event.priority)).inc()
        return Done(tuple(self._lane_records(intake, plan, now_ms)), tuple(_row_events(intake, plan, now_ms)))

    def _lanes(self, intake: _Intake, plan: planning.Plan) -> list[str]:
        priority = intake.policy.priority(intake.event.priority)
        return [self._topics.lane(part.channel, priority) for part in plan.parts if not part.reason]

    def _lane_records(self, intake: _Intake, plan: planning.Plan, now_ms: int) -> Iterator[Outgoing]:
        event = intake.event
        key = keys.user_key(event.tenant, event.user_id).encode()
        headers = tuple(header for header in intake.record.headers if header[0] != DUE)
        for index, part in enumerate(plan.parts):
            if not part.reason:
                delivery = _delivery(intake, plan, index, now_ms)
                metrics.PLANNED.labels(part.channel, delivery.priority).inc()
                yield Outgoing(self._topics.lane(part.channel, delivery.priority), key, codec.encode(delivery), headers)


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


def _end(
    event: NotificationRequested, address: keys.Address, kind: EventKind, reason: str, at_ms: int, detail: str = ""
) -> RowEvent:
    user_id, template = event.user_id[: keys.USER_ID_MAX], event.template[: keys.USER_ID_MAX]
    ended = planning.slot_end(address.slot, kind, reason, at_ms, user_id, template, event.accepted_at_ms, detail)
    return RowEvent(event.tenant, address.row, ended)


def _row_events(intake: _Intake, plan: planning.Plan, now_ms: int) -> Iterator[RowEvent]:
    event, address = intake.event, intake.address
    for one in _events(intake, plan, now_ms):
        yield RowEvent(event.tenant, address.row, one)


def _events(intake: _Intake, plan: planning.Plan, now_ms: int) -> Iterator[StatusEvent]:
    event, slot = intake.event, intake.address.slot
    who = (event.user_id, event.template, event.accepted_at_ms)
    if not plan.parts:
        yield planning.slot_end(slot, EventKind.SUPPRESSED, Reason.NO_CHANNEL, now_ms, *who)
        return
    yield planning.planned(plan.suffixes(), slot, now_ms, intake.record.offset, *who)
    yield from planning.unsent(plan, slot, now_ms)
    for part in plan.parts:
        if not part.reason:
            yield StatusEvent(slot, EventKind.QUEUED, now_ms, part.suffix)


def _delivery(intake: _Intake, plan: planning.Plan, index: int, now_ms: int) -> Delivery:
    event, part = intake.event, plan.parts[index]
    return Delivery(
        tenant=event.tenant,
        user_id=event.user_id,
        intent=intake.intent,
        row=intake.address.row,
        slot=intake.address.slot,
        index=index,
        channel=part.channel,
        device=part.device,
        priority=intake.policy.priority(event.priority),
        template=event.template,
        campaign_id="",
        params=event.params,
        campaign_params="{}",
        to=event.to,
        accepted_at_ms=event.accepted_at_ms,
        released_at_ms=now_ms,
        expires_at_ms=event.expires_at_ms,
        siblings=plan.siblings(index),
        fallback=plan.fallback,
        force=event.force,
    )
