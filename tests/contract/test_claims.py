"""Claims: the in-memory body beside the one in Redis, and both against each other on random histories."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from consumers import cancellations, claims
from consumers.claims import Answer, Bid, Claims, Entry, Settled, Taken, VerdictClass
from deploy.redis_trips import RedisTrips
from schemas import keys
from schemas.messages import Channel
from schemas.trips import Epoch, Trips
from streams import planning
from streams.planning import Part, Plan
from tests.doubles import deliveries
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_claims import MemoryClaims
from tests.doubles.memory_trips import MemoryTrips


class Bench(Protocol):
    """One body of the port, and the hands of those who change the world around it."""

    claims: Claims
    trips: Trips

    async def lapse(self, bid: Bid) -> None: ...
    async def change_profile(self, bid: Bid, version: int) -> None: ...
    async def cancel(self, bid: Bid) -> None: ...
    async def timeline(self, bid: Bid) -> list[bytes]: ...
    async def passes(self) -> None:
        """Time, a little."""
        ...

    async def keep(self, bid: Bid) -> Any:
        """The claim as Redis may come back with it later."""
        ...

    async def set_back(self, bid: Bid, kept: Any) -> None: ...


class MemoryBench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.body = MemoryClaims(self.clock)
        self.claims: Claims = self.body
        self.trips: Trips = MemoryTrips()

    async def lapse(self, bid: Bid) -> None:
        self.clock.advance(30_001)

    async def change_profile(self, bid: Bid, version: int) -> None:
        self.body.versions[bid.profile_key] = version

    async def cancel(self, bid: Bid) -> None:
        self.body.cancelled.add(bid.cancel_key)

    async def timeline(self, bid: Bid) -> list[bytes]:
        return self.body.timelines.get(bid.timeline_key, [])

    async def passes(self) -> None:
        self.clock.advance(2)

    async def keep(self, bid: Bid) -> Any:
        return self.body.entries[bid.claim_key]

    async def set_back(self, bid: Bid, kept: Any) -> None:
        self.body.entries.pop(bid.claim_key, None)
        if kept is not None:
            self.body.entries[bid.claim_key] = kept


class RedisBench:
    """A lease lapses here by moving its end back in the stored bytes: nobody has to wait for it."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.claims: Claims = claims.RedisClaims(random.Random(7), claims.ClaimOptions())
        self.trips: Trips = RedisTrips(redis, "claims")

    async def lapse(self, bid: Bid) -> None:
        raw = await self.redis.get(bid.claim_key)
        if raw is not None:
            await self.redis.set(bid.claim_key, raw[:4] + bytes(6) + raw[10:], keepttl=True)

    async def change_profile(self, bid: Bid, version: int) -> None:
        await self.redis.hset(bid.profile_key, "v", str(version))  # type: ignore[misc]

    async def cancel(self, bid: Bid) -> None:
        await self.redis.set(bid.cancel_key, 1, ex=600)

    async def timeline(self, bid: Bid) -> list[bytes]:
        return list(await self.redis.lrange(bid.timeline_key, 0, -1))  # type: ignore[misc]

    async def passes(self) -> None:
        await asyncio.sleep(0.002)

    async def keep(self, bid: Bid) -> Any:
        return await self.redis.get(bid.claim_key)

    async def set_back(self, bid: Bid, kept: Any) -> None:
        await self.redis.delete(bid.claim_key)
        if kept is not None:
            await self.redis.set(bid.claim_key, kept, ex=86_400)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()


@pytest.fixture(params=["memory", "redis"])
def bench(request: pytest.FixtureRequest) -> Bench:
    if request.param == "memory":
        return MemoryBench()
    return RedisBench(request.getfixturevalue("redis"))


@pytest.fixture
def bid() -> Bid:
    """Of a user nobody else in this run knows."""
    return claims.bid_for(deliveries.single(user_id=uuid.uuid4().hex[:12]))


async def one(bench: Bench, method: str, *args: Any) -> Any:
    trip = bench.trips.begin()
    getattr(bench.claims, f"ask_{method}")(trip, *args)
    return (await trip.execute())[0]


async def take(bench: Bench, bid: Bid, version: int = 0, cancelled: bool = False) -> Taken:
    return bench.claims.read_take(await one(bench, "take", bid, version, cancelled))


async def first(bench: Bench, bid: Bid) -> tuple[Entry, Entry | None]:
    """The claim bid for, and the one in its way."""
    now_ms = bench.claims.read_now(await one(bench, "now"))
    trip = bench.trips.begin()
    mine = bench.claims.ask_first(trip, bid, now_ms)
    return mine, bench.claims.read_first((await trip.execute())[0])


async def entry_of(bench: Bench, bid: Bid) -> Entry:
    entry, _ = bench.claims.read_seen(await one(bench, "seen", bid))
    assert entry is not None
    return entry


async def settle(bench: Bench, bid: Bid, mine: Entry, verdict: VerdictClass, line: bytes = b"") -> Settled:
    return bench.claims.read_settle(await one(bench, "settle", bid, mine, verdict, b"what happened", line))


async def end(bench: Bench, bid: Bid) -> Taken:
    return bench.claims.read_end(await one(bench, "end", bid, VerdictClass.ENDED, b"no address"))


async def token_of(bench: Bench, bid: Bid) -> bytes:
    return (await entry_of(bench, bid)).token


async def test_the_first_record_gets_the_claim_and_a_second_sees_that_it_is_being_sent(bench: Bench, bid: Bid) -> None:
    first = await take(bench, bid)
    assert first.answer is Answer.CLAIMED
    assert first.entry is not None and first.entry.call == 1 and first.entry.takeovers == 0
    assert (await take(bench, bid)).answer is Answer.SENDING
    now_ms = bench.claims.read_now(await one(bench, "now"))
    assert 29_000 < first.entry.lease_end_ms - now_ms <= 30_000


async def test_a_claim_that_nobody_had_is_the_first_bidders_and_later_ones_see_it(bench: Bench, bid: Bid) -> None:
    mine, in_the_way = await first(bench, bid)
    assert in_the_way is None
    assert await entry_of(bench, bid) == mine
    assert (mine.call, mine.takeovers, mine.is_open()) == (1, 0, True)
    now_ms = bench.claims.read_now(await one(bench, "now"))
    assert 29_000 < mine.lease_end_ms - now_ms <= 30_000
    _, in_the_way = await first(bench, bid)
    assert in_the_way == mine == await entry_of(bench, bid)
    assert (await take(bench, bid)).answer is Answer.SENDING
    assert await settle(bench, bid, mine, VerdictClass.SENT) is Settled.STORED


async def test_whoever_bids_for_a_first_claim_learns_of_the_newest_profile_and_cancel(bench: Bench, bid: Bid) -> None:
    assert bench.claims.read_version(await one(bench, "version", bid)) == 0
    await bench.change_profile(bid, 5)
    assert bench.claims.read_version(await one(bench, "version", bid)) == 5


async def test_another_address_with_the_same_intent_is_a_duplicate_and_names_the_first(bench: Bench, bid: Bid) -> None:
    await take(bench, bid)
    other = bid._replace(address=claims.packed_address(keys.single_address(deliveries.EPOCH, 3, 99)))
    answer = await take(bench, other)
    assert answer.answer is Answer.DUPLICATE_OF
    assert answer.entry is not None
    assert claims.unpacked_address(answer.entry.address, "") == keys.single_address(deliveries.EPOCH, 3, 35)


async def test_a_record_overtaken_by_a_later_one_is_stale(bench: Bench, bid: Bid) -> None:
    await take(bench, bid._replace(record_call=3))
    assert (await take(bench, bid._replace(record_call=2))).answer is Answer.STALE
    await bench.lapse(bid)
    await take(bench, bid._replace(generation=1))
    assert (await take(bench, bid._replace(generation=0, record_call=9))).answer is Answer.STALE


async def test_a_settled_call_answers_its_own_record_with_the_stored_verdict(bench: Bench, bid: Bid) -> None:
    await take(bench, bid)
    assert await settle(bench, bid, await entry_of(bench, bid), VerdictClass.WAITING) is Settled.STORED
    answer = await take(bench, bid)
    assert answer.answer is Answer.FINISHED_SAME
    assert answer.entry is not None and answer.entry.detail == b"what happened" and not answer.entry.published


async def test_the_next_record_after_a_wait_gets_the_claim_with_its_own_number(bench: Bench, bid: Bid) -> None:
    await take(bench, bid)
    await settle(bench, bid, await entry_of(bench, bid), VerdictClass.WAITING)
    answer = await take(bench, bid._replace(record_call=2))
    assert answer.answer is Answer.CLAIMED
    assert answer.entry is not None and answer.entry.call == 2


async def test_what_was_sent_is_never_sent_again_except_by_a_forced_redrive(bench: Bench, bid: Bid) -> None:
    await take(bench, bid)
    await settle(bench, bid, await entry_of(bench, bid), VerdictClass.SENT)
    later = bid._replace(record_call=2)
    assert (await take(bench, later)).answer is Answer.FINISHED_SAME
    redrive = bid._replace(generation=1, record_call=2)
    assert (await take(bench, redrive)).answer is Answer.FINISHED_SAME
    assert (await take(bench, bid._replace(forced=True))).answer is Answer.FINISHED_SAME
    assert (await take(bench, redrive._replace(forced=True))).answer is Answer.CLAIMED


async def test_a_lapsed_lease_is_taken_over_with_the_next_call_number_and_counted(bench: Bench, bid: Bid) -> None:
    await take(bench, bid)
    for takeovers in (1, 2, 3, 3):
        await bench.lapse(bid)
        answer = await take(bench, bid)
        assert answer.answer is Answer.TAKEOVER
        assert answer.entry is not None
        assert (answer.entry.call, answer.entry.takeovers) == (1 + takeovers, takeovers)


async def test_a_claim_names_the_provider_that_its_holder_calls_and_when_the_lease_ends_also_given_back(
    bench: Bench, bid: Bid
) -> None:
    taken = bench.claims.read_take(await one(bench, "take", bid, 0, False, 3))
    assert taken.entry is not None and taken.entry.seat == 3
    await one(bench, "give_back", bid, taken.entry.token)
    given_back = await entry_of(bench, bid)
    assert (given_back.seat, given_back.lease_end_ms) == (3, taken.entry.lease_end_ms)
    other = bid._replace(claim_key=bid.claim_key + b"-other")
    assert bench.claims.ask_first(bench.trips.begin(), other, 0, 2).seat == 2


async def test_a_claim_given_back_that_was_taken_over_names_the_call_in_doubt_again_and_when_its_lease_ended(
    bench: Bench, bid: Bid
) -> None:
    dead = bench.claims.read_take(await one(bench, "take", bid, 0, False, 1)).entry
    await bench.lapse(bid)
    lapsed = await entry_of(bench, bid)
    mine = bench.claims.read_take(await one(bench, "take", bid, 0, False, 3)).entry
    assert dead is not None and mine is not None
    await one(bench, "give_back", bid, mine.token, lapsed)
    given_back = await entry_of(bench, bid)
    assert given_back == mine._replace(
        given_back=True, token=mine.token[:-1] + b"\x01", lease_end_ms=lapsed.lease_end_ms
    )
    assert await one(bench, "give_back", bid, mine.token, lapsed) == 0, "told again, as the answer was lost"
    assert await entry_of(bench, bid) == given_back


async def test_a_claim_given_back_is_no_takeover_and_keeps_its_numbers(bench: Bench, bid: Bid) -> None:
    await take(bench, bid)
    await bench.lapse(bid)
    await take(bench, bid)
    assert await one(bench, "give_back", bid, await token_of(bench, bid)) == 1
    answer = await take(bench, bid)
    assert answer.answer is Answer.CLAIMED
    assert answer.entry is not None and (answer.entry.call, answer.entry.takeovers) == (2, 1)


async def test_a_profile_written_after_it_was_read_sends_the_record_back_to_the_checks(bench: Bench, bid: Bid) -> None:
    await bench.change_profile(bid, 5)
    assert (await take(bench, bid, version=4)).answer is Answer.RECHECK
    assert (await take(bench, bid, version=5)).answer is Answer.CLAIMED


async def test_a_cancel_after_the_checks_sends_the_record_back_to_them(bench: Bench, bid: Bid) -> None:
    assert not bench.claims.read_cancelled(await one(bench, "cancelled", bid))
    assert bench.claims.read_seen(await one(bench, "seen", bid)) == (None, False)
    await bench.cancel(bid)
    assert bench.claims.read_seen(await one(bench, "seen", bid)) == (None, True)
    assert (await take(bench, bid)).answer is Answer.RECHECK
    assert bench.claims.read_cancelled(await one(bench, "cancelled", bid))


async def test_only_the_holder_may_settle_and_a_late_one_learns_it(bench: Bench, bid: Bid) -> None:
    await take(bench, bid)
    late = await entry_of(bench, bid)
    await bench.lapse(bid)
    await take(bench, bid)
    assert await settle(bench, bid, late, VerdictClass.SENT) is Settled.LATE
    assert (await entry_of(bench, bid)).verdict is VerdictClass.NONE
    assert await one(bench, "give_back", bid, late.token) == 0


class TestRedisWithoutTheClaim:
    """It was emptied, or came back some seconds older, while the call was under way."""

    async def test_a_lost_claim_is_there_again_when_it_is_settled(self, bench: Bench, bid: Bid) -> None:
        mine, _ = await first(bench, bid)
        await bench.set_back(bid, None)
        assert await settle(bench, bid, mine, VerdictClass.SENT, b"a line") is Settled.MISSING
        assert await entry_of(bench, bid) == mine._replace(verdict=VerdictClass.SENT, detail=b"what happened")
        assert await bench.timeline(bid) == [b"a line"]
        assert (await take(bench, bid)).answer is Answer.FINISHED_SAME, "no copy of the record is called again"

    async def test_the_claim_of_the_call_before_is_nobodys(self, bench: Bench, bid: Bid) -> None:
        await take(bench, bid)
        await settle(bench, bid, await entry_of(bench, bid), VerdictClass.WAITING)
        before, later = await bench.keep(bid), bid._replace(record_call=2)
        mine = (await take(bench, later)).entry
        assert mine is not None
        await bench.set_back(bid, before)
        assert await settle(bench, later, mine, VerdictClass.WAITING) is Settled.MISSING
        assert await entry_of(bench, bid) == mine._replace(verdict=VerdictClass.WAITING, detail=b"what happened")

    @pytest.mark.parametrize("is_given_back", [True, False], ids=["given back", "open"])
    async def test_the_same_records_claim_before_it_was_given_back_is_nobodys(
        self, bench: Bench, bid: Bid, is_given_back: bool
    ) -> None:
        was, _ = await first(bench, bid)
        open_one = await bench.keep(bid)
        await one(bench, "give_back", bid, was.token)
        before = await bench.keep(bid) if is_given_back else open_one
        await bench.passes()
        mine = (await take(bench, bid)).entry
        assert mine is not None
        await bench.set_back(bid, before)
        assert await settle(bench, bid, mine, VerdictClass.WAITING) is Settled.MISSING
        assert (await entry_of(bench, bid)).verdict is VerdictClass.WAITING

    async def test_a_copy_that_claimed_meanwhile_decides_how_it_goes_on(self, bench: Bench, bid: Bid) -> None:
        mine, _ = await first(bench, bid)
        await bench.set_back(bid, None)
        await bench.passes()
        theirs, in_the_way = await first(bench, bid)
        assert in_the_way is None
        assert await settle(bench, bid, mine, VerdictClass.WAITING) is Settled.LATE
        assert await entry_of(bench, bid) == theirs

    async def test_another_address_that_claimed_meanwhile_decides_nothing_for_this_one(
        self, bench: Bench, bid: Bid
    ) -> None:
        mine, _ = await first(bench, bid)
        await bench.set_back(bid, None)
        other = bid._replace(address=claims.packed_address(keys.single_address(deliveries.EPOCH, 3, 99)))
        theirs = (await take(bench, other)).entry
        assert await settle(bench, bid, mine, VerdictClass.WAITING) is Settled.MISSING
        assert await entry_of(bench, bid) == theirs


async def test_settling_twice_is_settling_once(bench: Bench, bid: Bid) -> None:
    await take(bench, bid)
    mine = await entry_of(bench, bid)
    for _ in range(2):
        assert await settle(bench, bid, mine, VerdictClass.SENT, b"a line") is Settled.STORED
    assert await bench.timeline(bid) == [b"a line"]


async def test_publishing_cuts_the_stored_verdict_off(bench: Bench, bid: Bid) -> None:
    await take(bench, bid)
    mine = await entry_of(bench, bid)
    assert await one(bench, "published", bid, mine.token) == 0
    await settle(bench, bid, mine, VerdictClass.ENDED)
    assert await one(bench, "published", bid, mine.token) == 1
    entry = await entry_of(bench, bid)
    assert entry.published and entry.detail == b"" and entry.verdict is VerdictClass.ENDED


async def test_an_end_without_a_call_is_kept_as_the_claim_is_taken(bench: Bench, bid: Bid) -> None:
    """Nobody can die in between, so no call is ever in doubt that was not made."""
    await bench.change_profile(bid, 5)
    await bench.cancel(bid)
    ended = await end(bench, bid)
    assert ended.answer is Answer.CLAIMED
    assert ended.entry == await entry_of(bench, bid)
    assert ended.entry is not None and ended.entry.verdict is VerdictClass.ENDED
    assert (ended.entry.detail, ended.entry.published, ended.entry.takeovers) == (b"no address", False, 0)
    assert (await end(bench, bid)).answer is (await take(bench, bid)).answer is Answer.FINISHED_SAME
    assert await one(bench, "published", bid, ended.entry.token) == 1
    assert (await take(bench, bid._replace(generation=1), version=5, cancelled=True)).answer is Answer.CLAIMED


async def test_an_end_without_a_call_overrules_nobody(bench: Bench, bid: Bid) -> None:
    await take(bench, bid._replace(record_call=2))
    other = bid._replace(address=claims.packed_address(keys.single_address(deliveries.EPOCH, 3, 99)))
    assert (await end(bench, other)).answer is Answer.DUPLICATE_OF
    assert (await end(bench, bid)).answer is Answer.STALE
    assert (await end(bench, bid._replace(record_call=2))).answer is Answer.SENDING
    await bench.lapse(bid)
    ended = await end(bench, bid._replace(record_call=2))
    assert ended.answer is Answer.TAKEOVER
    assert ended.entry is not None and (ended.entry.call, ended.entry.takeovers) == (3, 1)


OPERATIONS = st.sampled_from(
    ["take", "first", "end", "settle", "settle_late", "give_back", "published", "lapse", "lost", "profile", "cancel"]
)
STEPS = st.lists(
    st.tuples(OPERATIONS, st.integers(0, 1), st.integers(1, 3), st.integers(0, 1), st.booleans(), st.integers(1, 3)),
    max_size=25,
)


@dataclass
class Twin:
    """The same history told to one body; the tokens differ, so each keeps its own. earlier: the claim before mine."""

    bench: Bench
    mine: Entry
    earlier: Entry
    version: int = 0

    async def step(self, bid: Bid, name: str, verdict: int) -> object:
        match name:
            case "take":
                return await self.take(bid)
            case "first":
                return await self.first(bid)
            case "end":
                return self.shown(await end(self.bench, bid))
            case "settle" | "settle_late":
                held = self.mine if name == "settle" else self.earlier
                return await settle(self.bench, bid, held, VerdictClass(verdict))
            case "give_back" | "published":
                return await one(self.bench, name, bid, self.mine.token)
            case "lost":
                await self.bench.set_back(bid, None)
            case "lapse":
                await self.bench.lapse(bid)
            case "profile":
                self.version += 1
                await self.bench.change_profile(bid, self.version)
            case "cancel":
                await self.bench.cancel(bid)
        return None

    async def first(self, bid: Bid) -> object:
        mine, in_the_way = await first(self.bench, bid)
        if in_the_way is None:
            self._hold(mine)
        return in_the_way and in_the_way._replace(token=b"", lease_end_ms=0)

    async def take(self, bid: Bid) -> object:
        return self.shown(await take(self.bench, bid, version=max(0, self.version - (bid.record_call == 3))))

    def _hold(self, mine: Entry) -> None:
        self.earlier, self.mine = self.mine._replace(lease_end_ms=0), mine

    def shown(self, taken: Taken) -> object:
        if taken.answer in (Answer.CLAIMED, Answer.TAKEOVER):
            assert taken.entry is not None
            self._hold(taken.entry)
        return taken.answer, taken.entry and taken.entry._replace(token=b"", lease_end_ms=0)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_both_bodies_tell_the_same_story_of_every_history(redis_url: str, steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(_tell_twice(redis_url, steps))


async def _tell_twice(redis_url: str, steps: list[tuple[Any, ...]]) -> None:
    async with Redis.from_url(redis_url) as client:
        base = claims.bid_for(deliveries.single(user_id=uuid.uuid4().hex[:12]))
        nobodys = MemoryClaims(ManualClock()).fresh(base)._replace(record_call=0, token=b"none", lease_end_ms=0)
        twins = [Twin(bench, nobodys, nobodys) for bench in (MemoryBench(), RedisBench(client))]
        other = claims.packed_address(keys.single_address(deliveries.EPOCH, 3, 99))
        for name, generation, call, is_other, forced, verdict in steps:
            bid = base._replace(generation=generation, record_call=call, forced=forced)
            bid = bid._replace(address=other) if is_other and call == 1 else bid
            memory, real = [await twin.step(bid, name, verdict) for twin in twins]
            assert memory == real, (name, bid)


async def test_of_many_workers_exactly_one_gets_the_claim(redis: Redis, bid: Bid) -> None:
    benches = [RedisBench(redis) for _ in range(16)]
    answers = [taken.answer for taken in await asyncio.gather(*(take(bench, bid) for bench in benches))]
    assert answers.count(Answer.CLAIMED) == 1
    assert answers.count(Answer.SENDING) == 15
    other = bid._replace(claim_key=bid.claim_key + b"x")
    won = [mine for mine, in_the_way in await asyncio.gather(*(first(b, other) for b in benches)) if not in_the_way]
    assert won == [await entry_of(benches[0], other)]


async def test_a_claim_costs_at_most_130_bytes_of_redis(redis: Redis) -> None:
    bench = RedisBench(redis)
    for delivery in (deliveries.single(user_id="1234567890"), deliveries.recipient(user_id="1234567890")):
        mine = claims.bid_for(replace(delivery, intent=f"{delivery.intent}{uuid.uuid4()}"))
        await take(bench, mine)
        taken = await entry_of(bench, mine)
        await settle(bench, mine, taken, VerdictClass.SENT)
        await one(bench, "published", mine, taken.token)
        assert await redis.memory_usage(mine.claim_key) <= 130


class TestCancellations:
    async def cancel(self, redis: Redis, user_id: str, intent: str) -> object:
        epoch = Epoch()
        epoch.run_id = b"this-run"
        await redis.set(keys.REDIS_EPOCH, b"this-run")
        body = cancellations.RedisCancellations(RedisTrips(redis, "claims"), epoch)
        return await body.cancel("default", user_id, intent)

    async def test_what_was_never_planned_is_stopped_as_a_whole(self, redis: Redis) -> None:
        user_id = uuid.uuid4().hex
        assert await self.cancel(redis, user_id, "default/e/1") is None
        assert await redis.ttl(keys.redis_cancel("default", user_id, "default/e/1")) > 29 * 86_400

    async def test_a_cancel_says_which_deliveries_it_still_stops(self, redis: Redis) -> None:
        user_id, intent = uuid.uuid4().hex, keys.single_intent("default", "order-1")
        parts = (Part(Channel.SMS), Part(Channel.PUSH, "phone"), Part(Channel.EMAIL, reason="opted_out"))
        plan = planning.pack(Plan(parts, (Channel.INAPP,)), keys.single_address(deliveries.EPOCH, 3, 35))
        await redis.set(keys.redis_plan("default", user_id, intent), plan)
        bench = RedisBench(redis)
        sms = claims.bid_for(deliveries.single(user_id=user_id))
        await take(bench, sms)
        await settle(bench, sms, await entry_of(bench, sms), VerdictClass.SENT)
        push = keys.delivery_suffix(Channel.PUSH, "phone")
        assert await self.cancel(redis, user_id, intent) == [("sms", "sent"), (push, "waiting")]
        assert (await take(bench, sms._replace(claim_key=sms.claim_key + b"2"))).answer is Answer.RECHECK

    async def test_what_may_have_been_sent_is_not_called_stopped_although_its_claim_was_given_back(
        self, redis: Redis
    ) -> None:
        user_id, intent = uuid.uuid4().hex, keys.single_intent("default", "order-1")
        plan = planning.pack(Plan((Part(Channel.SMS),)), keys.single_address(deliveries.EPOCH, 3, 35))
        await redis.set(keys.redis_plan("default", user_id, intent), plan)
        bench, sms = RedisBench(redis), claims.bid_for(deliveries.single(user_id=user_id))
        for told in ("waiting", "sending"):
            await take(bench, sms)
            await one(bench, "give_back", sms, await token_of(bench, sms))
            assert await self.cancel(redis, user_id, intent) == [("sms", told)]
            await redis.delete(sms.cancel_key)
            await take(bench, sms)
            await bench.lapse(sms)  # its call may have been made

    async def test_what_is_in_a_digest_is_not_stopped_any_more_and_who_went_alone_is(self, redis: Redis) -> None:
        user_id, intent = uuid.uuid4().hex, keys.single_intent("default", "order-1")
        plan = planning.pack(
            Plan((Part(Channel.SMS), Part(Channel.EMAIL))), keys.single_address(deliveries.EPOCH, 3, 35)
        )
        await redis.set(keys.redis_plan("default", user_id, intent), plan)
        await redis.set(keys.redis_digest("default", user_id, intent, "sms"), b"digest/1 n2")
        await redis.set(keys.redis_digest("default", user_id, intent, "email"), keys.IN_NO_DIGEST)
        assert await self.cancel(redis, user_id, intent) == [("sms", "sending"), ("email", "waiting")]
