"""Singles that are wanted later, cancelled meanwhile, or read again long after: route on real Redis."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from schemas import keys
from schemas.messages import Channel, Contact, EventKind, Priority
from schemas.reasons import Reason
from schemas.records import Defer
from schemas.stores import DeliveryView, SlotView
from streams.grants import Grants
from tests.doubles.manual_clock import START_MS
from tests.integration.streams.route_world import (
    BULK,
    EPOCH,
    IDS,
    TOPICS,
    TRACE,
    World,
    deliveries,
    events,
    held,
    opened,
    record,
    request,
)

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
LATER_MS = START_MS + 10 * DAY_MS
"""START_MS is 2026-11-30 00:53:20 UTC."""


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    async with opened(redis_url) as made:
        yield made


def later(**changes: Any) -> Any:
    return request(**{"send_at_ms": LATER_MS, "expires_at_ms": LATER_MS + DAY_MS, **changes})


def utc_ms(*at: int) -> int:
    return int(datetime(*at, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type, misc]


class TestAnInstant:
    async def test_each_delivery_waits_in_hold_for_the_start_and_the_row_says_so(self, world: World) -> None:
        to = Contact(email="ann@example.org", phone="+4930123456")
        done = await world.done(record(later(template="alarm", to=to)))
        assert [(one.due_ms, one.reason, one.hop, one.page) for one in held(done)] == [
            (LATER_MS, Reason.SCHEDULED, 1, None)
        ] * 2
        assert [one.headers for one in done.publish] == [TRACE] * 2
        waiting = [one.delivery for one in held(done)]
        assert [one and (one.channel, one.hop, one.call, one.released_at_ms) for one in waiting] == [
            (Channel.EMAIL, 1, 1, LATER_MS),
            (Channel.SMS, 1, 1, LATER_MS),
        ]
        assert [(one.kind, one.delivery, one.until_ms, one.hop) for one in events(done)] == [
            (EventKind.PLANNED, "", 0, 0),
            (EventKind.SCHEDULED, "email", LATER_MS, 1),
            (EventKind.SCHEDULED, "sms", LATER_MS, 1),
        ]

    async def test_a_few_seconds_are_waited_for_where_it_lies(self, world: World) -> None:
        (answer,) = await world.handle(record(request(send_at_ms=START_MS + 5_000)))
        assert answer == Defer(START_MS + 5_000)
        world.clock.advance(5_000)
        assert len(deliveries(await world.done(record(request(send_at_ms=START_MS + 5_000))))) == 1

    async def test_a_second_reading_puts_the_same_under_the_same_id(self, world: World) -> None:
        first = await world.done(record(later()))
        world.clock.advance(HOUR_MS)
        second = await world.done(record(later()))
        assert [one.key for one in second.publish] == [one.key for one in first.publish]
        assert [one.delivery for one in held(second)] == [one.delivery for one in held(first)]

    async def test_a_second_copy_is_told_whose_repeat_it_is_until_a_day_after_the_start(self, world: World) -> None:
        await world.done(record(later(), 35))
        kept_s = await world.redis.ttl(keys.redis_plan("default", "ann", "default/e/order-1"))
        assert kept_s > (LATER_MS - START_MS + DAY_MS) / 1000 - 60
        world.clock.advance(9 * DAY_MS)
        second = await world.done(record(later(), 99))
        assert second.publish == ()
        (event,) = events(second)
        assert (event.reason, event.detail) == (
            Reason.DUPLICATE_OF,
            IDS.notification_id("default", keys.single_address(EPOCH, 3, 35)),
        )

    async def test_bulk_that_waits_needs_no_grant_yet(self, world: World) -> None:
        route = world.handler(world.queue())
        done = await world.done(record(later(template="offer"), 1, BULK), route=route)
        (one,) = held(done)
        assert one.delivery is not None and one.delivery.priority is Priority.BULK
        assert await Grants(world.trips).wishes([("default", TOPICS.lane(Channel.EMAIL, "bulk"))]) == {}


class TestALocalTime:
    async def due_ms(self, world: World, **changes: Any) -> int:
        wanted = request(send_at_local="08:00", expires_at_ms=START_MS + 2 * DAY_MS, **changes)
        (one,) = held(await world.done(record(wanted)))
        return one.due_ms

    async def test_it_comes_by_the_zone_of_the_request_or_of_the_profile_or_of_the_tenant(self, world: World) -> None:
        assert await self.due_ms(world) == utc_ms(2026, 11, 30, 7), "08:00 in Berlin"
        await world.redis.hset(keys.redis_profile("default", "ann"), "user", _profile("America/New_York"))  # type: ignore[misc]
        assert await self.due_ms(world) == utc_ms(2026, 11, 30, 13)
        abroad = Contact(email="ann@example.org", time_zone="Asia/Tokyo")
        assert await self.due_ms(world, to=abroad) == utc_ms(2026, 11, 30, 23), "today's is over there"

    async def test_on_a_date_it_comes_on_that_day(self, world: World) -> None:
        assert await self.due_ms(world, send_on="2026-12-01") == utc_ms(2026, 12, 1, 7)

    async def test_an_unknown_zone_gives_way_to_the_tenants_and_the_status_says_so(self, world: World) -> None:
        nowhere = Contact(email="ann@example.org", time_zone="Europe/Atlantis")
        wanted = request(send_at_local="08:00", expires_at_ms=START_MS + 2 * DAY_MS, to=nowhere)
        done = await world.done(record(wanted))
        assert held(done)[0].due_ms == utc_ms(2026, 11, 30, 7)
        waits = [one for one in events(done) if one.kind is EventKind.SCHEDULED]
        assert [one.reason for one in waits] == [Reason.UNKNOWN_ZONE]

    async def test_a_second_reading_after_it_has_come_sends_and_does_not_wait_for_tomorrow(self, world: World) -> None:
        wanted = request(send_at_local="08:00", expires_at_ms=START_MS + 2 * DAY_MS)
        await world.done(record(wanted))
        world.clock.advance(7 * HOUR_MS)
        assert len(deliveries(await world.done(record(wanted)))) == 1

    async def test_a_start_after_the_expiry_ends_at_once(self, world: World) -> None:
        wanted = request(send_at_local="08:00", expires_at_ms=utc_ms(2026, 11, 30, 7))
        done = await world.done(record(wanted))
        assert done.publish == ()
        assert [(one.kind, one.reason) for one in events(done)] == [(EventKind.EXPIRED, Reason.EXPIRED)]


@pytest.mark.parametrize("start_ms", [0, LATER_MS])
async def test_what_was_cancelled_before_it_was_routed_goes_nowhere(world: World, start_ms: int) -> None:
    await world.redis.set(keys.redis_cancel("default", "ann", "default/e/order-1"), 1)
    done = await world.done(record(later(send_at_ms=start_ms)))
    assert done.publish == ()
    assert [(one.kind, one.delivery) for one in events(done)] == [
        (EventKind.PLANNED, ""),
        (EventKind.SUPPRESSED, "push"),
        (EventKind.CANCELLED, "email"),
    ]


class TestReadAgainAfterADay:
    """Its claims may be gone: what became of it only its row knows."""

    OLD = request(expires_at_ms=START_MS + 10 * DAY_MS)
    ADDRESS = keys.single_address(EPOCH, 3, 35)

    def knows(self, world: World, state: str, calls: int) -> None:
        email = DeliveryView("email", "", state, "", "", "", calls, 0, 0, 0)
        world.rows.slots = {self.ADDRESS: SlotView(state, "", "", "ann", "code", START_MS, (email,))}
        world.clock.advance(23 * HOUR_MS)

    @pytest.mark.parametrize(("state", "calls"), [("sent", 1), ("retrying", 1), ("suppressed", 0), ("cancelled", 0)])
    async def test_what_was_called_or_has_ended_does_not_go_out_again(
        self, world: World, state: str, calls: int
    ) -> None:
        self.knows(world, state, calls)
        done = await world.done(record(self.OLD))
        assert (done.publish, done.events) == ((), ())

    @pytest.mark.parametrize("state", ["accepted", "queued", "scheduled"])
    async def test_what_never_reached_its_lane_goes_now(self, world: World, state: str) -> None:
        self.knows(world, state, 0)
        assert len(deliveries(await world.done(record(self.OLD)))) == 1

    async def test_a_person_with_a_new_channel_is_not_reached_there_too(self, world: World) -> None:
        self.knows(world, "queued", 0)
        await world.redis.hset(
            keys.redis_profile("default", "ann"), "device/d1", '1 ["d1", "token", "ios", "", "production", 1]'
        )  # type: ignore[misc]
        assert [one.channel for one in deliveries(await world.done(record(self.OLD)))] == [Channel.EMAIL]

    async def test_while_nobody_can_read_the_row_it_waits_and_its_neighbours_go_on(self, world: World) -> None:
        self.knows(world, "sent", 1)
        world.rows.slots = None
        now_ms = world.clock.now_ms()
        young = record(request(event_id="order-2", expires_at_ms=now_ms + HOUR_MS), 36)._replace(timestamp_ms=now_ms)
        old, fresh = await world.handle(record(self.OLD), young)
        assert old == Defer(now_ms + 1_000)
        assert not isinstance(fresh, Defer) and len(deliveries(fresh)) == 1

    async def test_what_waited_for_its_start_all_the_time_needs_no_row(self, world: World) -> None:
        world.rows.slots = None
        world.clock.advance(10 * DAY_MS)
        assert len(deliveries(await world.done(record(later())))) == 1


def _profile(zone: str) -> str:
    return f'1 ["", "", "", "{zone}"]'


@pytest.mark.parametrize("accepted_at_ms", [-(2**60), -1, 2**60])
@pytest.mark.parametrize("origin", ["", f"n.{EPOCH}.3.1"])
async def test_a_time_of_acceptance_that_cannot_be_counts_as_none(
    world: World, accepted_at_ms: int, origin: str
) -> None:
    """It is ours to fill in; by it local times are reckoned, and no calendar reaches so far."""
    event = request(
        accepted_at_ms=accepted_at_ms, origin_row=origin, send_at_local="23:30", send_on="2026-11-30", expires_at_ms=0
    )
    [waits] = held(await world.done(record(event)))
    assert waits.due_ms == utc_ms(2026, 11, 30, 22, 30)
