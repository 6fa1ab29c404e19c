"""Settles deliveries in batches: those that finish within a few milliseconds share one round trip.

A verdict that cannot be stored is kept and tried again until it is: the call was made, and only the claim
keeps another worker from repeating it. An end without a call is kept as well: read again, its record might be sent
after what followed from the end. What was settled is then announced by `telling`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from consumers import soft_bounces, verdicts
from consumers.claims import Bid, Settled, Taken
from consumers.fallbacks import Found, Question
from consumers.guarding import Guards
from consumers.lookalikes import Mark
from consumers.sending import Sending, Stores
from consumers.tally import Tally
from consumers.verdicts import Verdict
from schemas import keys
from schemas.errors import StoreDown
from schemas.records import Defer
from schemas.trips import Trip

log = logging.getLogger(__name__)

PROVIDER_ID_KEPT_S = 7 * 86_400
LONGEST_PAUSE_S = 1.0


class Settlement(NamedTuple):
    """A verdict on its way into the claim. reference: kept under the provider's message id; "" = not needed.

    Of a delivery without a claim the verdict is an end, and the claim is asked for with it.
    """

    sending: Sending
    verdict: Verdict
    timeline: bytes
    reference: str = ""


class Hears(Protocol):
    """Who is told what came of settlements."""

    def settled(self, settlement: Settlement, result: Settled) -> None:
        """The holder's verdict was stored, or not."""
        ...

    def ended(self, settlement: Settlement, taken: Taken) -> None:
        """An end without a call has its claim, or something was in the way."""
        ...

    def failed(self, sending: Sending, error: Exception) -> None:
        """The claim of an end cannot be had."""
        ...

    def unheard(self, sending: Sending) -> None:
        """What came of a settlement could not be told: its record comes again."""
        ...


class _Asked(NamedTuple):
    """Somebody who waits to hear whether a fallback starts."""

    question: Question
    sending: Sending
    then: Callable[[Found], None]


class News(Protocol):
    """What calls said about a provider, told to all workers in the same trips: a breaker, a throttle."""

    def has_news(self) -> bool: ...

    def ask_record(self, trip: Trip) -> None:
        """Adds the telling to a trip."""
        ...

    def learn(self, reply: Any) -> None:
        """What came of it; a failure of its own is an exception in its place."""
        ...


class _Left(NamedTuple):
    """The mark that a delivery leaves no longer, and what is done then."""

    sending: Sending
    mark: Mark
    then: Callable[[], None]


class _Load(NamedTuple):
    """What one trip writes: verdicts, what is asked about fallbacks, marks of what is published, claims given back,
    what look-alikes are known by taken back.
    """

    batch: list[Settlement]
    asked: Sequence[_Asked]
    marks: Sequence[tuple[Bid, bytes]]
    returned: Sequence[tuple[Sending, bytes, Callable[[], None]]]
    left: Sequence[_Left]


@dataclass(frozen=True, slots=True)
class SettleOptions:
    """every_s: how long the first of a batch waits for others; at_most: batch size."""

    every_s: float = 0.005
    at_most: int = 200


class Settling:
    """The queue of what has to be written after calls."""

    def __init__(
        self,
        stores: Stores,
        guards: Guards,
        news: Sequence[News],
        tally: Tally,
        options: SettleOptions,
        gap: Callable[[str], Awaitable[None]] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._trips = stores.trips
        self._store = stores.claims
        self._fallbacks = stores.fallbacks
        self._guards = guards
        self._news_of = news
        self._tally = tally
        self._options = options
        self._gap = gap
        self._sleep = sleep
        self._waiting: list[Settlement] = []
        self._asked: list[_Asked] = []
        self._published: list[tuple[Bid, bytes]] = []
        self._given_back: list[tuple[Sending, bytes, Callable[[], None]]] = []
        self._left: list[_Left] = []
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, settlement: Settlement) -> None:
        self._waiting.append(settlement)
        self._wake()

    def ask(self, question: Question, sending: Sending, then: Callable[[Found], None]) -> None:
        """Asks for a fallback; `then` is told whether it starts, and starts here."""
        self._asked.append(_Asked(question, sending, then))
        self._wake()

    def published(self, bid: Bid, token: bytes) -> None:
        """The verdict is on the log: a copy of the record needs it no more."""
        self._published.append((bid, token))
        self._wake()

    def give_back(self, sending: Sending, token: bytes, then: Callable[[], None]) -> None:
        """No call is made under its claim, the one of this token; `then` is called once others can have it."""
        self._given_back.append((sending, token, then))
        self._wake()

    def take_back(self, sending: Sending, then: Callable[[], None]) -> None:
        """It ends or is held without a claim of its own: what its earlier calls have left goes first. `then` is called
        once nothing is left, mostly at once.
        """
        mark = self._guards.left(sending)
        if mark is None:
            then()
            return
        self._left.append(_Left(sending, mark, then))
        self._wake()

    async def run(self, hears: Hears) -> None:
        """Writes until it is cancelled; tells of each verdict."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self._sleep(self._options.every_s)
            await self._flush(hears)
            while len(self._waiting) >= self._options.at_most:
                await self._flush(hears)
            if self._waiting:
                self._news.set()
            if not self._news.is_set():
                self._idle.set()

    async def idle(self) -> None:
        """Returns once all that was added has been written."""
        await self._idle.wait()

    def _wake(self) -> None:
        self._idle.clear()
        self._news.set()

    async def _flush(self, hears: Hears) -> None:
        load = self._load()
        replies = await self._write(load)
        if load.batch and self._gap is not None:
            await self._gap("after_settle")
        if load.asked and self._gap is not None:
            await self._gap("after_fallback")
        self._look_up(load, replies)
        for settlement, reply in zip(load.batch, replies, strict=False):
            self._told(settlement, reply, hears)
        for asked, reply in zip(load.asked, replies[len(load.batch) :], strict=False):
            self._answered(asked, reply)
        for _, _, then in (*load.returned, *load.left):
            then()
        self._tally.tell()

    def _load(self) -> _Load:
        """What goes into the next trip."""
        at_most = self._options.at_most
        batch, self._waiting = self._waiting[:at_most], self._waiting[at_most:]
        load = _Load(batch, self._asked, self._published, self._given_back, self._left)
        self._asked, self._published, self._given_back, self._left = [], [], [], []
        return load

    async def _write(self, load: _Load) -> list[Any]:
        """The replies, those of the settlements first, then about fallbacks; tries until Redis answers. Repeating
        changes nothing.
        """
        pause_s = 0.05
        while True:
            trip = self._trips.begin()
            self._ask(trip, load)
            told = [one for one in self._news_of if one.has_news()]
            for one in told:
                one.ask_record(trip)
            try:
                replies = await trip.execute()
            except StoreDown as error:
                log.warning("settle.delayed", extra={"deliveries": len(load.batch), "error": str(error)})
                await self._sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
                continue
            for one, reply in zip(told, replies[len(replies) - len(told) :], strict=True):
                one.learn(reply)
            return replies

    def _ask(self, trip: Trip, load: _Load) -> None:
        store = self._store
        for sending, verdict, line, _ in load.batch:
            detail = verdicts.pack(soft_bounces.without(verdict))
            if sending.claim is None:
                store.ask_end(trip, sending.bid, verdict.claim_class, detail)
            else:
                store.ask_settle(trip, sending.bid, sending.claim, verdict.claim_class, detail, line)
        for question, _, _ in load.asked:
            self._fallbacks.ask(trip, question)
        for sending, verdict, *_ in _soft(load.batch):
            soft_bounces.ask(trip, sending, verdict)
        for bid, token in load.marks:
            store.ask_published(trip, bid, token)
        for sending, token, _ in load.returned:
            self._guards.ask_given_back(trip, sending, token)
            store.ask_give_back(trip, sending.bid, token, sending.taken_over())
        for sending, mark, _ in load.left:
            self._guards.ask_left(trip, sending, mark)
        for sending, verdict, _, reference in load.batch:
            if sending.claim is not None:
                self._guards.ask_settled(trip, sending, sending.claim.token, verdict)
            if reference:
                key = keys.redis_message(verdict.provider, verdict.provider_id)
                trip.execute_command("SET", key, reference, "EX", PROVIDER_ID_KEPT_S)

    def _look_up(self, load: _Load, replies: Sequence[Any]) -> None:
        """Gives soft bounces what follows for their addresses."""
        answers = iter(replies[len(load.batch) + len(load.asked) :])
        for number, settlement in enumerate(load.batch):
            if soft_bounces.is_one(settlement.verdict):
                verdict = soft_bounces.found(settlement.verdict, settlement.sending, next(answers))
                load.batch[number] = settlement._replace(verdict=verdict)

    def _told(self, settlement: Settlement, reply: Any, hears: Hears) -> None:
        is_end = settlement.sending.claim is None
        try:
            if isinstance(reply, Exception):
                if not is_end:
                    raise reply
                hears.failed(settlement.sending, reply)
            elif is_end:
                hears.ended(settlement, self._store.read_end(reply))
            else:
                hears.settled(settlement, self._store.read_settle(reply))
        except Exception:
            # A bug with one delivery must not stop the others. It comes again; its claim keeps it from being sent.
            log.exception("settle.broken", extra={"verdict": settlement.verdict.kind.value})
            hears.unheard(settlement.sending)

    def _answered(self, asked: _Asked, reply: Any) -> None:
        try:
            if isinstance(reply, Exception):
                raise reply
            asked.then(self._fallbacks.read(reply, asked.question))
        except Exception:
            # As above: what was decided is asked again, and the answer is the same.
            log.exception("fallback.broken", extra={"channel": asked.question.delivery.channel.value})
            asked.sending.finish(Defer(0))


def _soft(batch: Sequence[Settlement]) -> list[Settlement]:
    return [settlement for settlement in batch if soft_bounces.is_one(settlement.verdict)]
