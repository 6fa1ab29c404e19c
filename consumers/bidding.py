"""Round trip B of a send: a provider that is well, a token of its rate, and then the claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from consumers import send_checks
from consumers.breaker import Gate, State
from consumers.claims import MAX_TAKEOVERS, Answer, Taken
from consumers.limits import Token
from consumers.looking import obey
from consumers.send_checks import Wait
from consumers.sending import Room, Seat, Sending, Stores, WorkerOptions
from consumers.telling import Teller
from consumers.verdicts import Verdict
from schemas import metrics
from schemas.clock import Clock
from schemas.messages import EventKind
from schemas.policies import OnUnknown
from schemas.reasons import ParkReason, Reason


class Bidder:
    """Takes claims for as many deliveries at a time as the provider's rate allows."""

    def __init__(
        self,
        stores: Stores,
        seats: Sequence[Seat],
        begin: Callable[[Sending, Seat], None],
        places: Room,
        teller: Teller,
        clock: Clock,
        options: WorkerOptions,
    ) -> None:
        self._stores = stores
        self._seats = seats
        self._begin = begin
        self._places = places
        self._teller = teller
        self._clock = clock
        self._options = options

    async def bid(self, ready: list[Sending], states: Sequence[State]) -> list[Sending]:
        """Begins the calls of those that got their claim; returns those to be checked again. Raises StoreDown."""
        seat, ready = await self._choose(ready, states)
        again: list[Sending] = []
        while ready and seat is not None:
            tokens = await self._tokens(min(len(ready), self._options.claims_at_once), seat)
            if not tokens:
                self._teller.defer(ready, self._options.token_pause_ms)
                break
            chosen, ready = ready[: len(tokens)], ready[len(tokens) :]
            for sending, token in zip(chosen, tokens, strict=True):
                sending.token = token
            again += await self._claim(chosen, seat)
        return again

    async def _choose(self, ready: list[Sending], states: Sequence[State]) -> tuple[Seat | None, list[Sending]]:
        """The first usable provider, and who may go to it; the others wait outside the lane."""
        for seat, state in zip(self._seats, states, strict=True):
            if state.gate is Gate.CLOSED:
                return seat, ready
        for seat, state in zip(self._seats, states, strict=True):
            probes = await self._probes(seat) if state.gate is Gate.HALF_OPEN else 0
            if probes:
                self._hold_back(ready[probes:], states)
                for sending in ready[:probes]:
                    sending.is_probe = True
                return seat, ready[:probes]
        self._hold_back(ready, states)
        return None, []

    async def _probes(self, seat: Seat) -> int:
        """How many calls may test whether an open breaker's provider is back."""
        trip = self._stores.trips.begin()
        seat.breaker.ask_probe(trip)
        (reply,) = await trip.execute()
        return seat.breaker.read_probe(reply)

    def _hold_back(self, waiting: Sequence[Sending], states: Sequence[State]) -> None:
        state = min(states, key=lambda state: state.left_ms)
        reason = Reason.PROVIDER_CONFIG if state.is_hold else Reason.PROVIDER_DOWN
        until_ms = self._clock.now_ms() + max(state.left_ms, self._options.probe_pause_ms)
        for sending in waiting:
            self._teller.stop(sending, Wait(until_ms, reason))

    async def _tokens(self, wanted: int, seat: Seat) -> list[Token]:
        """Tokens, each with a place at the provider; none when none came in time."""
        places = await self._places.take(wanted, self._options.gather_s)
        tokens: list[Token] = []
        try:
            tokens = await seat.pocket.take(places, self._options.token_wait_s)
        finally:
            self._places.give(places - len(tokens))
        return tokens

    async def _claim(self, chosen: Sequence[Sending], seat: Seat) -> list[Sending]:
        begun = 0
        again: list[Sending] = []
        lease_until_s = self._clock.steady_s() + self._options.lease_s
        try:
            replies, now_ms = await self._ask(chosen)
            for at, sending in enumerate(chosen):
                sending.lease_until_s = lease_until_s
                try:
                    if self._is_won(sending, replies[2 * at : 2 * at + 2], now_ms, again):
                        self._begin(sending, seat)
                        begun += 1
                        continue
                except Exception as error:  # one delivery's trouble must not harm the others
                    self._teller.failed(sending, error)
                if sending.token is not None:
                    seat.pocket.give_back(sending.token)
        finally:
            self._places.give(len(chosen) - begun)
        return again

    async def _ask(self, chosen: Sequence[Sending]) -> tuple[list[Any], int]:
        known = self._stores
        trip = known.trips.begin()
        for sending in chosen:
            delivery = sending.delivery
            known.claims.ask_take(trip, sending.bid, sending.version, sending.cancelled)
            known.suppressions.ask(trip, delivery.tenant, delivery.channel, sending.address)
        known.claims.ask_now(trip)
        known.epoch.ask(trip)
        *replies, now, epoch = await trip.execute()
        known.epoch.check(epoch)
        return replies, known.claims.read_now(now)

    def _is_won(self, sending: Sending, replies: Sequence[Any], now_ms: int, again: list[Sending]) -> bool:
        """Whether a call follows; else the delivery is answered, settled, or to be checked again."""
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        taken = self._stores.claims.read_take(replies[0])
        if taken.answer is Answer.RECHECK:
            again.append(sending)
        elif taken.answer not in (Answer.CLAIMED, Answer.TAKEOVER):
            obey(self._teller, sending, taken.answer, taken.entry, now_ms, self._clock)
        else:
            verdict = self._verdict_without_call(sending, taken, self._stores.suppressions.read(replies[1]))
            if verdict is None:
                return True
            self._teller.settle(sending, verdict)
        return False

    def _verdict_without_call(self, sending: Sending, taken: Taken, cause: str) -> Verdict | None:
        """What keeps the new holder of the claim from calling; None: nothing."""
        entry = taken.entry
        assert entry is not None
        sending.claim = entry
        sending.lapsed = range(entry.record_call, entry.call)
        now_ms = self._clock.now_ms()
        if cause:
            return send_checks.suppressed(sending.delivery.channel, cause, now_ms)
        if taken.answer is not Answer.TAKEOVER:
            return None
        metrics.TAKEOVERS.labels(sending.record.topic).inc()
        if entry.takeovers >= MAX_TAKEOVERS:
            text = f"{entry.takeovers} workers died with it"
            return Verdict(EventKind.FAILED, now_ms, Reason.CRASHES_WORKER, text, park=ParkReason.CRASHES_WORKER)
        if sending.known_policy().on_unknown is OnUnknown.RISK_LOSS:
            return Verdict(EventKind.UNCONFIRMED, now_ms, Reason.UNKNOWN_OUTCOME)
        metrics.POSSIBLE_DUPLICATES.labels(sending.delivery.channel, "takeover").inc()
        return None
