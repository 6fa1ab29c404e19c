"""The story of one send: look, check, claim, render, call, settle, tell. A handler run by `consumers/engine.py`.

A micro-batch shares its round trips: A looks at claims and profiles (`looking`), B takes the claims
(`bidding`); then each delivery makes its call on its own (`calling`), and those that finish close together are
settled in one trip (`settling`) and announced (`telling`). A crash anywhere repeats what was published, never
a call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass

from consumers import claims, without_redis
from consumers.bidding import Bidder
from consumers.calling import Caller, Gap, Judge
from consumers.caps import CapRules
from consumers.guarding import Guards
from consumers.limits import Token
from consumers.local_rate import LocalTokens
from consumers.looking import Looker, Order
from consumers.render import Renderer
from consumers.sending import Room, Seat, Sending, Stores, WorkerOptions
from consumers.settling import SettleOptions, Settling
from consumers.spend import Spend
from consumers.standby import Standby
from consumers.tally import Tally
from consumers.telling import Teller
from consumers.verdicts import Announcer
from consumers.without_redis import AwayOptions, WithoutRedis
from retry_topics.dead_letters import DeadLetters
from schemas import codec, keys
from schemas.clock import Clock
from schemas.errors import Misconfigured, Poison, StoreDown
from schemas.messages import Channel, Delivery
from schemas.policies import Policies
from schemas.quiet_hours import QuietHours
from schemas.records import AnswerTo, Record
from schemas.topics import Topics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides about a delivery: templates and their policies, operators' orders, quiet hours, the judge of
    outcomes. served: the channels that a fallback may turn to. spend: None where no budget is to be kept.
    """

    policies: Policies
    renderer: Renderer
    order: Order
    judge: Judge
    quiet: QuietHours
    caps: CapRules
    served: Collection[Channel] = frozenset(Channel)
    spend: Spend | None = None


class LaneWorker:
    """Sends the deliveries of one lane through the providers of its channel, in order of preference."""

    def __init__(
        self,
        seats: Sequence[Seat],
        stores: Stores,
        rules: Rules,
        ids: keys.Ids,
        topics: Topics,
        letters: DeadLetters,
        clock: Clock,
        options: WorkerOptions,
        settle_options: SettleOptions,
        gap: Gap | None = None,
        alone: Sequence[LocalTokens] = (),
    ) -> None:
        """alone: for each seat what this worker may send while Redis is away; none: everything waits for it."""
        _check(options)
        self._rules = rules
        self._letters = letters
        self._clock = clock
        self._options = options
        tally = Tally()
        guards = Guards(stores.caps, stores.lookalikes, rules.caps, rules.renderer.mentions, ids, clock)
        news = [one for seat in seats for one in (seat.breaker, seat.throttle)]
        self._settling = Settling(stores, guards, news, tally, settle_options, gap)
        local = [without_redis.local(seat, tokens) for seat, tokens in zip(seats, alone, strict=False)]
        away = AwayOptions(lease_s=options.lease_s, stay_ms=options.stay_ms)
        self._away = WithoutRedis(stores, local, rules.policies, clock, away)
        self._teller = Teller(
            Announcer(topics, letters.letter, rules.served), self._settling, ids, clock, tally, self._away, options
        )
        self._looker = Looker(stores, seats, rules.policies, rules.order, rules.quiet, self._teller, clock)
        standby = Standby(stores.trips, seats, self._teller, clock, options)
        self._bidder = Bidder(stores, standby, self._begin, guards, self._teller, clock, options)
        self._caller = Caller(
            rules.renderer,
            ids,
            rules.order,
            rules.quiet,
            rules.judge,
            rules.spend,
            self._teller,
            clock,
            tally,
            options,
            gap,
        )
        self._in_flight = Room(options.in_flight)
        self._tasks: set[asyncio.Task[None]] = set()
        self._beside: list[asyncio.Task[None]] = []
        self._broke: list[BaseException] = []
        self._has_broken = asyncio.Event()

    async def handle(self, records: Sequence[Record], answer: AnswerTo) -> None:
        """Takes the records on as soon as there is room; they are answered by tasks of their own."""
        if not self._beside:
            self._beside = [asyncio.create_task(one) for one in (self._settling.run(self._teller), self._away.run())]
            for task in self._beside:
                task.add_done_callback(self._ended)
        batch = [sending for record in records if (sending := self._received(record, answer)) is not None]
        if batch:
            await self._in_flight.enter(len(batch))
            self._start(self._send(batch))

    async def watched(self) -> None:
        """Raises what nobody else would hear of: a worker whose settling has ended would go on calling for ever."""
        await self._has_broken.wait()
        raise self._broke[0]

    async def close(self, within_s: float = 10.0) -> None:
        """Finishes what was begun; what is not settled by then is left to its lease, as after a crash."""
        try:
            async with asyncio.timeout(within_s):
                while self._tasks:
                    await asyncio.wait(self._tasks)
                if self._beside and not self._beside[0].done():
                    await self._settling.idle()
                await self._away.catch_up()
        except TimeoutError:
            log.warning("worker.left_calls", extra={"deliveries": len(self._tasks)})
        except StoreDown as error:
            log.warning("worker.left_claims", extra={"error": str(error)})
        for task in (*self._tasks, *self._beside):
            task.cancel()

    def _received(self, record: Record, answer: AnswerTo) -> Sending | None:
        """The delivery in a record; one that nobody can send is parked byte for byte."""
        try:
            delivery = codec.decode(record.value, Delivery)
            bid = claims.bid_for(delivery)
        except Poison as error:
            answer(record, self._letters.parked(record, error.reason, error.text))
            return None
        return Sending(record, answer, self._in_flight, delivery, bid)

    async def _send(self, batch: list[Sending]) -> None:
        """Steps 2 to 4 for all together; whoever the claim sends back to the checks goes round again."""
        began_s = self._clock.steady_s()
        try:
            if self._away.has_calls():
                batch = self._unknown(batch)
                await self._away.catch_up()
            left = batch
            for _ in range(self._options.rechecks):
                looked = await self._looker.look(left)
                self._away.answered(looked.seats)
                left = await self._bidder.bid(looked)
                if not left:
                    return
            self._teller.defer(left, self._options.store_pause_ms)
        except StoreDown as error:
            waiting = [sending for sending in batch if sending.is_undecided()]
            log.warning("send.deferred", extra={"deliveries": len(waiting), "error": str(error)})
            self._go_alone(waiting, began_s)
        except Exception as error:
            for sending in batch:
                if sending.is_undecided():
                    self._teller.failed(sending, error)

    def _unknown(self, batch: Sequence[Sending]) -> list[Sending]:
        """Without those that are or were called while Redis was away, in this record or another."""
        left = []
        for sending in batch:
            entry = self._away.known(sending)
            if entry is None:
                left.append(sending)
            elif entry.address != sending.bid.address:
                self._teller.duplicate(sending, entry)
            elif self._away.is_told(sending.bid):
                self._teller.ignore(sending)
            else:
                self._teller.defer([sending], self._options.store_pause_ms)
        return left

    def _go_alone(self, waiting: Sequence[Sending], asked_s: float) -> None:
        """Who may goes out without Redis; the others wait for it.

        Copies of some were called while these still waited for their answers.
        """
        waiting = self._unknown(waiting)
        chosen = self._away.choose(waiting, asked_s)
        if chosen:
            self._start(self._send_alone(chosen))
        self._teller.defer([sending for sending in waiting if not sending.is_alone], self._options.store_pause_ms)

    async def _send_alone(self, left: list[Sending]) -> None:
        """As many as the local rate allows now; the others come again."""
        seat, options = self._away.seat(), self._options
        try:
            while left:
                places = await seat.places.take(len(left), options.gather_s)
                tokens: list[Token] = []
                try:
                    tokens = await seat.pocket.take(places, options.token_wait_s)
                finally:
                    seat.places.give(places - len(tokens))
                if not tokens:
                    break
                for sending, token in zip(left, tokens, strict=False):
                    sending.token = token
                    self._away.begin(sending)
                    self._begin(sending, seat)
                left = left[len(tokens) :]
        finally:
            for sending in left:
                self._away.let_go(sending)
            self._teller.defer(left, options.token_pause_ms)

    def _begin(self, sending: Sending, seat: Seat) -> None:
        self._start(self._call(sending, seat))

    async def _call(self, sending: Sending, seat: Seat) -> None:
        try:
            await self._caller.call(sending, seat)
        except Exception as error:
            self._teller.failed(sending, error)
        finally:
            seat.places.give(1)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broke.append(error)
            self._has_broken.set()


def _check(options: WorkerOptions) -> None:
    """Raises Misconfigured when a call could outlive its lease."""
    if options.deadline_s + options.lease_margin_s >= options.lease_s:
        raise Misconfigured(
            f"lease_s ({options.lease_s:g}) must be longer than deadline_s ({options.deadline_s:g})"
            f" and lease_margin_s ({options.lease_margin_s:g}) together"
        )
