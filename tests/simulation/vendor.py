"""The providers: what they accept, what they answer, and what they report later. Their ledger is the truth.

A vendor answers as its mood says; faults change the mood for a while. What it accepted it reports to the webhook,
which is played here: late, twice and out of order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from consumers.limits import Rate
from consumers.providers.contract import Call, Way
from schemas import codec, keys
from schemas.messages import RawCallback
from schemas.outcomes import Kind, Outcome
from schemas.records import Outgoing
from schemas.topics import Topics
from tests.doubles.manual_clock import START_MS
from tests.simulation.loop import Process, current
from tests.simulation.network import Network

IDS = keys.Ids(b"a secret of the simulation")


class Asked(NamedTuple):
    """One call as the vendor saw it. began_s: when it left the worker."""

    began_s: float
    process: str
    call: Call
    accepted: bool

    @property
    def address(self) -> keys.Address:
        """Where its status lives."""
        found = IDS.address(self.call.tenant, self.call.notification_id)
        assert found is not None, "an id that is not ours"
        return found

    @property
    def name(self) -> str:
        """Of the delivery, inside its slot."""
        return self.call.delivery_key.rpartition(":")[2]


@dataclass(slots=True)
class Mood:
    """Shares of calls that end this way; the rest is accepted and answered. lost: accepted, the answer is lost;
    silent: no answer for a long time, accepted or not; refused: not processed at all.
    """

    error: float = 0.0
    lost: float = 0.0
    silent: float = 0.0
    throttle: float = 0.0
    refused: float = 0.0
    drop: float = 0.0


@dataclass
class Vendor:
    """One provider. rate: what it lets through; dead: addresses it knows as dead."""

    name: str
    rate: Rate
    network: Network
    topics: Topics
    rng: random.Random
    mood: Mood = field(default_factory=Mood)
    dead: set[str] = field(default_factory=set)
    asked: list[Asked] = field(default_factory=list)
    reports_to_come: int = 0
    on_asked: Callable[[Asked], None] = lambda asked: None

    def take(self, call: Call, process: Process, began_s: float) -> tuple[Outcome | None, float]:
        """The answer, and how long it takes; None: there is none."""
        rng, mood = self.rng, self.mood
        takes_s = rng.uniform(0.005, 0.05)
        chance = rng.random()
        outcome: Outcome | None
        if call.to in self.dead:
            outcome, accepted = Outcome(Kind.DEAD_ADDRESS), False
        elif (chance := chance - mood.error) < 0:
            outcome, accepted = Outcome(Kind.RETRY, detail="500"), False
        elif (chance := chance - mood.throttle) < 0:
            outcome, accepted = Outcome(Kind.THROTTLE, retry_after_ms=1_000), False
        elif (chance := chance - mood.refused) < 0:
            outcome, accepted = Outcome(Kind.NOT_PROCESSED), False
        elif (chance := chance - mood.drop) < 0:
            outcome, accepted = Outcome(Kind.DROP, detail="400"), False
        elif (chance := chance - mood.lost) < 0:
            outcome, accepted = Outcome(Kind.UNKNOWN, detail="connection lost"), True
        elif (chance := chance - mood.silent) < 0:
            outcome, accepted = None, rng.random() < 0.5
        else:
            outcome, accepted = Outcome(Kind.DONE, f"{self.name}-{len(self.asked)}"), True
        asked = Asked(began_s, process.name, call, accepted)
        self.asked.append(asked)
        self.on_asked(asked)
        if accepted:
            self._report(asked, outcome.provider_id if outcome else "")
        return outcome, takes_s

    def _report(self, asked: Asked, provider_id: str) -> None:
        chance = self.rng.random()
        kind = "delivered" if chance < 0.7 else "bounced" if chance < 0.73 else "undelivered" if chance < 0.75 else ""
        if not kind:
            return
        told = [kind]
        if kind == "delivered" and self.rng.random() < 0.03:
            told.append("complained")
        told += [again for again in told if self.rng.random() < 0.1]
        for one in told:
            late_s = self.rng.uniform(0.01, 1.0) if self.rng.random() < 0.8 else self.rng.uniform(1.0, 8.0)
            report = {"type": one, "reference": asked.call.reference, "id": provider_id}
            self.reports_to_come += 1
            self.network.in_world(late_s, self._post, orjson.dumps(report), provider_id)

    def _post(self, body: bytes, provider_id: str) -> None:
        """The webhook, which answers only when the log has it; until then the vendor tries again."""
        if self.network.log_away:
            self.network.in_world(1.0, self._post, body, provider_id)
            return
        self.reports_to_come -= 1
        now_ms = START_MS + int(self.network.loop.time() * 1000)
        raw = RawCallback("default", self.name, body, {}, now_ms)
        self.network.log.append(Outgoing(self.topics.callbacks, provider_id.encode(), codec.encode(raw)))


class Client:
    """Provider port: one process's connections to a vendor."""

    carries_reference = True

    def __init__(self, vendor: Vendor) -> None:
        self.name = vendor.name
        self._vendor = vendor

    async def reach(self) -> Way | Outcome:
        return self

    def leave(self) -> None:
        return None

    async def send(self, call: Call) -> Outcome:
        vendor, process = self._vendor, current()
        loop = vendor.network.loop
        answered: asyncio.Future[Outcome] = loop.create_future()
        vendor.network.in_world(vendor.network.way_s(), self._arrive, call, process, loop.time(), answered)
        return await answered

    def _arrive(self, call: Call, process: Process, began_s: float, answered: asyncio.Future[Outcome]) -> None:
        outcome, takes_s = self._vendor.take(call, process, began_s)
        if outcome is not None:
            loop = self._vendor.network.loop
            loop.call_later(takes_s, _answer, answered, outcome, context=process.context)

    async def close(self) -> None:
        return None


def _answer(answered: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not answered.done():
        answered.set_result(outcome)
