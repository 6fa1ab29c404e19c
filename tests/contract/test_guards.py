"""Places under caps and marks of look-alikes: the body in memory beside the one in Redis, on random histories."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from consumers import caps, claims, lookalikes
from consumers.caps import Cap, Caps, Place, Reserved
from consumers.claims import Bid, Claims, VerdictClass
from consumers.lookalikes import Lookalikes, Mark
from deploy.redis_trips import RedisTrips
from schemas import keys
from schemas.messages import Delivery
from schemas.policies import ContentCheck, MessageClass, TemplatePolicy
from schemas.trips import Trips
from tests.doubles import deliveries
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_claims import MemoryClaims
from tests.doubles.memory_guards import MemoryCaps, MemoryLookalikes
from tests.doubles.memory_trips import MemoryTrips

SALE = TemplatePolicy("sale", MessageClass.MARKETING, (), caps={"day": 2})


class Body:
    """One body of the ports, and time. Claims are always taken first: places and marks go with them."""

    claims: Claims
    caps: Caps
    marks: Lookalikes
    trips: Trips

    async def ask(self, method: Callable[..., Any], *args: Any) -> Any:
        trip = self.trips.begin()
        method(trip, *args)
        replies = await trip.execute()
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies[-1]

    async def claim(self, bid: Bid) -> bytes:
        """The token of a claim that is ours."""
        taken = self.claims.read_take(await self.ask(self.claims.ask_take, bid, 0, False))
        assert taken.answer in (claims.Answer.CLAIMED, claims.Answer.TAKEOVER) and taken.entry is not None
        return taken.entry.token

    async def reserve(self, bid: Bid, token: bytes, place: Place) -> Reserved:
        reply = await self.ask(self.caps.ask_reserve, bid.claim_key, token, place)
        return self.caps.read_reserve(reply, place)

    async def settle(self, bid: Bid, token: bytes, place: Place, is_sent: bool) -> None:
        await self.ask(self.caps.ask_settle, bid.claim_key, token, place, is_sent)
        mine, _ = self.claims.read_seen(await self.ask(self.claims.ask_seen, bid))
        assert mine is not None and mine.token == token
        await self.ask(self.claims.ask_settle, bid, mine, VerdictClass.ENDED, b"", b"")

    async def lapse(self, bids: list[Bid], places: list[Place]) -> None:
        """The leases of all these run out."""
        raise NotImplementedError


class InMemory(Body):
    def __init__(self) -> None:
        self.clock = ManualClock()
        held = MemoryClaims(self.clock)
        self.claims, self.trips = held, MemoryTrips()
        self.caps, self.marks = MemoryCaps(held, self.clock), MemoryLookalikes(held, self.clock)

    async def lapse(self, bids: list[Bid], places: list[Place]) -> None:
        self.clock.advance(30_001)


class InRedis(Body):
    """Leases lapse by moving what is stored back in time: nobody has to wait for it."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.claims: Claims = claims.RedisClaims(random.Random(7), claims.ClaimOptions())
        self.trips: Trips = RedisTrips(redis, "guards")
        self.caps, self.marks = caps.RedisCaps(), lookalikes.RedisLookalikes()

    async def lapse(self, bids: list[Bid], places: list[Place]) -> None:
        for key in {bid.claim_key for bid in bids}:
            raw = await self.redis.get(key)
            if raw is not None:
                await self.redis.set(key, raw[:4] + bytes(6) + raw[10:], keepttl=True)
        for name in {cap.key for place in places for cap in place.caps}:
            for member, score in await self.redis.zrange(name, 0, -1, withscores=True):
                await self.redis.zadd(name, {member: min(score, 1) if score != float("inf") else score})


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()


@pytest.fixture(params=["memory", "redis"])
def body(request: pytest.FixtureRequest) -> Body:
    return InMemory() if request.param == "memory" else InRedis(request.getfixturevalue("redis"))


@pytest.fixture
def user() -> str:
    """Whom nobody else in this run knows."""
    return uuid.uuid4().hex[:12]


def wanted(user: str, event: str, device: str = "", most: tuple[int, ...] = (2,)) -> tuple[Bid, Place]:
    delivery = deliveries.single(user_id=user, event_id=event, device=device)
    kinds = [(f"/{n}", most_of_it) for n, most_of_it in enumerate(most)]
    cap = tuple(Cap(kind, limit, keys.redis_cap("default", user, kind, "2026-10-31")) for kind, limit in kinds)
    rules = caps.CapRules({}, {})
    place = rules.place(delivery, SALE, "", 0)
    assert place is not None
    return claims.bid_for(delivery), place._replace(caps=cap)


class TestPlaces:
    async def sent(self, body: Body, bid: Bid, place: Place, is_sent: bool = True) -> Reserved:
        token = await body.claim(bid)
        reserved = await body.reserve(bid, token, place)
        await body.settle(bid, token, place, is_sent)
        return reserved

    async def test_a_cap_that_was_used_up_is_full(self, body: Body, user: str) -> None:
        for event in "ab":
            assert await self.sent(body, *wanted(user, event)) == Reserved()
        bid, place = wanted(user, "c")
        assert await body.reserve(bid, await body.claim(bid), place) == Reserved(full=place.caps[0])

    async def test_places_only_reserved_are_waited_for(self, body: Body, user: str) -> None:
        for event in "ab":
            bid, place = wanted(user, event)
            assert await body.reserve(bid, await body.claim(bid), place) == Reserved()
        bid, place = wanted(user, "c")
        found = await body.reserve(bid, await body.claim(bid), place)
        assert found.full is None and 0 < found.wait_ms <= 30_000

    async def test_what_was_not_sent_leaves_its_place(self, body: Body, user: str) -> None:
        for event in "abcd":
            assert await self.sent(body, *wanted(user, event), is_sent=False) == Reserved()

    async def test_the_devices_of_a_push_count_once(self, body: Body, user: str) -> None:
        for device in ("phone", "tablet", "watch"):
            assert await self.sent(body, *wanted(user, "a", device, most=(1,))) == Reserved()
        assert (await self.sent(body, *wanted(user, "b", "phone", most=(1,)))).full is not None

    async def test_one_device_that_fails_does_not_free_the_place_of_the_others(self, body: Body, user: str) -> None:
        await self.sent(body, *wanted(user, "a", "phone", most=(1,)))
        await self.sent(body, *wanted(user, "a", "tablet", most=(1,)), is_sent=False)
        assert (await self.sent(body, *wanted(user, "b", "phone", most=(1,)))).full is not None

    async def test_two_caps_are_reserved_together_or_not_at_all(self, body: Body, user: str) -> None:
        await self.sent(body, *wanted(user, "a", most=(2, 1)))
        for event in "bc":
            bid, place = wanted(user, event, most=(2, 1))
            assert await body.reserve(bid, await body.claim(bid), place) == Reserved(full=place.caps[1])
        bid, place = wanted(user, "d", most=(2,))
        assert await body.reserve(bid, await body.claim(bid), place) == Reserved()

    async def test_a_call_that_nobody_heard_of_counts_and_is_never_given_back(self, body: Body, user: str) -> None:
        bid, place = wanted(user, "a", most=(1,))
        await body.reserve(bid, await body.claim(bid), place)
        await body.lapse([bid], [place])
        other, theirs = wanted(user, "b", most=(1,))
        assert (await body.reserve(other, await body.claim(other), theirs)).full is not None
        assert await self.sent(body, bid, place, is_sent=False) == Reserved()
        again, ours = wanted(user, "c", most=(1,))
        assert (await body.reserve(again, await body.claim(again), ours)).full is not None

    async def test_who_lost_the_claim_gives_nothing_back(self, body: Body, user: str) -> None:
        """A worker that did not hear of its first try gives the place back again, when the next one has it."""
        bid, place = wanted(user, "a", most=(1,))
        late = await body.claim(bid)
        await body.reserve(bid, late, place)
        await body.ask(body.caps.ask_settle, bid.claim_key, late, place, False)
        await body.ask(body.claims.ask_give_back, bid, late)
        assert await body.reserve(bid, await body.claim(bid), place) == Reserved()
        await body.ask(body.caps.ask_settle, bid.claim_key, late, place, False)
        other, theirs = wanted(user, "b", most=(1,))
        assert await body.reserve(other, await body.claim(other), theirs) != Reserved()

    async def test_without_the_claim_nothing_is_reserved(self, body: Body, user: str) -> None:
        bid, place = wanted(user, "a", most=(1,))
        await body.claim(bid)
        assert (await body.reserve(bid, b"none", place)).wait_ms == 1
        other, theirs = wanted(user, "b", most=(1,))
        assert await body.reserve(other, await body.claim(other), theirs) == Reserved()


async def test_a_days_count_ends_by_itself_two_days_later(redis: Redis, user: str) -> None:
    body = InRedis(redis)
    bid, place = wanted(user, "a")
    token = await body.claim(bid)
    for act in (body.reserve(bid, token, place), body.settle(bid, token, place, is_sent=True)):
        await act
        assert 48 * 3_600 < await redis.ttl(place.caps[0].key) <= 51 * 3_600


async def test_a_count_that_redis_lost_during_the_call_does_not_come_back_for_ever(redis: Redis, user: str) -> None:
    body = InRedis(redis)
    bid, place = wanted(user, "a")
    token = await body.claim(bid)
    await body.reserve(bid, token, place)
    await redis.delete(place.caps[0].key)
    await body.settle(bid, token, place, is_sent=True)
    assert await redis.ttl(place.caps[0].key) != -1


STEP = st.tuples(st.sampled_from(["claim", "sent", "failed", "lapse"]), st.integers(0, 5), st.sampled_from(("", "x")))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(STEP, max_size=30), most=st.sampled_from(((1,), (2,), (3, 2))))
async def test_both_bodies_answer_alike_and_no_cap_is_ever_exceeded(
    redis_url: str, history: list[tuple[str, int, str]], most: tuple[int, ...]
) -> None:
    user = uuid.uuid4().hex[:12]
    async with Redis.from_url(redis_url) as client:
        told = [await _played(body, user, history, most) for body in (InMemory(), InRedis(client))]
    assert told[0] == told[1]


async def _played(body: Body, user: str, history: list[tuple[str, int, str]], most: tuple[int, ...]) -> list[Any]:
    """What each step came to. Who got a place and may have sent counts; more than the cap never do."""
    open_calls: dict[tuple[int, str], bytes] = {}
    gone: set[int] = set()
    told: list[Any] = []
    for act, number, device in history:
        bid, place = wanted(user, str(number), device, most)
        token = open_calls.get((number, device))
        if act == "claim" and token is None:
            taken = body.claims.read_take(await body.ask(body.claims.ask_take, bid, 0, False))
            told.append(taken.answer)
            if taken.answer in (claims.Answer.CLAIMED, claims.Answer.TAKEOVER) and taken.entry is not None:
                reserved = await body.reserve(bid, taken.entry.token, place)
                told.append((reserved.full and reserved.full.kind, bool(reserved.wait_ms)))
                if reserved == Reserved():
                    open_calls[number, device] = taken.entry.token
                else:
                    await body.ask(body.claims.ask_give_back, bid, taken.entry.token)
        elif act in ("sent", "failed") and token is not None:
            del open_calls[number, device]
            gone |= {number} if act == "sent" else set()
            await body.settle(bid, token, place, act == "sent")
        elif act == "lapse":
            gone |= {one for one, _ in open_calls}
            everything = [wanted(user, str(one), name, most) for one, name in open_calls]
            await body.lapse([one for one, _ in everything], [one for _, one in everything])
            open_calls.clear()
        assert len(gone | {one for one, _ in open_calls}) <= min(most)
    return told


class TestMarks:
    def marked(self, user: str, event: str, **changes: Any) -> tuple[Bid, Mark]:
        content_check = changes.pop("content_check", ContentCheck.TEMPLATE)
        delivery: Delivery = deliveries.single(user_id=user, event_id=event, **changes)
        bid = claims.bid_for(delivery)
        policy = TemplatePolicy("sale", MessageClass.MARKETING, (), content_check=content_check)
        mark = lookalikes.mark_of(delivery, policy, bid.address, lambda template: None)
        assert mark is not None
        return bid, mark

    async def other(self, body: Body, mark: Mark) -> Any:
        return body.marks.read_mark(await body.ask(body.marks.ask_mark, mark), mark)

    async def test_another_intent_finds_the_mark_and_whose_it_is(self, body: Body, user: str) -> None:
        bid, mark = self.marked(user, "a")
        assert await self.other(body, mark) is None
        found = await self.other(body, self.marked(user, "b")[1])
        assert (found.place, found.campaign_id) == (bid.address, "")

    async def test_the_same_intent_is_not_in_its_own_way(self, body: Body, user: str) -> None:
        for device in ("phone", "tablet"):
            assert await self.other(body, self.marked(user, "a", device=device)[1]) is None

    async def test_by_params_only_the_same_values_look_alike(self, body: Body, user: str) -> None:
        def by_params(event: str, params: str) -> Mark:
            return self.marked(user, event, params=params, content_check=ContentCheck.PARAMS)[1]

        assert await self.other(body, by_params("a", '{"name": "Ada", "n": 1}')) is None
        assert await self.other(body, by_params("b", '{"name": "Ada", "n": 2}')) is None
        assert await self.other(body, by_params("c", '{"n":1,"name":"Ada"}')) is not None

    async def test_a_forced_one_passes_and_leaves_its_own_mark_once_it_was_sent(self, body: Body, user: str) -> None:
        await self.other(body, self.marked(user, "a")[1])
        forced, mark = self.marked(user, "b", force=True)
        assert await self.other(body, mark) is None
        await body.ask(body.marks.ask_sent, mark)
        assert (await self.other(body, self.marked(user, "c")[1])).place == forced.address

    async def test_a_mark_is_taken_back_by_the_holder_of_the_claim_alone(self, body: Body, user: str) -> None:
        bid, mark = self.marked(user, "a")
        token = await body.claim(bid)
        await self.other(body, mark)
        await body.ask(body.marks.ask_withdraw, bid.claim_key, b"none", mark)
        other = self.marked(user, "b")[1]
        assert await self.other(body, other) is not None
        await body.ask(body.marks.ask_withdraw, bid.claim_key, token, mark)
        assert await self.other(body, other) is None
        await body.ask(body.marks.ask_withdraw, bid.claim_key, token, mark)
        assert await self.other(body, self.marked(user, "c")[1]) is not None, "only one's own"


async def test_a_mark_ends_by_itself_after_ten_minutes(redis: Redis, user: str) -> None:
    body, marks = InRedis(redis), TestMarks()
    _, mark = marks.marked(user, "a")
    await marks.other(body, mark)
    assert 590_000 < await redis.pttl(mark.key) <= 600_000


async def test_sixty_four_workers_at_once_never_exceed_a_cap_and_use_it_up(redis: Redis) -> None:
    """Each tries until it was sent or the cap is full of what was."""
    user, body = uuid.uuid4().hex[:12], InRedis(redis)
    sent: list[int] = []
    at_work = most_at_work = 0

    async def worker(number: int) -> str:
        nonlocal at_work, most_at_work
        bid, place = wanted(user, str(number), most=(7,))
        rng = random.Random(number)
        while True:
            token = await body.claim(bid)
            reserved = await body.reserve(bid, token, place)
            if reserved.full is not None:
                return "capped"
            if reserved.wait_ms:
                await body.ask(body.claims.ask_give_back, bid, token)
                continue
            at_work += 1
            most_at_work = max(most_at_work, at_work)
            assert len(sent) + at_work <= 7
            await asyncio.sleep(0)
            at_work -= 1
            is_sent = rng.random() < 0.5
            sent.extend([number] if is_sent else [])
            await body.ask(body.caps.ask_settle, bid.claim_key, token, place, is_sent)
            await body.ask(body.claims.ask_give_back, bid, token)
            if is_sent:
                return "sent"

    ends = await asyncio.gather(*map(worker, range(64)))
    assert ends.count("sent") == len(sent) == 7 and ends.count("capped") == 57
    assert most_at_work > 1, "they were at it together"
