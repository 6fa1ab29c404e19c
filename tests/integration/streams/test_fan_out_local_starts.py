"""A page of a campaign that is wanted in local time, on real Redis: who is due goes, the others wait in hold."""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from schemas import codec, keys, local_times
from schemas.messages import Contact, EventKind, Held, Recipient, ReleasedPage
from schemas.reasons import Reason
from schemas.stores import SlotView
from tests.doubles.manual_clock import START_MS
from tests.doubles.pages import page
from tests.integration.streams.fan_out_world import TOPICS, World, opened

DATE, WALL = "2026-12-01", "08:00"
DAY_MS = 86_400_000
EXPIRES_MS = START_MS + 3 * DAY_MS


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    async with opened(redis_url) as world:
        await world.knows("ann", "ann@example.org", "Asia/Tokyo")
        await world.knows("bob", "bob@example.org", "America/New_York")
        await world.knows("cat", "cat@example.org")
        yield world


def due_ms(zone: str) -> int:
    return local_times.due_ms(DATE, WALL, zone, 0)


def morning(*recipients: Recipient | str) -> ReleasedPage:
    """The first page of a campaign wanted at 08:00 of the next day: there is no spread on it."""
    return page(*recipients, page=0, send_at_local=WALL, send_on=DATE, expires_at_ms=EXPIRES_MS)


def fired(held: Held, released: ReleasedPage) -> ReleasedPage:
    """What dispatch lets go when the part is due."""
    assert held.page is not None
    return replace(released, slots=held.page.slots, hop=held.hop, released_at_ms=held.due_ms)


async def test_those_due_go_at_once_and_the_others_wait_without_any_delivery(world: World) -> None:
    world.clock.advance(due_ms("Asia/Tokyo") - START_MS)
    await world.fan_out.expand(morning("ann", "bob", "cat"))
    assert [delivery.user_id for delivery in world.deliveries()] == ["ann"]
    told = {(e.slot, e.kind, e.reason, e.until_ms) for e in world.events()}
    assert told == {
        (0, EventKind.PLANNED, "", 0),
        (1, EventKind.SCHEDULED, Reason.SCHEDULED, due_ms("America/New_York")),
        (2, EventKind.SCHEDULED, Reason.SCHEDULED, due_ms("Europe/Berlin")),
    }
    assert [(h.due_ms, h.page and h.page.slots, h.hop) for h in world.held()] == [
        (due_ms("Europe/Berlin"), (2,), 1),
        (due_ms("America/New_York"), (1,), 1),
    ]


async def test_a_part_that_is_due_goes_out_as_any_page_to_the_address_of_that_moment(world: World) -> None:
    await world.fan_out.expand(morning("ann", "bob"))
    assert world.deliveries() == []
    await world.knows("bob", "new@example.org", "America/New_York")
    for held in world.held():
        world.clock.advance(held.due_ms - world.clock.now_ms())
        await world.fan_out.expand(fired(held, morning("ann", "bob")))
    assert {(d.user_id, d.slot, d.row, d.hop) for d in world.deliveries()} == {
        ("ann", 0, "c.spring.0", 1),
        ("bob", 1, "c.spring.0", 1),
    }
    assert sorted(e.slot for e in world.events() if e.kind is EventKind.PLANNED) == [0, 1]


async def test_a_page_expanded_twice_puts_the_same_parts_into_hold(world: World) -> None:
    for _ in range(2):
        await world.fan_out.expand(morning("ann", "bob", "cat"))
    lying = Counter((record.key, record.value) for record in world.log.records(TOPICS.hold))
    assert list(lying.values()) == [2, 2, 2]


async def test_a_part_let_go_twice_sends_nothing_new_though_its_profile_changed(world: World) -> None:
    await world.fan_out.expand(morning("ann"))
    (held,) = world.held()
    world.clock.advance(held.due_ms - START_MS)
    await world.fan_out.expand(fired(held, morning("ann")))
    await world.knows("ann", "other@example.org", "Asia/Tokyo")
    await world.fan_out.expand(fired(held, morning("ann")))
    first, second = world.deliveries()
    assert first == second, "the same delivery again, which its claim will stop"


async def test_the_zone_in_the_audience_goes_before_the_profiles_and_an_unknown_one_is_the_tenants(
    world: World,
) -> None:
    """N32: nobody is left out, and the row says by whose clock it is."""
    travelling = Recipient("ann", "{}", Contact(time_zone="America/New_York"))
    lost = Recipient("bob", "{}", Contact(email="bob@example.org", time_zone="Mars/Olympus"))
    await world.fan_out.expand(morning(travelling, lost))
    assert {(e.slot, e.until_ms, e.reason) for e in world.events()} == {
        (0, due_ms("America/New_York"), Reason.SCHEDULED),
        (1, due_ms("Europe/Berlin"), Reason.UNKNOWN_ZONE),
    }


async def test_who_is_named_twice_waits_once(world: World) -> None:
    await world.fan_out.expand(morning("ann", "ann"))
    assert {(e.slot, e.kind, e.reason) for e in world.events()} == {
        (0, EventKind.SCHEDULED, Reason.SCHEDULED),
        (1, EventKind.SUPPRESSED, Reason.DUPLICATE_RECIPIENT),
    }
    (held,) = world.held()
    assert held.page is not None and held.page.slots == (0,)


async def test_a_page_let_go_a_day_ago_still_puts_those_into_hold_who_have_no_plan(world: World) -> None:
    world.rows.told = [SlotView("scheduled", "scheduled", "", "ann", "offer", START_MS, ())]
    old = replace(morning("ann"), released_at_ms=START_MS - 23 * 3_600_000)
    await world.fan_out.expand(old)
    (held,) = world.held()
    assert held.page is not None and held.page.slots == (), "all of the page"
    world.rows.told = [SlotView("expired", "expired", "", "ann", "offer", START_MS, ())]
    await world.fan_out.expand(replace(old, slots=(0,), hop=1))
    assert len(world.held()) == 1 and world.deliveries() == []


async def test_the_trace_of_the_upload_waits_with_its_part(world: World) -> None:
    trace = (("traceparent", b"00-1-2-01"),)
    await world.fan_out.expand(morning("ann"), trace)
    (record,) = world.log.records(TOPICS.hold)
    assert record.headers == trace
    assert record.key == keys.held_page_id("default", "spring", 0, (), 1).encode()
    assert codec.decode(record.value, Held).reason == Reason.SCHEDULED
