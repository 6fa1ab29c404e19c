"""The plan that holds for each request: the first that was made of it, kept in Redis for as long as it may be repeated.

Who is due in a moment waits for it; who would be due too late, or has expired without a plan, ends here. While Redis is
away, what may go without it is planned by `snapshots`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from schemas import keys, metrics
from schemas.clock import Clock
from schemas.errors import StoreDown
from schemas.messages import EventKind, Snapshot
from schemas.reasons import Reason
from schemas.records import AnswerTo, Defer, Done
from schemas.stores import Profile
from schemas.topics import Topics
from schemas.trips import Epoch, Trip, Trips, trusted
from streams import planning, plans, single_records, snapshots, starts
from streams.intake import Doors
from streams.single_records import NOTHING, Single
from streams.snapshots import Snapshots
from streams.starts import Start

DEFAULT_ZONE = "UTC"

_Addresses = tuple[tuple[str, str], ...]
"""(channel, address) each."""


class _Timed(NamedTuple):
    """A request whose person and start are known."""

    single: Single
    profile: Profile
    start: Start


class Planned(NamedTuple):
    """A request with the plan that holds for it. owner: the address it was made for."""

    single: Single
    start: Start
    plan: planning.Plan
    owner: keys.Address
    is_cancelled: bool
    snapshots: Mapping[str, Snapshot] = NOTHING


class Planner:
    """Of one process. hold_above_ms: who is due later than this is not waited for here."""

    def __init__(
        self, doors: Doors, trips: Trips, epoch: Epoch, topics: Topics, clock: Clock, hold_above_ms: int
    ) -> None:
        self._doors = doors
        self._trips = trips
        self._epoch = epoch
        self._topics = topics
        self._clock = clock
        self._hold_above_ms = hold_above_ms
        self._snapshots = Snapshots(doors.served, clock)

    async def planned(self, singles: Sequence[Single], answer: AnswerTo, now_ms: int) -> list[Planned]:
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
            elif now_ms < start.due_ms <= now_ms + self._hold_above_ms:
                answer(single.record, Defer(start.due_ms))
            else:
                timed.append(_Timed(single, profile, start))
        return timed

    async def _plans(self, timed: Sequence[_Timed], answer: AnswerTo, now_ms: int) -> list[Planned]:
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
    ) -> Planned:
        """With what it takes along, where its template may be sent without Redis."""
        plan, owner = found
        taken = NOTHING
        if self._doors.suppressions is not None and snapshots.may_go_alone(timed.single):
            taken = self._snapshots.take(timed.single, timed.profile, plan, barred, now_ms)
        return Planned(timed.single, timed.start, plan, owner, is_cancelled, taken)

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


def _addresses(timed: _Timed, plan: planning.Plan) -> _Addresses:
    """Whose suppressions a snapshot needs; none where nothing goes out without Redis."""
    if not snapshots.may_go_alone(timed.single):
        return ()
    return tuple(snapshots.addresses(timed.single, timed.profile, plan))
