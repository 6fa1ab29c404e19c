"""A single request: who may be reached how, when, and one delivery into each lane, or into hold until its start.

`route requests` and `route bulk` are this handler, run by the engine with their own entry topics and groups.
Upstream of it: the API or whoever publishes events directly; downstream: the lanes, `hold` and `delivery.status`.
A bulk single spends its grant when it goes into a lane, and waits for it in `streams/singles_queue.py`: what is held
needs none, `dispatch` fires it within the lane's window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas import keys, metrics
from schemas.clock import Clock
from schemas.errors import Transient
from schemas.gaps import Gap
from schemas.messages import EventKind
from schemas.policies import Policies
from schemas.reasons import Reason
from schemas.records import Answer, AnswerTo, Defer, Done, Recall, Record
from schemas.topics import Topics
from schemas.trips import Epoch, Trips
from streams import row_waits, single_records, singles_queue
from streams.intake import Doors, Entry, Intake, known_at_ms
from streams.single_plans import Planned, Planner
from streams.single_records import Single
from streams.singles_queue import Flows, Place, SinglesQueue

CLAIMED_FOR_MS = 22 * 3_600_000
"""Claims live for 24 h: of what may have been sent longer ago they may know nothing any more, its row does."""


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """look_again_ms: a request for which no grant comes is looked at again after this. hold_above_ms: who is due later
    than this waits in hold. read_again_ms: pause of one whose row cannot be read now.
    """

    look_again_ms: int = 30_000
    hold_above_ms: int = 5_000
    read_again_ms: int = 1_000


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
        self._rows = doors.rows
        self._topics = topics
        self._ids = ids
        self._clock = clock
        self._queue = queue
        self._options = options or RouteOptions()
        self._intake = Intake(entries, policies, doors, topics)
        self._planner = Planner(doors, trips, epoch, topics, clock, self._options.hold_above_ms)

    async def handle(self, records: Sequence[Record], answer: AnswerTo) -> None:
        """Answers each record. Raises StoreDown when Redis cannot be trusted."""
        now_ms = self._clock.now_ms()
        singles = []
        for record in records:
            taken = self._intake.take_in(record, now_ms)
            if isinstance(taken, Single):
                singles.append(taken)
            else:
                answer(record, taken)
        planned = await self._planner.planned(singles, answer, now_ms) if singles else []
        if planned and self._gap is not None:
            self._gap("after_route_plan")
        waiting: Mapping[Place, Recall] = {}
        if self._queue is not None:
            waiting = await self._queue.admit(self._asking(planned, now_ms), map(singles_queue.place, records))
        await self._answer_all(planned, answer, waiting, now_ms)

    def _asking(self, planned: Sequence[Planned], now_ms: int) -> Mapping[Place, Flows]:
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
        self, planned: Sequence[Planned], answer: AnswerTo, waiting: Mapping[Place, Recall], now_ms: int
    ) -> None:
        """The old ones last: their rows may take a while to answer."""
        old: list[tuple[Planned, Done]] = []
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

    def _routed(self, planned: Planned, waiting: Mapping[Place, Recall], now_ms: int) -> Answer:
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

    def _may_be_forgotten(self, planned: Planned, now_ms: int) -> bool:
        """Whether it may have been sent so long ago that no claim says so: a record read again after a day."""
        known_ms = known_at_ms(planned.single.record, planned.single.event)
        return now_ms - max(known_ms, planned.start.due_ms) > CLAIMED_FOR_MS

    async def _unless_known(self, planned: Planned, given: Done) -> Done:
        """Of what would go out, only what its row still waits for. Raises Transient while nobody can read the row."""
        slot = await self._rows.slot(planned.single.event.tenant, planned.single.address)
        if slot is None:
            return given
        waiting = row_waits.untouched(slot)
        suffixes = single_records.sent_out(planned.plan)
        return Done(tuple(one for one, suffix in zip(given.publish, suffixes, strict=True) if suffix in waiting))

    def _flows(self, planned: Planned) -> Flows:
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
