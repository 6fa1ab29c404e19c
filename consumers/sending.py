"""One delivery on its way through a worker, what the steps share, and the rooms that bound how many there are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from consumers.breaker import Breaker, State
from consumers.caps import Caps, Place
from consumers.claims import Bid, Claims, Entry
from consumers.fallbacks import Fallbacks, Standing
from consumers.limits import Token, Tokens
from consumers.lookalikes import Lookalikes, Mark
from consumers.providers.contract import Provider
from consumers.throttles import Paused, Throttle
from consumers.turns import Turn
from retry_topics import ladder
from schemas import keys, metrics, stores
from schemas.messages import Delivery
from schemas.policies import TemplatePolicy
from schemas.records import Answer, AnswerTo, Record
from schemas.trips import Epoch, Trips


class Seat:
    """A provider with its breaker, its throttles, its pocket of tokens and its places: calls at the same time.

    seconds: how long its calls take.
    """

    __slots__ = ("breaker", "places", "pocket", "provider", "seconds", "throttle")

    def __init__(self, provider: Provider, breaker: Breaker, throttle: Throttle, pocket: Tokens, places: int) -> None:
        self.provider = provider
        self.breaker = breaker
        self.throttle = throttle
        self.pocket = pocket
        self.places = Room(places)
        self.seconds = metrics.CALL_SECONDS.labels(provider.name)


class Health(NamedTuple):
    """How a seat is at one look: its breaker, and with whom or what its provider wants to be left alone."""

    state: State
    paused: Paused


@dataclass(frozen=True, slots=True)
class Stores:
    """What a send asks of Redis."""

    trips: Trips
    epoch: Epoch
    claims: Claims
    profiles: stores.Profiles
    suppressions: stores.Suppressions
    fallbacks: Fallbacks
    caps: Caps
    lookalikes: Lookalikes


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """in_flight: deliveries taken from the lane and not answered. claims_at_once: in one round trip, so that no token
    dies in a long queue.

    deadline_s: hard end of a call; a claim with less than deadline_s + lease_margin_s left is given back.
    token_wait_s: how long a batch waits for tokens before it goes back to the lane for token_pause_ms;
    fresh_token_wait_s: how long the holder of a claim does whose token has died.
    leave_lane_ms: who has to wait longer waits in a tier; come_back_ms: at most, for a breaker. rechecks: how often
    one delivery may be sent back to the checks before it waits. store_pause_ms: before Redis is tried again.
    probe_pause_ms: while others probe. standby_share: of what the second provider gets while both are well. stay_ms:
    how long a call in doubt is repeated at its own provider only.
    gather_s: how long the first free place at the provider is held for others to go along in one round trip.
    """

    in_flight: int = 2_000
    claims_at_once: int = 100
    lease_s: float = 30.0
    deadline_s: float = 5.0
    lease_margin_s: float = 5.0
    token_wait_s: float = 1.0
    fresh_token_wait_s: float = 0.5
    token_pause_ms: int = 200
    leave_lane_ms: int = 5_000
    come_back_ms: int = 60_000
    rechecks: int = 3
    store_pause_ms: int = 1_000
    probe_pause_ms: int = 2_000
    gather_s: float = 0.004
    standby_share: float = 0.05
    stay_ms: int = 600_000
    ladder: ladder.LadderOptions = ladder.DEFAULT


@dataclass(slots=True)
class Sending:
    """What is known of one delivery so far; each step fills its part.

    seen: its claim at the look; None: nobody had claimed it. address, locale, zone: where it goes, in which language,
    and by whose clock. lapsed: calls of earlier holders that nobody heard of; lapsed_now: the last of them was not
    taken over yet.
    claim, lease_until_s (steady): once the claim is ours. mark_is_older: not this claim left the mark.
    is_ending: its end without a call is on the way into the claim, or its fallback is asked for. standing: whether
    another channel has taken its place. is_alone: called without Redis, under a claim that only this process knows of.
    """

    record: Record
    answer_to: AnswerTo
    room: Room
    delivery: Delivery
    bid: Bid
    policy: TemplatePolicy | None = None
    seen: Entry | None = None
    version: int = 0
    cancelled: bool = False
    lapsed: range = range(0)
    lapsed_now: bool = False
    address: str = ""
    locale: str = ""
    zone: str = ""
    token: Token | None = None
    is_probe: bool = False
    claim: Entry | None = None
    lease_until_s: float = 0.0
    place: Place | None = None
    mark: Mark | None = None
    mark_is_older: bool = False
    is_ending: bool = False
    standing: Standing = Standing.OPEN
    is_alone: bool = False
    is_answered: bool = False
    notification_id: str = ""

    def finish(self, answer: Answer) -> None:
        """Answers the record, once."""
        if not self.is_answered:
            self.is_answered = True
            self.room.give(1)
            self.answer_to(self.record, answer)

    def is_undecided(self) -> bool:
        """Nobody but the checks has it in hand: no call is under way, and no end; and it was not answered."""
        return self.claim is None and not self.is_ending and not self.is_answered

    def taken_over(self) -> Entry | None:
        """The claim of the newest call that nobody heard of, as it was at the look; None: there is no such call."""
        return self.seen if self.lapsed else None

    def named(self, ids: keys.Ids) -> str:
        """The public id of its notification."""
        if not self.notification_id:
            delivery = self.delivery
            self.notification_id = ids.notification_id(delivery.tenant, keys.Address(delivery.row, delivery.slot))
        return self.notification_id

    def known_policy(self) -> TemplatePolicy:
        assert self.policy is not None, "looked up before anything else"
        return self.policy

    def held_claim(self) -> Entry:
        assert self.claim is not None, "only the holder of a claim gets here"
        return self.claim


class Room:
    """A number of places; who finds none waits."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._left = asyncio.Event()
        self._turn = Turn()

    async def enter(self, count: int) -> None:
        """Places for all of them at once, even if that is more than there are: the next to come wait for it."""
        await self._some_free()
        self._free -= count

    async def take(self, wanted: int, gather_s: float, rank: int = 0) -> int:
        """As many places as there are, at least one and at most `wanted`.

        Where places come free one by one, the first is held for gather_s so that more can go together; who comes
        meanwhile waits its turn, or all who wait would share them out in crumbs. The lowest rank goes first.
        """
        await self._turn.take(rank)
        try:
            if self._free < wanted:
                await self._some_free()
                await asyncio.sleep(gather_s)
                await self._some_free()
            got = min(wanted, self._free)
            self._free -= got
        finally:
            self._turn.pass_on()
        return got

    def give(self, count: int) -> None:
        self._free += count
        self._left.set()

    async def _some_free(self) -> None:
        while self._free <= 0:
            self._left.clear()
            await self._left.wait()
