"""Round trip B of a send: a provider that is well, a token of its rate, and then the claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from consumers import send_checks
from consumers.claims import MAX_TAKEOVERS, Answer, Entry, ServerTime, Taken
from consumers.fallbacks import STARTED, is_watched
from consumers.guarding import Guards
from consumers.limits import Token
from consumers.looking import Looked, obey
from consumers.send_checks import Wait
from consumers.sending import Seat, Sending, Stores, WorkerOptions
from consumers.standby import Standby
from consumers.telling import Teller
from consumers.verdicts import WAITS, Verdict
from schemas import metrics
from schemas.clock import Clock
from schemas.messages import EventKind
from schemas.policies import OnUnknown
from schemas.reasons import ParkReason, Reason

_OURS = (Answer.CLAIMED, Answer.TAKEOVER)


class _Asked(NamedTuple):
    """One bid. entry: the claim asked for as the first one; guards: how many commands these added."""

    entry: Entry | None
    guards: int


class _Answered(NamedTuple):
    """The replies to one bid. claim: about the claim; cause: about the suppression."""

    entry: Entry | None
    claim: list[Any]
    cause: Any
    guards: list[Any]


class Bidder:
    """Takes claims for as many deliveries at a time as the provider's rate allows."""

    def __init__(
        self,
        stores: Stores,
        standby: Standby,
        begin: Callable[[Sending, Seat], None],
        guards: Guards,
        teller: Teller,
        clock: Clock,
        options: WorkerOptions,
    ) -> None:
        self._stores = stores
        self._guards = guards
        self._standby = standby
        self._begin = begin
        self._teller = teller
        self._clock = clock
        self._options = options

    async def bid(self, looked: Looked) -> list[Sending]:
        """Begins the calls of those that got their claim; returns those to be checked again. Raises StoreDown.

        What was written first goes first, however often it had to go back to the lane for want of tokens. Else a full
        lane would be worked in no order at all, and somebody's turn would come five times later than it is. And
        deliveries of one page end together: their status events share a record.
        """
        placed = await self._standby.place(sorted(looked.ready, key=_written_ms), looked.seats)
        # Nobody waits for the tokens of another provider than their own.
        bids = (self._bid_at(seat, ready, looked.server) for seat, ready in placed)
        found = await asyncio.gather(*bids, return_exceptions=True)
        again: list[Sending] = []
        for one in found:
            if isinstance(one, BaseException):
                raise one
            again += one
        return again

    async def _bid_at(self, seat: Seat, ready: list[Sending], server: ServerTime) -> list[Sending]:
        """The same for those who go to one provider."""
        again: list[Sending] = []
        while ready:
            wanted = min(len(ready), self._options.claims_at_once)
            tokens = await self._tokens(wanted, seat, _written_ms(ready[0]))
            if not tokens:
                self._teller.defer(ready, self._options.token_pause_ms)
                break
            if seat.breaker.is_open and not ready[0].is_probe:  # since they were looked at: looked at again at once
                self._return(tokens, seat)
                self._teller.defer(ready, 0)
                break
            chosen, ready = ready[: len(tokens)], ready[len(tokens) :]
            for sending, token in zip(chosen, tokens, strict=True):
                sending.token = token
            again += await self._claim(chosen, seat, server)
        return again

    def _return(self, tokens: Sequence[Token], seat: Seat) -> None:
        for token in tokens:
            seat.pocket.give_back(token)
        seat.places.give(len(tokens))

    async def _tokens(self, wanted: int, seat: Seat, rank: int) -> list[Token]:
        """Tokens, each with a place at the provider; none when none came in time."""
        places = await seat.places.take(wanted, self._options.gather_s, rank)
        tokens: list[Token] = []
        try:
            tokens = await seat.pocket.take(places, self._options.token_wait_s, rank)
        finally:
            seat.places.give(places - len(tokens))
        return tokens

    async def _claim(self, chosen: Sequence[Sending], seat: Seat, server: ServerTime) -> list[Sending]:
        begun = 0
        again: list[Sending] = []
        began_s = self._clock.steady_s()
        try:
            answers, now_ms = await self._ask(chosen, self._standby.number(seat), server.latest_ms(began_s))
            for sending, answer in zip(chosen, answers, strict=True):
                sending.lease_until_s = began_s + self._options.lease_s
                try:
                    if self._is_won(sending, answer, now_ms, again):
                        self._begin(sending, seat)
                        begun += 1
                        continue
                except Exception as error:  # one delivery's trouble must not harm the others
                    self._teller.failed(sending, error)
                if sending.token is not None:
                    seat.pocket.give_back(sending.token)
        finally:
            seat.places.give(len(chosen) - begun)
        await self._give_back([sending for sending in again if sending.claim is not None])
        return again

    async def _ask(self, chosen: Sequence[Sending], seat: int, server_ms: int) -> tuple[list[_Answered], int]:
        """What was answered to each, and the clock that leases run by. Raises StoreDown."""
        known = self._stores
        trip = known.trips.begin()
        asked: list[_Asked] = []
        for sending in chosen:
            bid, delivery, entry = sending.bid, sending.delivery, None
            if sending.seen is None:
                entry = known.claims.ask_first(trip, bid, server_ms, seat)
                token = entry.token
                known.claims.ask_version(trip, bid)
                known.claims.ask_cancelled(trip, bid)
            else:
                token = known.claims.ask_take(trip, bid, sending.version, sending.cancelled, seat)
            known.suppressions.ask(trip, delivery.tenant, delivery.channel, sending.address)
            asked.append(_Asked(entry, self._guards.ask(trip, sending, token)))
        watched = [sending for sending in chosen if is_watched(sending.delivery)]
        for sending in watched:  # behind the claims: what starts after this finds them taken
            known.fallbacks.ask_standing(trip, sending.delivery)
        known.claims.ask_now(trip)
        known.epoch.ask(trip)
        *replies, now, epoch = await trip.execute()
        known.epoch.check(epoch)
        for sending, reply in zip(watched, replies[len(replies) - len(watched) :], strict=True):
            sending.standing = known.fallbacks.read_standing(reply, sending.delivery)
        return _apart(asked, replies), known.claims.read_now(now)

    def _is_won(self, sending: Sending, answer: _Answered, now_ms: int, again: list[Sending]) -> bool:
        """Whether a call follows; else the delivery is answered, settled, or to be checked again."""
        if answer.entry is not None:
            taken = self._first(sending, answer.entry, answer.claim, now_ms)
        else:
            taken = self._stores.claims.read_take(_whole(answer.claim)[0])
        if taken.answer is Answer.RECHECK:
            again.append(sending)
        elif taken.answer not in _OURS:
            obey(self._teller, sending, taken.answer, taken.entry, now_ms, self._clock)
        else:
            found = self._in_the_way(sending, taken, answer)
            if found is None:
                return True
            self._teller.stop(sending, found)
        return False

    def _first(self, sending: Sending, mine: Entry, replies: list[Any], now_ms: int) -> Taken:
        """What came of the bid for a claim that nobody had at the look."""
        known = self._stores.claims
        claim, version, cancelled = _whole(replies)[:3]
        other = known.read_first(claim)
        if other is not None:
            said = send_checks.answered(other, sending.bid, now_ms)
            return Taken(said or Answer.RECHECK, other)
        if known.read_version(version) != sending.version or known.read_cancelled(cancelled) != sending.cancelled:
            sending.claim = mine  # until it is given back
            return Taken(Answer.RECHECK, None)
        return Taken(Answer.CLAIMED, mine)

    async def _give_back(self, changed: Sequence[Sending]) -> None:
        """Claims under which no call is made: the next look must not find them taken. Raises StoreDown."""
        if not changed:
            return
        trip = self._stores.trips.begin()
        for sending in changed:
            token = sending.held_claim().token
            self._guards.ask_given_back(trip, sending, token)
            self._stores.claims.ask_give_back(trip, sending.bid, token)
            sending.claim = None
        await trip.execute()

    def _in_the_way(self, sending: Sending, taken: Taken, answer: _Answered) -> Verdict | Wait | None:
        """What keeps the new holder of the claim from calling; None: nothing."""
        entry = taken.entry
        assert entry is not None
        sending.claim = entry
        sending.lapsed = range(entry.record_call, entry.call)
        cause = self._stores.suppressions.read(answer.cause)
        if cause:
            return send_checks.suppressed(sending.delivery.channel, cause, self._clock.now_ms())
        if sending.standing in STARTED:
            return Verdict(EventKind.SUPPRESSED, self._clock.now_ms(), Reason.FELL_BACK)
        if taken.answer is not Answer.TAKEOVER:
            return self._guards.found(sending, answer.guards)
        metrics.TAKEOVERS.labels(sending.record.topic).inc()
        found = self._given_up(sending, entry) or self._guards.found(sending, answer.guards)
        if not isinstance(found, Verdict) or found.kind in WAITS:
            metrics.POSSIBLE_DUPLICATES.labels(sending.delivery.channel, "takeover").inc()
        return found

    def _given_up(self, sending: Sending, entry: Entry) -> Verdict | None:
        """The end of a delivery whose last call is in doubt and must not be repeated."""
        now_ms = self._clock.now_ms()
        if entry.takeovers >= MAX_TAKEOVERS:
            text = f"{entry.takeovers} workers died with it"
            return Verdict(EventKind.FAILED, now_ms, Reason.CRASHES_WORKER, text, park=ParkReason.CRASHES_WORKER)
        if sending.known_policy().on_unknown is OnUnknown.RISK_LOSS:
            return Verdict(EventKind.UNCONFIRMED, now_ms, Reason.UNKNOWN_OUTCOME)
        return None


def _written_ms(sending: Sending) -> int:
    return sending.record.timestamp_ms


def _apart(asked: Sequence[_Asked], replies: list[Any]) -> list[_Answered]:
    """Each bid with its own replies."""
    answers, at = [], 0
    for entry, guards in asked:
        cause = at + (1 if entry is None else 3)
        end = cause + 1 + guards
        answers.append(_Answered(entry, replies[at:cause], replies[cause], replies[cause + 1 : end]))
        at = end
    return answers


def _whole(replies: list[Any]) -> list[Any]:
    """The replies. Raises the first that is a command's failure."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
