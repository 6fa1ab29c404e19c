"""Round trip A of a send: what the claims say already, who may be reached, and how the providers stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from consumers import send_checks
from consumers.claims import Answer, Entry, ServerTime
from consumers.fallbacks import Standing, is_watched
from consumers.send_checks import Reached, Seen, Wait
from consumers.sending import Health, Seat, Sending, Stores
from consumers.telling import Teller
from consumers.verdicts import WAITS, Verdict
from schemas import metrics
from schemas.clock import Clock
from schemas.messages import CampaignOrder, EventKind
from schemas.policies import OnUnknown, Policies
from schemas.quiet_hours import QuietHours
from schemas.reasons import Reason

Order = Callable[[str, str], CampaignOrder]
"""What operators want of (tenant, campaign) now: `controls.Controls.order`."""
_COMMANDS = 2  # of each delivery
_COMMANDS_OF_A_SEAT = 2


class Looked(NamedTuple):
    """Who may bid for a claim, how each seat is, and the server's clock."""

    ready: list[Sending]
    seats: list[Health]
    server: ServerTime


class Looker:
    """Looks at a batch: answers whoever cannot go on, returns the others."""

    def __init__(
        self,
        stores: Stores,
        seats: Sequence[Seat],
        policies: Policies,
        order: Order,
        quiet: QuietHours,
        teller: Teller,
        clock: Clock,
    ) -> None:
        self._stores = stores
        self._seats = seats
        self._policies = policies
        self._order = order
        self._quiet = quiet
        self._teller = teller
        self._clock = clock

    async def look(self, batch: Sequence[Sending]) -> Looked:
        """Answers whoever may not bid for a claim. Raises StoreDown."""
        asked_s = self._clock.steady_s()
        replies = await self._ask(batch)
        now_ms = self._stores.claims.read_now(replies[0])
        own = 1 + _COMMANDS_OF_A_SEAT * len(self._seats)
        seats = [
            Health(seat.breaker.read(state, now_ms), seat.throttle.read(paused, now_ms))
            for seat, state, paused in zip(self._seats, replies[1:own:2], replies[2:own:2], strict=True)
        ]
        ready = []
        standings = iter(replies[own + _COMMANDS * len(batch) :])
        for at, sending in enumerate(batch):
            try:
                if is_watched(sending.delivery):
                    sending.standing = self._stores.fallbacks.read_standing(next(standings), sending.delivery)
                first = own + _COMMANDS * at
                if self._may_bid(sending, replies[first : first + _COMMANDS], now_ms):
                    ready.append(sending)
            except Exception as error:  # one delivery's trouble must not harm the others
                self._teller.failed(sending, error)
        return Looked(ready, seats, ServerTime(now_ms, asked_s))

    async def _ask(self, batch: Sequence[Sending]) -> list[Any]:
        known = self._stores
        trip = known.trips.begin()
        known.claims.ask_now(trip)
        for seat in self._seats:
            seat.breaker.ask(trip)
            seat.throttle.ask(trip)
        for sending in batch:
            known.claims.ask_seen(trip, sending.bid)
            known.profiles.ask(trip, sending.delivery.tenant, sending.delivery.user_id)
        for sending in batch:
            if is_watched(sending.delivery):
                known.fallbacks.ask_standing(trip, sending.delivery)
        known.epoch.ask(trip)
        replies = await trip.execute()
        known.epoch.check(replies[-1])
        return replies

    def _may_bid(self, sending: Sending, replies: Sequence[Any], now_ms: int) -> bool:
        known = self._stores
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        sending.policy = self._policies.get(sending.delivery.template)
        entry, cancelled = known.claims.read_seen(replies[0])
        answer = send_checks.answered(entry, sending.bid, now_ms)
        if answer is not None:
            obey(self._teller, sending, answer, entry, now_ms, self._clock)
            return False
        sending.policy = send_checks.policy_of(self._policies, sending.delivery)
        sending.seen = entry
        sending.lapsed = send_checks.lapsed_calls(entry, now_ms)
        sending.lapsed_now = entry is not None and entry.is_open()
        if entry is not None and sending.lapsed:
            self._doubt(sending, entry, now_ms)
        return self._is_wanted(sending, Seen(known.profiles.read(replies[1]), cancelled))

    def _doubt(self, sending: Sending, entry: Entry, now_ms: int) -> None:
        """Nobody heard of the calls before: from here on the delivery says so itself, and where the last one went.

        What it says is kept where the claim names none of ours.
        """
        name = self._seats[entry.seat].provider.name if entry.seat < len(self._seats) else ""
        if not name and sending.delivery.doubted_at:
            return
        since_ms = self._clock.now_ms() - max(0, now_ms - entry.lease_end_ms)
        sending.delivery = replace(sending.delivery, doubted_at=name, doubted_at_ms=since_ms)

    def _is_wanted(self, sending: Sending, seen: Seen) -> bool:
        delivery = sending.delivery
        sending.version, sending.cancelled = seen.profile.version, seen.cancelled
        order = self._order(delivery.tenant, delivery.campaign_id) if delivery.campaign_id else CampaignOrder.RUNNING
        policy = sending.known_policy()
        nights = self._quiet.of(delivery.tenant, policy)
        found = send_checks.obstacle(delivery, seen, policy, nights, order, self._clock.now_ms())
        if sending.standing is not Standing.OPEN and _goes_on(found):
            self._teller.give_way(sending)
            return False
        if isinstance(found, Reached):
            sending.address, sending.locale, sending.zone = found.address, found.locale, found.zone
            return True
        self._teller.stop(sending, _left_open(sending, found))
        return False


def _goes_on(found: Verdict | Wait | Reached) -> bool:
    """Whether it might be called, now or later."""
    return not isinstance(found, Verdict) or found.kind in WAITS


def _left_open(sending: Sending, found: Verdict | Wait) -> Verdict | Wait:
    """What a wait becomes behind a call of which nobody heard: it is told as one that may be repeated, or, where a
    repeat is worse than a loss, nothing more follows.
    """
    if isinstance(found, Wait) or found.kind not in WAITS or not sending.lapsed:
        return found
    if sending.known_policy().on_unknown is OnUnknown.RISK_LOSS:
        return Verdict(EventKind.UNCONFIRMED, found.at_ms, Reason.UNKNOWN_OUTCOME)
    # Those before were counted when they were taken over, and the last one when it went into hold before: whatever
    # comes out of there bears the number behind it.
    if sending.lapsed_now and sending.bid.record_call < sending.lapsed.stop:
        metrics.POSSIBLE_DUPLICATES.labels(sending.delivery.channel, "takeover").inc()
    return found


def obey(teller: Teller, sending: Sending, answer: Answer, entry: Entry | None, now_ms: int, clock: Clock) -> None:
    """A claim that is not to be had says what becomes of the record. now_ms: the clock that leases run by."""
    metrics.CLAIMS.labels(sending.record.topic, answer.name.lower()).inc()
    assert entry is not None
    match answer:
        case Answer.DUPLICATE_OF:
            teller.duplicate(sending, entry)
        case Answer.STALE:
            teller.ignore(sending)
        case Answer.FINISHED_SAME:
            teller.repeat(sending, entry)
        case _:
            left_ms = max(1, entry.lease_end_ms - now_ms)
            teller.stop(sending, Wait(clock.now_ms() + left_ms, Reason.LEASED_ELSEWHERE))
