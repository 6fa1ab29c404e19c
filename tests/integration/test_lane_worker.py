"""Senders on real Redis: whoever races, dies or comes back, each delivery is called once, or the repeat is counted."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from redis.asyncio import Redis

from consumers import breaker, claims, limits
from consumers.caps import CapRules, RedisCaps
from consumers.fallbacks import RedisFallbacks
from consumers.judging import OutcomeJudge
from consumers.lane_worker import LaneWorker, Rules
from consumers.lookalikes import RedisLookalikes
from consumers.render import Renderer
from consumers.sending import Seat, Stores, WorkerOptions
from consumers.settling import SettleOptions
from consumers.throttles import Throttle
from deploy.redis_trips import RedisTrips
from retry_topics.budget import RetryBudget
from retry_topics.dead_letters import DeadLetters
from schemas import codec, facets, keys
from schemas.clock import SystemClock
from schemas.messages import CampaignOrder, Channel, Contact, Delivery, FacetKind, Priority, RecipientFacet
from schemas.policies import ContentCheck, MessageClass, TemplatePolicy
from schemas.quiet_hours import QuietHours
from schemas.records import Answer, Defer, Done, Record
from schemas.stores import FacetWrite
from schemas.topics import Topics
from schemas.trips import Epoch
from streams.recipients import RedisProfiles, RedisSuppressions
from tests.doubles import deliveries
from tests.doubles.scripted_provider import ScriptedProvider

CLOCK = SystemClock()
TOPICS = Topics()
WELCOME = TemplatePolicy("welcome", MessageClass.TRANSACTIONAL, (Channel.SMS,), content_check=ContentCheck.OFF)
POLICIES = {WELCOME.name: WELCOME}
OPTIONS = WorkerOptions(lease_s=0.6, deadline_s=0.2, lease_margin_s=0.1)
RATE = limits.Rate(1_000, 100)
RUN = b"this run"

Gap = Callable[[str], Awaitable[None]]


class Crew:
    """Workers of one lane that share Redis and the provider."""

    def __init__(self, redis: Redis, folder: Path) -> None:
        (folder / "welcome").mkdir()
        (folder / "welcome" / "sms.de.j2").write_text("{% block text %}Hallo {{ name }}{% endblock %}")
        self.renderer = Renderer(folder, {"default": "de"})
        self.redis = redis
        self.provider = ScriptedProvider(name=uuid.uuid4().hex)
        self.trips = RedisTrips(redis, "send")
        self.policies = POLICIES
        self.budget = RetryBudget()
        self.breaking = breaker.BreakerOptions()

    def worker(
        self, seed: int, gap: Gap | None = None, rate: limits.Rate = RATE, options: WorkerOptions = OPTIONS
    ) -> LaneWorker:
        epoch = Epoch()
        epoch.run_id = RUN
        store = claims.RedisClaims(random.Random(seed), claims.ClaimOptions(lease_s=options.lease_s))
        people = RedisProfiles(self.trips, epoch), RedisSuppressions(self.trips, epoch)
        known = Stores(self.trips, epoch, store, *people, RedisFallbacks(), RedisCaps(), RedisLookalikes())
        pocket = limits.Pocket(
            self.trips,
            CLOCK,
            self.provider.name,
            rate,
            Priority.TRANSACTIONAL,
            str(seed),
            limits.LimitOptions(),
        )
        name = self.provider.name
        seat = Seat(self.provider, breaker.Breaker(name, self.breaking), Throttle(name), pocket, 256)
        judge = OutcomeJudge(CLOCK, random.Random(seed), self.budget)
        quiet, uncapped = QuietHours({}, {}), CapRules({}, {})
        rules = Rules(self.policies, self.renderer, _running, judge.judge, quiet, uncapped)
        letters = DeadLetters(TOPICS, CLOCK)
        ids = keys.Ids(b"secret")
        return LaneWorker([seat], known, rules, ids, TOPICS, letters, CLOCK, options, SettleOptions(), gap)

    async def give_phone(self, delivery: Delivery) -> None:
        """Their user has a phone number from now on."""
        user = RecipientFacet(delivery.tenant, delivery.user_id, FacetKind.USER, CLOCK.now_ms(), phone="+4930123456")
        written = FacetWrite(facets.name_of(user), 1, user)
        await RedisProfiles(self.trips, Epoch()).apply(delivery.tenant, delivery.user_id, [written])


def _running(tenant: str, campaign: str) -> CampaignOrder:
    return CampaignOrder.RUNNING


@pytest.fixture
async def crew(redis_url: str, tmp_path: Path) -> AsyncIterator[Crew]:
    async with Redis.from_url(redis_url) as client:
        before = await client.get(keys.REDIS_EPOCH)
        await client.set(keys.REDIS_EPOCH, RUN)
        yield Crew(client, tmp_path)
        await (client.delete(keys.REDIS_EPOCH) if before is None else client.set(keys.REDIS_EPOCH, before))


def fresh() -> Delivery:
    """Of a user nobody else in this run knows, released just now."""
    now_ms = CLOCK.now_ms()
    return deliveries.single(
        uuid.uuid4().hex[:12],
        to=Contact(phone="+4930123456"),
        accepted_at_ms=now_ms,
        released_at_ms=now_ms,
        expires_at_ms=now_ms + 60_000,
    )


async def hand(worker: LaneWorker, *many: Delivery) -> list[Answer]:
    """Their answers in order, acked as the engine does."""
    answers: dict[int, Answer] = {}
    everybody = asyncio.Event()

    def answer(record: Record, given: Answer) -> None:
        answers[record.offset] = given
        if isinstance(given, Done) and given.acked is not None:
            given.acked()
        if len(answers) == len(many):
            everybody.set()

    records = [Record("sms.transactional", 0, n, b"k", codec.encode(one), (), 0) for n, one in enumerate(many)]
    await worker.handle(records, answer)
    async with asyncio.timeout(20):
        await everybody.wait()
    return [answers[offset] for offset in sorted(answers)]


def told(answer: Answer) -> list[str]:
    assert isinstance(answer, Done), answer
    return [row_event.event.kind.value for row_event in answer.events]


async def until_it_is_done(worker: LaneWorker, delivery: Delivery) -> Done:
    """As the engine: a deferred record comes again when it is due."""
    while True:
        (answer,) = await hand(worker, delivery)
        if isinstance(answer, Done):
            return answer
        assert isinstance(answer, Defer)
        await asyncio.sleep(max(0, answer.until_ms - CLOCK.now_ms()) / 1000)


async def test_two_workers_with_the_same_records_make_one_call_each(crew: Crew) -> None:
    many = [fresh() for _ in range(200)]
    workers = [crew.worker(seed) for seed in (1, 2)]
    await asyncio.gather(*(hand(worker, *many) for worker in workers))
    assert sorted(call.user_id for call in crew.provider.calls) == sorted(one.user_id for one in many)
    for worker in workers:
        await worker.close()


async def test_a_worker_killed_after_the_call_costs_one_counted_repeat_after_its_lease(crew: Crew) -> None:
    delivery = fresh()
    died = asyncio.Event()

    async def die(name: str) -> None:
        if name == "after_send":
            died.set()
            await asyncio.Event().wait()

    victim = crew.worker(1, die)
    asked = asyncio.ensure_future(hand(victim, delivery))
    await died.wait()
    await victim.close(within_s=0)
    asked.cancel()

    heir = crew.worker(2)
    began_s = CLOCK.steady_s()
    answer = await until_it_is_done(heir, delivery)
    assert told(answer) == ["possible_duplicate", "sent"]
    assert len(crew.provider.calls) == 2
    assert CLOCK.steady_s() - began_s < OPTIONS.lease_s + 5
    await heir.close()
    late = crew.worker(3)
    assert told(await until_it_is_done(late, delivery)) == []
    assert len(crew.provider.calls) == 2
    await late.close()


async def test_while_a_provider_takes_its_time_nobody_else_calls_it_for_the_same_delivery(crew: Crew) -> None:
    """N18: elsewhere the right to send ran out while the first call was still open."""
    delivery = fresh()
    first, second = crew.worker(1), crew.worker(2)
    crew.provider.may_answer.clear()
    slow = asyncio.ensure_future(hand(first, delivery))
    await crew.provider.called.wait()
    (answer,) = await hand(second, delivery)
    assert isinstance(answer, Defer), "it waits for the end of the lease"
    crew.provider.may_answer.set()
    (answer,) = await slow
    assert told(answer) == ["sent"]
    await until_it_is_done(second, delivery)
    assert len(crew.provider.calls) == 1
    for worker in (first, second):
        await worker.close()


async def test_a_call_that_runs_past_the_deadline_ends_before_its_lease_and_is_of_unknown_outcome(crew: Crew) -> None:
    """N18."""
    delivery = fresh()
    first, second = crew.worker(1), crew.worker(2)
    crew.provider.hang = True
    (answer,) = await hand(first, delivery)
    assert told(answer) == ["possible_duplicate", "retrying"]
    await until_it_is_done(second, delivery)
    assert len(crew.provider.calls) == 1, "what follows is the retry's business, by the template's on_unknown"
    for worker in (first, second):
        await worker.close()


async def test_a_worker_killed_before_the_call_loses_nothing(crew: Crew) -> None:
    delivery = fresh()
    died = asyncio.Event()

    async def die(name: str) -> None:
        if name == "after_claim":
            died.set()
            await asyncio.Event().wait()

    victim = crew.worker(1, die)
    asked = asyncio.ensure_future(hand(victim, delivery))
    await died.wait()
    await victim.close(within_s=0)
    asked.cancel()
    heir = crew.worker(2)
    assert told(await until_it_is_done(heir, delivery)) == ["possible_duplicate", "sent"]
    assert len(crew.provider.calls) == 1
    await heir.close()


async def test_who_got_the_fallback_is_not_sent_the_first_channel_when_it_is_read_again(crew: Crew) -> None:
    """The worker dies before the fallback is on the log; then a phone number is added, and the lane is read again."""
    delivery = replace(fresh(), to=None, fallback=(Channel.EMAIL,))
    died = asyncio.Event()

    async def die(name: str) -> None:
        if name == "after_settle":
            died.set()
            await asyncio.Event().wait()

    victim = crew.worker(1, die)
    asked = asyncio.ensure_future(hand(victim, delivery))
    await died.wait()
    await victim.close(within_s=0)
    asked.cancel()
    await crew.give_phone(delivery)
    heir = crew.worker(2)
    answer = await until_it_is_done(heir, delivery)
    assert (told(answer), [one.topic for one in answer.publish]) == (["suppressed"], ["email.transactional"])
    await heir.close()
    late = crew.worker(3)
    assert await until_it_is_done(late, delivery) == Done()
    assert crew.provider.calls == []
    await late.close()


async def test_a_provider_that_cannot_carry_our_reference_is_found_by_its_message_id(crew: Crew) -> None:
    crew.provider.carries_reference = False
    worker = crew.worker(1)
    await hand(worker, fresh())
    (call,) = crew.provider.calls
    kept = keys.redis_message(crew.provider.name, "m1")
    assert await crew.redis.get(kept) == call.reference.encode()
    assert 6 * 86_400 < await crew.redis.ttl(kept) <= 7 * 86_400
    await worker.close()


async def test_a_wave_is_sent_within_a_few_round_trips_and_each_once(crew: Crew) -> None:
    """At the default lease: with the short one a process that stands still for a moment puts some off, as it should."""
    worker = crew.worker(1, options=WorkerOptions())
    many = [fresh() for _ in range(500)]
    answers = await asyncio.gather(*(hand(worker, *many[at : at + 100]) for at in range(0, 500, 100)))
    assert [told(answer) for group in answers for answer in group] == [["sent"]] * 500
    assert len({call.delivery_key + call.user_id for call in crew.provider.calls}) == 500
    await worker.close()
