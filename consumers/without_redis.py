"""Sending while Redis is away, for templates that opted in (`when_redis_is_down = "send"`): without a claim.

A delivery goes where its snapshot says, by a provider and at a rate that this worker can answer for alone. What was
called is kept in memory; once Redis is back its claims are written, settled, before the lane goes on. Each such call
counts as a possible duplicate: whether somebody else made it, nobody could look up. An exception to promises 2 and 3
that the template's owner chose: a login code in time is worth more.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from consumers import digests, verdicts
from consumers.breaker import Gate
from consumers.claims import Answer, Bid, Entry, Taken, VerdictClass
from consumers.local_rate import LocalTokens
from consumers.sending import Health, Seat, Sending, Stores
from consumers.verdicts import Verdict
from schemas import metrics, timeline
from schemas.clock import Clock
from schemas.errors import StoreDown
from schemas.messages import Channel, Delivery, Priority
from schemas.policies import Policies, TemplatePolicy, WhenRedisIsDown
from schemas.trips import Trip

log = logging.getLogger(__name__)

AT_ONCE = 200
"""Claims written in one round trip."""


@dataclass(frozen=True, slots=True)
class AwayOptions:
    """after_s: how long Redis must have been away: a moment's trouble is waited out. fresh_ms: nobody goes by an older
    snapshot. kept: calls whose claims are to be written; with so many everything waits again. lease_s: as of claims.
    stay_ms: how long a call in doubt is repeated at its own provider only.
    write_every_s: how often it is tried to write them while nothing comes in the lane.
    """

    after_s: float = 2.0
    fresh_ms: int = 300_000
    kept: int = 10_000
    lease_s: float = 30.0
    stay_ms: int = 600_000
    write_every_s: float = 1.0


class _Note(NamedTuple):
    """A call that no claim knows of. line: for the user's timeline. not_before_s (steady): when to write it.

    is_told: its verdict is on the log.
    """

    bid: Bid
    verdict: Verdict
    line: bytes
    not_before_s: float = 0.0
    is_told: bool = False


class WithoutRedis:
    """seats: the channel's providers in order, each with LocalTokens in place of its pocket."""

    def __init__(
        self, stores: Stores, seats: Sequence[Seat], policies: Policies, clock: Clock, options: AwayOptions
    ) -> None:
        self._stores = stores
        self._seats = seats
        self._policies = policies
        self._clock = clock
        self._options = options
        self._away_since_s: float | None = None
        self._heard_s = -math.inf
        self._healths: Sequence[Health] = ()
        self._begun: dict[bytes, Sending] = {}
        """Those that go out alone, until their calls are noted, or until their ends are in their claims."""
        self._notes: dict[bytes, _Note] = {}
        self._untold: dict[bytes, bytes] = {}
        """Tokens of claims that were written before the log had their verdicts."""
        self._noted = asyncio.Event()
        self._writing = asyncio.Lock()

    def has_calls(self) -> bool:
        """Whether it knows of calls that no claim tells of."""
        return bool(self._notes or self._begun)

    def answered(self, healths: Sequence[Health]) -> None:
        """Redis is there. healths: how the providers are, for when it is not."""
        self._healths = healths
        self._heard_s = self._clock.steady_s()
        if self._away_since_s is not None:
            self._away_since_s = None
            log.warning("redis.back", extra={"claims_to_write": len(self._notes)})

    async def catch_up(self) -> None:
        """Returns once all claims are written that can be: before anybody looks at one. Raises StoreDown."""
        if not self._notes:
            return
        async with self._writing:
            now_s = self._clock.steady_s()
            due = [note for note in self._notes.values() if note.not_before_s <= now_s]
            for at in range(0, len(due), AT_ONCE):
                await self._write(due[at : at + AT_ONCE])

    async def run(self) -> None:
        """Writes claims also while nothing comes in the lane, until it is cancelled."""
        while True:
            await self._noted.wait()
            try:
                await self.catch_up()
            except StoreDown as error:
                log.info("claims.wait_for_redis", extra={"claims": len(self._notes), "error": str(error)})
            if not self._notes:
                self._noted.clear()
            await asyncio.sleep(self._options.write_every_s)

    def known(self, sending: Sending) -> Entry | None:
        """The claim that would be in the way of this record, had it been written; None when nothing is."""
        entries = self._entries(sending.bid.claim_key)
        in_the_way = (one for one in entries if one.address != sending.bid.address or not _is_later(sending.bid, one))
        return next(in_the_way, None)

    def choose(self, waiting: Sequence[Sending], asked_s: float) -> list[Sending]:
        """Who goes out without Redis, which did not answer what was asked then; the others wait for it.

        Where it has answered anything since, only that one question was lost.
        """
        if not self._seats:
            return []
        if self._away_since_s is None or self._away_since_s < self._heard_s:
            self._away_since_s = max(asked_s, self._heard_s)
            for seat in self._seats:
                if isinstance(seat.pocket, LocalTokens):
                    seat.pocket.start_anew()
        if self._clock.steady_s() - self._away_since_s < self._options.after_s:
            return []
        return [sending for sending in waiting if self._goes(sending)]

    def seat(self) -> Seat:
        """The first provider that was well when Redis was last heard of; else the first."""
        for seat, health in zip(self._seats, self._healths, strict=False):
            if health.state.gate is Gate.CLOSED:
                return seat
        return self._seats[0]

    def begin(self, sending: Sending) -> None:
        """Just before its call: what a claim would say, which nobody holds."""
        sending.claim = _entry(sending.bid, VerdictClass.NONE)
        sending.lease_until_s = self._clock.steady_s() + self._options.lease_s

    def called(self, sending: Sending, verdict: Verdict, line: bytes) -> None:
        """The call was made, and no claim knows of it yet."""
        channel, snapshot = sending.delivery.channel, sending.delivery.snapshot
        metrics.POSSIBLE_DUPLICATES.labels(channel, "redis_away").inc()
        opt_outs = "unknown" if snapshot is not None and snapshot.is_unchecked else "snapshot"
        metrics.CALLS_WITHOUT_REDIS.labels(channel, opt_outs).inc()
        self._begun.pop(sending.bid.claim_key, None)
        self._notes[sending.bid.claim_key] = _Note(sending.bid, verdict, line)
        self._noted.set()

    def told(self, bid: Bid) -> bytes:
        """The verdict is on the log. The token of its claim where that is written already, to be marked; else b""."""
        note = self._notes.get(bid.claim_key)
        if note is not None:
            self._notes[bid.claim_key] = note._replace(is_told=True)
        return self._untold.pop(bid.claim_key, b"")

    def is_told(self, bid: Bid) -> bool:
        """Whether the log has the verdict of the call that this bid wants to make."""
        note = self._notes.get(bid.claim_key)
        return note is not None and note.is_told and not _is_later(bid, note.bid)

    def ends(self, sending: Sending) -> None:
        """Its call was made and nothing follows from it but its end, which waits for Redis: until `over`."""
        sending.claim, sending.is_alone = None, False

    def over(self, sending: Sending) -> None:
        """Its claim says what became of it, or what is in its way."""
        if self._begun.get(sending.bid.claim_key) is sending:
            del self._begun[sending.bid.claim_key]

    def let_go(self, sending: Sending) -> None:
        """No call was made: it goes on as any other, as soon as Redis is back."""
        self.over(sending)
        sending.claim, sending.is_alone = None, False

    def _entries(self, key: bytes) -> Iterator[Entry]:
        """What claims under this key would say."""
        note, begun = self._notes.get(key), self._begun.get(key)
        if note is not None:
            yield _entry(note.bid, note.verdict.claim_class)
        if begun is not None and not begun.is_answered:
            yield _entry(begun.bid, VerdictClass.NONE)

    def _goes(self, sending: Sending) -> bool:
        delivery, snapshot = sending.delivery, sending.delivery.snapshot
        policy = self._policies.get(delivery.template)
        if snapshot is None or policy is None or not _may(delivery, policy):
            return False
        now_ms = self._clock.now_ms()
        is_fresh = now_ms - snapshot.at_ms < self._options.fresh_ms
        has_room = len(self._notes) + len(self._begun) < self._options.kept
        key = sending.bid.claim_key
        if not is_fresh or not has_room or key in self._begun or self._is_tied(delivery, now_ms):
            return False
        self._begun[key] = sending
        sending.policy, sending.is_alone = policy, True
        sending.address, sending.locale, sending.zone = snapshot.address, snapshot.locale, snapshot.time_zone
        return True

    def _is_tied(self, delivery: Delivery, now_ms: int) -> bool:
        """Whether a call of it is in doubt at another of the providers than the one that is called now."""
        name = verdicts.doubted_at(delivery, self._options.stay_ms, now_ms)
        return any(seat.provider.name == name for seat in self._seats if seat is not self.seat())

    async def _write(self, some: Sequence[_Note]) -> None:
        known = self._stores
        trip = known.trips.begin()
        for note in some:
            known.claims.ask_end(trip, note.bid, note.verdict.claim_class, verdicts.pack(note.verdict))
        known.epoch.ask(trip)
        *replies, epoch = await trip.execute()
        known.epoch.check(epoch)
        self._heard_s = self._clock.steady_s()
        written = [self._written(note.bid.claim_key, reply) for note, reply in zip(some, replies, strict=True)]
        await self._mark([one for one in written if one is not None])

    def _written(self, key: bytes, reply: Any) -> tuple[_Note, Entry] | None:
        """The claim as it is now ours. One that a lost round trip took keeps its lease, and is asked for again then."""
        note = self._notes.pop(key)
        if isinstance(reply, Exception):
            log.error("claim.not_written", extra={"error": str(reply)})
            return None
        taken: Taken = self._stores.claims.read_end(reply)
        if taken.answer is Answer.SENDING:
            later_s = self._clock.steady_s() + self._options.lease_s
            self._notes[key] = note._replace(not_before_s=later_s)
        if taken.entry is None or taken.answer not in (Answer.CLAIMED, Answer.TAKEOVER):
            return None
        return note, taken.entry

    async def _mark(self, written: Sequence[tuple[_Note, Entry]]) -> None:
        """Marks those whose verdicts are on the log. The others are when they are (`told`): without the mark, whoever
        reads the record after our death says what the claim keeps.
        """
        if not written:
            return
        trip = self._stores.trips.begin()
        for note, entry in written:
            if note.is_told:
                self._stores.claims.ask_published(trip, note.bid, entry.token)
            else:
                self._untold[note.bid.claim_key] = entry.token
            _ask_line(trip, note)
        await trip.execute()
        log.warning("claims.written_afterwards", extra={"claims": len(written)})


def local(seat: Seat, tokens: LocalTokens) -> Seat:
    """The same provider, at the rate that a worker may use by itself."""
    made = Seat(seat.provider, seat.breaker, seat.throttle, tokens, 1)
    made.places = seat.places
    return made


def _may(delivery: Delivery, policy: TemplatePolicy) -> bool:
    """The inbox lies in Redis; a digest is gathered there."""
    is_urgent = delivery.priority is Priority.TRANSACTIONAL and delivery.channel is not Channel.INAPP
    opted_in = policy.when_redis_is_down is WhenRedisIsDown.SEND
    return is_urgent and opted_in and not digests.is_gathered(delivery, policy)


def _is_later(bid: Bid, known: Bid | Entry) -> bool:
    """Whether this bid wants to make a later call than that."""
    return (bid.generation, bid.record_call) > (known.generation, known.record_call)


def _entry(bid: Bid, verdict: VerdictClass) -> Entry:
    """What the claim would be."""
    return Entry(verdict, True, False, bid.generation, bid.record_call, 0, 0, b"", bid.address, b"")


def _ask_line(trip: Trip, note: _Note) -> None:
    if note.line:
        key = note.bid.timeline_key
        trip.execute_command("LPUSH", key, note.line)
        trip.execute_command("LTRIM", key, 0, timeline.ENTRIES - 1)
        trip.execute_command("EXPIRE", key, timeline.KEPT_S)
