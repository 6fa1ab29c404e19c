"""While Redis is away: requests of templates that opted in are planned by what is known of them, others wait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from producers import requests
from retry_topics.dead_letters import DeadLetters
from schemas import keys
from schemas.errors import StoreDown
from schemas.messages import (
    Channel,
    Contact,
    FacetKind,
    NotificationRequested,
    Priority,
    RecipientFacet,
    Snapshot,
)
from schemas.policies import MessageClass, TemplatePolicy, WhenRedisIsDown
from schemas.records import Answer, Done
from schemas.stores import FacetWrite
from streams.intake import Doors, Entry
from streams.recipients import RedisProfiles, RedisSuppressions
from streams.route import Route
from tests.doubles.manual_clock import START_MS
from tests.integration.streams.route_world import (
    EPOCH,
    IDS,
    REQUESTS,
    TOPICS,
    World,
    deliveries,
    opened,
    record,
    request,
)

POLICIES = {
    "login": TemplatePolicy(
        "login",
        MessageClass.TRANSACTIONAL,
        (),
        (Channel.SMS, Channel.EMAIL),
        when_redis_is_down=WhenRedisIsDown.SEND,
    ),
    "code": TemplatePolicy("code", MessageClass.TRANSACTIONAL, (Channel.SMS,)),
}
NUMBER = "+4915112345678"
KNOWN = "ann"


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    async with opened(redis_url) as made:
        made.route = _route(made)
        yield made


def _route(world: World) -> Route:
    profiles = RedisProfiles(world.trips, world.epoch)
    barred = RedisSuppressions(world.trips, world.epoch)
    parked = DeadLetters(TOPICS, world.clock).parked
    doors = Doors(_check, parked, profiles, world.rows, suppressions=barred)
    entries = {REQUESTS: Entry("default", EPOCH, Priority.TRANSACTIONAL)}
    return Route(entries, POLICIES, doors, world.trips, world.epoch, TOPICS, IDS, world.clock)


def _check(event: NotificationRequested, now_ms: int) -> NotificationRequested:
    return requests.check_event(event, POLICIES, now_ms, requests.Limits())


def login(**changes: Any) -> NotificationRequested:
    return request(**{"template": "login", "to": None, **changes})


async def profile(world: World, zone: str = "", opted_out: str = "") -> None:
    """Ann, who is reached by SMS in German."""
    user = RecipientFacet("default", KNOWN, FacetKind.USER, 1, phone=NUMBER, locale="de", time_zone=zone)
    writes = [FacetWrite("user", 1, user)]
    if opted_out:
        wish = RecipientFacet("default", KNOWN, FacetKind.OPT_OUT, 1, channel=opted_out, kind="*")
        writes.append(FacetWrite(keys.opt_out_facet(opted_out, "*"), 2, wish))
    await RedisProfiles(world.trips, world.epoch).apply("default", KNOWN, writes)


async def away(world: World, *events: NotificationRequested) -> dict[int, Answer]:
    """What is answered of these requests once Redis has not been trusted for long enough; by number."""
    await world.redis.delete(keys.REDIS_EPOCH)
    records = [record(event, offset=100 + number) for number, event in enumerate(events)]
    answers: dict[int, Answer] = {}

    async def handed() -> None:
        with pytest.raises(StoreDown):
            await world.route.handle(records, lambda one, given: answers.update({one.offset - 100: given}))

    await handed()
    assert answers == {}, "a moment's trouble is waited out"
    world.clock.advance(2_000)
    await handed()
    return answers


async def test_while_redis_answers_a_delivery_takes_along_where_it_goes(world: World) -> None:
    await profile(world, "Europe/Berlin")
    done = await world.done(record(login()))
    [delivery] = deliveries(done)
    assert delivery.snapshot == Snapshot(START_MS, NUMBER, "de", "Europe/Berlin")
    [other] = deliveries(await world.done(record(login(template="code", event_id="o2"), offset=36)))
    assert other.snapshot is None, "its template waits for Redis"


async def test_an_address_that_must_not_be_written_to_is_not_taken_along(world: World) -> None:
    await profile(world)
    hashed = keys.address_hash("sms", NUMBER)
    await RedisSuppressions(world.trips, world.epoch).apply("default", "sms", hashed, 1, "complained")
    [delivery] = deliveries(await world.done(record(login())))
    assert delivery.snapshot is None


async def test_who_was_read_a_moment_ago_is_reached_and_who_brings_an_address_as_well(world: World) -> None:
    await profile(world)
    await world.done(record(login()))
    answers = await away(
        world,
        login(event_id="again"),
        login(event_id="by-address", user_id="stranger", to=Contact(phone=NUMBER)),
        login(event_id="unknown", user_id="stranger"),
        login(event_id="waits", template="code", to=Contact(phone=NUMBER)),
    )
    assert sorted(answers) == [0, 1]
    known, stranger = (answers[number] for number in (0, 1))
    assert isinstance(known, Done) and isinstance(stranger, Done)
    assert [one.snapshot for one in deliveries(known)] == [Snapshot(START_MS, NUMBER, "de")]
    assert [one.snapshot for one in deliveries(stranger)] == [Snapshot(world.clock.now_ms(), NUMBER, is_unchecked=True)]
    assert deliveries(stranger)[0].fallback == (Channel.EMAIL,)


async def test_who_opted_out_when_last_read_is_not_reached_though_the_request_brings_an_address(world: World) -> None:
    await profile(world, opted_out="sms")
    await world.done(record(login()))
    answers = await away(world, login(event_id="again", to=Contact(phone=NUMBER)))
    assert answers == {}


async def test_what_was_known_five_minutes_ago_is_not_gone_by(world: World) -> None:
    await profile(world)
    await world.done(record(login()))
    world.clock.advance(299_000)
    assert await away(world, replace(login(event_id="again"), expires_at_ms=START_MS + 900_000)) == {}


async def test_once_redis_is_back_the_plan_that_went_out_holds_whatever_the_profile_says_by_then(world: World) -> None:
    by_number = login(event_id="by-address", user_id="stranger", to=Contact(phone=NUMBER))
    answers = await away(world, by_number)
    assert isinstance(answers[0], Done)
    await world.redis.set(keys.REDIS_EPOCH, world.epoch.run_id)
    await world.done(record(login(event_id="another", to=Contact(phone=NUMBER)), offset=200))
    again = await world.done(record(replace(by_number, to=Contact(email="stranger@example.org")), offset=100))
    assert [one.channel for one in deliveries(again)] == [Channel.SMS]
