"""Settles calls in batches: deliveries that finish within a few milliseconds share one round trip.

A verdict that cannot be stored is kept and tried again until it is: the call was made, and only the claim
keeps another worker from repeating it. What was settled is then announced by `lane_worker`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from consumers import verdicts
from consumers.breaker import Breaker
from consumers.claims import Bid, Settled
from consumers.round_trip import Trip
from consumers.sending import Sending, Stores
from consumers.verdicts import Verdict
from schemas import keys
from schemas.errors import StoreDown
from schemas.records import Defer

log = logging.getLogger(__name__)

PROVIDER_ID_KEPT_S = 7 * 86_400
LONGEST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Settlement:
    """A verdict on its way into the claim. reference: kept under the provider's message id; "" = not needed."""

    sending: Sending
    verdict: Verdict
    timeline: bytes
    reference: str = ""


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
        breakers: Sequence[Breaker],
        options: SettleOptions,
        gap: Callable[[str], Awaitable[None]] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._trips = stores.trips
        self._store = stores.claims
        self._breakers = breakers
        self._options = options
        self._gap = gap
        self._sleep = sleep
        self._waiting: list[Settlement] = []
        self._published: list[tuple[Bid, bytes]] = []
        self._given_back: list[tuple[Bid, bytes, Callable[[], None]]] = []
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, settlement: Settlement) -> None:
        self._waiting.append(settlement)
        self._wake()

    def published(self, bid: Bid, token: bytes) -> None:
        """The verdict is on the log: a copy of the record needs it no more."""
        self._published.append((bid, token))
        self._wake()

    def give_back(self, bid: Bid, token: bytes, then: Callable[[], None]) -> None:
        """No call is made under this claim; `then` is called once others can have it."""
        self._given_back.append((bid, token, then))
        self._wake()

    async def run(self, settled: Callable[[Settlement, Settled], None]) -> None:
        """Writes until it is cancelled; tells `settled` of each verdict."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self._sleep(self._options.every_s)
            while self._waiting or self._published or self._given_back:
                await self._flush(settled)
            if not self._news.is_set():
                self._idle.set()

    async def idle(self) -> None:
        """Returns once all that was added has been written."""
        await self._idle.wait()

    def _wake(self) -> None:
        self._idle.clear()
        self._news.set()

    async def _flush(self, settled: Callable[[Settlement, Settled], None]) -> None:
        at_most = self._options.at_most
        batch, self._waiting = self._waiting[:at_most], self._waiting[at_most:]
        marks, self._published = self._published, []
        returned, self._given_back = self._given_back, []
        replies = await self._write(batch, marks, returned)
        if batch and self._gap is not None:
            await self._gap("after_settle")
        for settlement, reply in zip(batch, replies, strict=False):
            self._told(settlement, reply, settled)
        for _, _, then in returned:
            then()

    async def _write(
        self,
        batch: Sequence[Settlement],
        marks: Sequence[tuple[Bid, bytes]],
        returned: Sequence[tuple[Bid, bytes, Callable[[], None]]],
    ) -> list[Any]:
        """The replies, those of the settlements first; tries until Redis answers. Repeating changes nothing."""
        pause_s = 0.05
        while True:
            trip = self._trips.begin()
            for settlement in batch:
                self._ask(trip, settlement)
            for bid, token in marks:
                self._store.ask_published(trip, bid, token)
            for bid, token, _ in returned:
                self._store.ask_give_back(trip, bid, token)
            self._ask_others(trip, batch)
            try:
                return await trip.execute()
            except StoreDown as error:
                log.warning("settle.delayed", extra={"deliveries": len(batch), "error": str(error)})
            await self._sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _ask(self, trip: Trip, settlement: Settlement) -> None:
        sending, verdict = settlement.sending, settlement.verdict
        token = sending.held_claim().token
        detail = verdicts.pack(verdict)
        self._store.ask_settle(trip, sending.bid, token, verdict.claim_class, detail, settlement.timeline)

    def _ask_others(self, trip: Trip, batch: Sequence[Settlement]) -> None:
        for settlement in batch:
            if settlement.reference:
                key = keys.redis_message(settlement.verdict.provider, settlement.verdict.provider_id)
                trip.execute_command("SET", key, settlement.reference, "EX", PROVIDER_ID_KEPT_S)
        for breaker in self._breakers:
            if breaker.has_news():
                breaker.ask_record(trip)

    def _told(self, settlement: Settlement, reply: Any, settled: Callable[[Settlement, Settled], None]) -> None:
        try:
            if isinstance(reply, Exception):
                raise reply
            settled(settlement, self._store.read_settle(reply))
        except Exception:
            # A bug with one delivery must not stop the others. It comes again; its claim keeps it from being sent.
            log.exception("settle.broken", extra={"verdict": settlement.verdict.kind.value})
            settlement.sending.finish(Defer(0))
