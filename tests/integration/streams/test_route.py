"""Singles find their lanes, on real Redis; the log and the engine are in memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from schemas import keys
from schemas.errors import StoreDown
from schemas.messages import Channel, EventKind, Priority
from schemas.reasons import ParkReason, Reason
from schemas.records import Defer, Done
from streams.grants import Grants
from tests.doubles.manual_clock import START_MS
from tests.integration.streams.route_world import (
    BULK,
    EPOCH,
    IDS,
    REQUEST,
    REQUESTS,
    TOPICS,
    TRACE,
    World,
    deliveries,
    events,
    opened,
    record,
    request,
)

YEARS_AHEAD_MS = START_MS + 10 * 365 * 24 * 3_600_000
"""When a publisher says that it was accepted."""


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    async with opened(redis_url) as made:
        yield made


async def test_a_request_becomes_one_delivery_in_its_lane(world: World) -> None:
    done = await world.done(record(request()))
    (outgoing,) = done.publish
    (delivery,) = deliveries(done)
    assert outgoing.topic == TOPICS.lane(Channel.EMAIL, Priority.TRANSACTIONAL)
    assert (outgoing.key, outgoing.headers) == (b"default/ann", TRACE)
    address = keys.single_address(EPOCH, 3, 35)
    assert (delivery.row, delivery.slot, delivery.index) == (address.row, address.slot, 1)
    assert (delivery.intent, delivery.call, delivery.to) == ("default/e/order-1", 1, REQUEST.to)


async def test_the_row_learns_what_is_queued_and_why_the_rest_is_not(world: World) -> None:
    done = await world.done(record(request()))
    assert {one.row for one in done.events} == {keys.single_address(EPOCH, 3, 35).row}
    assert [(event.kind, event.delivery, event.reason) for event in events(done)] == [
        (EventKind.PLANNED, "", ""),
        (EventKind.SUPPRESSED, "push", Reason.NO_ADDRESS),
        (EventKind.QUEUED, "email", ""),
    ]


async def test_a_second_reading_gives_the_same_deliveries_whatever_the_profile_says_now(world: World) -> None:
    first = await world.done(record(request()))
    profile = keys.redis_profile("default", "ann")
    await world.redis.hset(profile, "device/d1", '1 ["d1", "token", "ios", "", "production", 1]')  # type: ignore[misc]
    assert (await world.done(record(request()))).publish == first.publish


async def test_the_same_intent_accepted_twice_goes_out_once_and_names_the_first(world: World) -> None:
    first, second = await world.handle(record(request(), 35), record(request(), 36))
    assert isinstance(first, Done) and isinstance(second, Done)
    assert len(first.publish) == 1 and second.publish == ()
    (event,) = events(second)
    assert (event.kind, event.reason) == (EventKind.SUPPRESSED, Reason.DUPLICATE_OF)
    assert event.detail == IDS.notification_id("default", keys.single_address(EPOCH, 3, 35))


@pytest.mark.parametrize("topic", [REQUESTS, BULK])
async def test_a_request_in_the_wrong_topic_is_moved_and_keeps_its_address(world: World, topic: str) -> None:
    wrong = request(template="offer" if topic == REQUESTS else "code")
    moved = await world.done(record(wrong, 35, topic))
    (outgoing,) = moved.publish
    assert outgoing.topic == (BULK if topic == REQUESTS else REQUESTS)
    assert moved.events == ()
    assert outgoing.value is not None
    (delivery,) = deliveries(await world.done(record(outgoing.value, 7, outgoing.topic)))
    assert keys.Address(delivery.row, delivery.slot) == keys.single_address(EPOCH, 3, 35)


@pytest.mark.parametrize(
    ("changes", "park_reason", "reason"),
    [
        ({"event_id": ""}, ParkReason.NO_KEY, Reason.NO_KEY),
        ({"template": "unheard-of"}, ParkReason.UNKNOWN_TEMPLATE, Reason.UNKNOWN_TEMPLATE),
        ({"user_id": ""}, ParkReason.BAD_REQUEST, Reason.BAD_REQUEST),
        ({"params": "[1"}, ParkReason.BAD_REQUEST, Reason.BAD_REQUEST),
        (
            {
                "origin_row": f"n.{EPOCH}.3.1",
                "accepted_at_ms": YEARS_AHEAD_MS,
                "send_at_ms": YEARS_AHEAD_MS,
                "expires_at_ms": 0,
            },
            ParkReason.BAD_REQUEST,
            Reason.BAD_REQUEST,
        ),
    ],
)
async def test_a_direct_event_that_breaks_a_rule_is_parked_and_failed(
    world: World, changes: dict[str, Any], park_reason: str, reason: str
) -> None:
    parked = record(request(**changes))
    done = await world.done(parked)
    (letter,) = done.publish
    assert (letter.topic, letter.value) == (TOPICS.requests_dlq, parked.value)
    assert dict(letter.headers)["tid-error-class"].decode() == park_reason
    assert [(event.kind, event.reason) for event in events(done)] == [(EventKind.FAILED, reason)]


async def test_garbage_is_parked_byte_for_byte_and_its_neighbours_go_on(world: World) -> None:
    garbage, good = await world.handle(record(b"\x00\x01garbage", 35), record(request(), 36))
    assert isinstance(garbage, Done) and isinstance(good, Done)
    assert garbage.publish[0].value == b"\x00\x01garbage"
    assert len(deliveries(good)) == 1


async def test_the_tenant_is_that_of_the_topic(world: World) -> None:
    (delivery,) = deliveries(await world.done(record(request(tenant="somebody-else"))))
    assert delivery.tenant == "default"


async def test_what_expired_on_the_way_is_not_sent(world: World) -> None:
    world.clock.advance(60_000)
    done = await world.done(record(request()))
    assert done.publish == ()
    assert [event.kind for event in events(done)] == [EventKind.EXPIRED]


async def test_what_expires_after_it_went_out_and_before_its_row_was_told_keeps_its_plan(world: World) -> None:
    """Its worker died between the two, and the request is read again."""
    await world.done(record(request()))
    world.clock.advance(60_000)
    again = await world.done(record(request()))
    assert again.publish == ()
    told = {(event.kind, event.delivery) for event in events(again)}
    assert (EventKind.PLANNED, "") in told
    assert (EventKind.EXPIRED, "email") in told, "which a call that was made outdoes"
    assert (EventKind.EXPIRED, "") not in told


async def test_an_emptied_redis_routes_nothing(world: World) -> None:
    await world.redis.delete(keys.REDIS_EPOCH)
    with pytest.raises(StoreDown):
        await world.handle(record(request()))


async def test_bulk_goes_at_the_pace_that_dispatch_grants(world: World) -> None:
    route = world.handler(world.queue())
    asked = [record(request(template="offer", event_id=str(n)), n, BULK) for n in range(5)]
    assert all(isinstance(answer, Defer) for answer in await world.handle(*asked, route=route))
    flow = ("default", TOPICS.lane(Channel.EMAIL, "bulk"))
    grants = Grants(world.trips)
    assert (await grants.wishes([flow]))[flow].wanted == 5
    await grants.give({flow: 3})
    answers = await world.handle(*asked, route=route)
    assert sum(isinstance(answer, Done) for answer in answers) == 3
    wish = (await grants.wishes([flow]))[flow]
    assert (wish.wanted, wish.tokens) == (2, 0)


@pytest.mark.parametrize("slot", [-1, keys.SLOTS_PER_ROW, 100_000])
async def test_an_origin_that_is_no_place_of_a_row_counts_as_none(world: World, slot: int) -> None:
    done = await world.done(record(request(origin_row=f"n.{EPOCH}.3.1", origin_slot=slot)))
    assert {(one.row, one.slot) for one in deliveries(done)} == {(f"n.{EPOCH}.3.2", 3)}
