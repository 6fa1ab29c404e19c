"""What each guard around a send costs a delivery, in the worker and in Redis: its own commands, with nothing around.

Two round trips of a send as the worker makes them, a hundred deliveries each, on keys that nobody has used yet: once
without the guards that a template chooses, then with one of them. The difference is what that guard costs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from redis.asyncio import Redis

from benchmarks import load
from consumers import claims, verdicts
from consumers.caps import CapRules, RedisCaps
from consumers.claims import RedisClaims, VerdictClass
from consumers.guarding import Guards
from consumers.lookalikes import RedisLookalikes
from consumers.sending import Room, Sending
from consumers.verdicts import Verdict
from deploy import redis_client
from deploy.redis_trips import RedisTrips
from schemas import keys
from schemas.clock import Clock, SystemClock
from schemas.messages import Channel, EventKind
from schemas.policies import ContentCheck, MessageClass, TemplatePolicy
from schemas.records import Answer, Record
from schemas.trips import Epoch, Trips
from streams.recipients import RedisSuppressions

A_TRIP = 100
TURNS = 7
"""Each is measured so often, in turn; the least of them was disturbed least."""
_BARE = TemplatePolicy(load.TEMPLATE, MessageClass.MARKETING, (Channel.PUSH,), content_check=ContentCheck.OFF)
POLICIES = {
    "": _BARE,
    "look-alikes": replace(_BARE, content_check=ContentCheck.TEMPLATE),
    "cap": replace(_BARE, caps={"day": 3}),
}
_ENTRY = b"1700000000000\n" + 26 * b"n" + b"\npush\n00000000\norder\nsent\n"


class Cost(NamedTuple):
    """CPU of a delivery, us. bid: with the claim; settle: after the call. Each in the worker and in Redis."""

    bid_work: float
    bid_redis: float
    settle_work: float
    settle_redis: float


async def by_guard(url: str, count: int) -> tuple[dict[str, float], dict[str, float]]:
    """CPU us a delivery by guard: in the worker, in Redis. The database is emptied again and again."""
    found: dict[str, list[Cost]] = {name: [] for name in POLICIES}
    async with redis_client.connect(url, Epoch()) as client:
        for _ in range(TURNS):
            for name, policy in POLICIES.items():
                await client.flushdb()
                found[name].append(await _Sends(client, policy).cost(count))
        await client.flushdb()
    least = {name: Cost(*map(min, zip(*costs, strict=True))) for name, costs in found.items()}
    bare = least.pop("")
    work = {"claim": bare.bid_work, "settle": bare.settle_work}
    in_redis = {"claim": bare.bid_redis, "settle": bare.settle_redis}
    for name, cost in least.items():
        work[name] = cost.bid_work + cost.settle_work - bare.bid_work - bare.settle_work
        in_redis[name] = cost.bid_redis + cost.settle_redis - bare.bid_redis - bare.settle_redis
    return work, in_redis


class _Sends:
    """Sends of one template, but for their calls."""

    def __init__(self, client: Redis, policy: TemplatePolicy) -> None:
        clock: Clock = SystemClock()
        self._client = client
        self._policy = policy
        self._trips: Trips = RedisTrips(client, "bench")
        self._claims = RedisClaims(random.Random(1), claims.ClaimOptions())
        self._suppressions = RedisSuppressions(self._trips, Epoch())
        everything: frozenset[str] | None = None
        rules, ids = CapRules({}, {}), keys.Ids(b"bench")
        self._guards = Guards(RedisCaps(), RedisLookalikes(), rules, lambda template: everything, ids, clock)
        self._now_ms = clock.now_ms()
        self._verdict = Verdict(EventKind.SENT, self._now_ms, provider="gateway", provider_id="sim-1", called=True)

    async def cost(self, count: int) -> Cost:
        batches = list(self._batches(count))
        bid = await self._spent(self._bid, batches)
        settle = await self._spent(self._settle, batches)
        return Cost(*(used_us / sum(map(len, batches)) for used_us in (*bid, *settle)))

    def _batches(self, count: int) -> Iterator[list[Sending]]:
        for first in range(0, count, A_TRIP):
            yield [self._sending(number) for number in range(first, min(first + A_TRIP, count))]

    def _sending(self, number: int) -> Sending:
        delivery = load.delivery(Channel.PUSH, 0, number, self._now_ms)
        record = Record("push.bulk", 0, number, b"", b"", (), self._now_ms)
        address = f"token-{number:032}"
        return Sending(record, _nobody, Room(1), delivery, claims.bid_for(delivery), self._policy, address=address)

    async def _spent(
        self, step: Callable[[list[Sending]], Awaitable[None]], batches: Sequence[list[Sending]]
    ) -> tuple[float, float]:
        """CPU us of this thread, and of Redis."""
        redis_s, work_s = await self._redis_s(), time.thread_time()
        for batch in batches:
            await step(batch)
        work_s = time.thread_time() - work_s
        return work_s * 1e6, (await self._redis_s() - redis_s) * 1e6

    async def _redis_s(self) -> float:
        told = await self._client.info("cpu")
        return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])

    async def _bid(self, batch: list[Sending]) -> None:
        """As `consumers.bidding` does."""
        trip, asked = self._trips.begin(), []
        for sending in batch:
            delivery, bid = sending.delivery, sending.bid
            sending.claim = self._claims.ask_first(trip, bid, self._now_ms)
            self._claims.ask_version(trip, bid)
            self._claims.ask_cancelled(trip, bid)
            self._suppressions.ask(trip, delivery.tenant, delivery.channel, sending.address)
            asked.append(self._guards.ask(trip, sending, sending.claim.token))
        replies, at = await trip.execute(), 0
        for sending, guards in zip(batch, asked, strict=True):
            claim, version, cancelled, cause = replies[at : at + 4]
            found = (
                self._claims.read_first(claim),
                self._claims.read_version(version),
                self._claims.read_cancelled(cancelled),
                self._suppressions.read(cause),
                self._guards.found(sending, replies[at + 4 : at + 4 + guards]),
            )
            assert not any(found), "nothing is in the way"
            at += 4 + guards

    async def _settle(self, batch: list[Sending]) -> None:
        """As `consumers.settling` does, twice: the verdict, then that it is published."""
        trip = self._trips.begin()
        for sending in batch:
            mine, detail = sending.held_claim(), verdicts.pack(self._verdict)
            self._claims.ask_settle(trip, sending.bid, mine, VerdictClass.SENT, detail, _ENTRY)
        for sending in batch:
            self._guards.ask_settled(trip, sending, sending.held_claim().token, self._verdict)
        for reply in (await trip.execute())[: len(batch)]:
            assert self._claims.read_settle(reply) is claims.Settled.STORED
        trip = self._trips.begin()
        for sending in batch:
            self._claims.ask_published(trip, sending.bid, sending.held_claim().token)
        await trip.execute()


def _nobody(record: Record, answer: Answer) -> None:
    """Nobody waits for an answer."""
