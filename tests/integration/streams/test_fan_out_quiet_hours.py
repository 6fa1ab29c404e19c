"""A page let go while some of its people sleep, on real Redis: nothing is decided about them before their morning."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from schemas import metrics
from schemas.messages import EventKind, ReleasedPage
from schemas.policies import QuietWindow
from schemas.reasons import Reason
from tests.doubles.manual_clock import START_MS
from tests.doubles.pages import page
from tests.integration.streams.fan_out_world import TOPICS, World, opened

MORNING_MS = START_MS + (6 * 60 + 6) * 60_000 + 40_000
"""Eight in Berlin, where it is two at night; it is ten in Tokyo."""
DAY_MS = 86_400_000


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    async with opened(redis_url, {"default": QuietWindow("22:00", "08:00")}) as world:
        await world.knows("ann", "ann@example.org", "Asia/Tokyo")
        await world.knows("bob", "bob@example.org", "Europe/Berlin")
        await world.knows("cat", "cat@example.org")
        yield world


def offer() -> ReleasedPage:
    """The first page of a campaign that is wanted now: there is no spread on it."""
    return page("ann", "bob", "cat", page=0, expires_at_ms=START_MS + DAY_MS)


async def test_who_is_awake_gets_it_and_who_sleeps_waits_for_their_morning_without_any_delivery(world: World) -> None:
    counted = metrics.PUT_INTO_HOLD.labels(TOPICS.pages, Reason.QUIET_HOURS)
    before = counted._value.get()
    await world.fan_out.expand(offer())
    assert [delivery.user_id for delivery in world.deliveries()] == ["ann"]
    assert {(e.slot, e.kind, e.reason, e.until_ms) for e in world.events()} == {
        (0, EventKind.PLANNED, "", 0),
        (1, EventKind.HELD, Reason.QUIET_HOURS, MORNING_MS),
        (2, EventKind.HELD, Reason.QUIET_HOURS, MORNING_MS),
    }
    (held,) = world.held()
    assert (held.due_ms, held.reason, held.page and held.page.slots) == (MORNING_MS, Reason.QUIET_HOURS, (1, 2))
    assert counted._value.get() == before + 2


async def test_in_the_morning_they_are_planned_as_they_are_known_by_then(world: World) -> None:
    await world.fan_out.expand(offer())
    (held,) = world.held()
    assert held.page is not None
    await world.knows("bob", "new@example.org", "America/New_York")
    await world.knows("cat", "")
    world.clock.advance(MORNING_MS - START_MS)
    part = replace(offer(), slots=held.page.slots, hop=held.hop, released_at_ms=held.due_ms)
    await world.fan_out.expand(part)
    assert [(one.user_id, one.hop) for one in world.deliveries()] == [("ann", 0)]
    told = {(e.slot, e.kind, e.reason, e.hop) for e in world.events()[3:]}
    assert (1, EventKind.HELD, Reason.QUIET_HOURS, 2) in told, "over there it is three at night"
    assert (2, EventKind.SUPPRESSED, Reason.NO_ADDRESS, 0) in told


async def test_a_page_read_again_after_the_night_began_sends_nobody_anything_new(world: World) -> None:
    """The process died before its ack, just before the night in Berlin: copies in the lane meet their claims."""
    world.clock.advance(-4 * 3_600_000)
    await world.fan_out.expand(replace(offer(), slots=(1, 2), released_at_ms=world.clock.now_ms()))
    planned = world.deliveries()
    assert [one.user_id for one in planned] == ["bob", "cat"]
    world.clock.advance(4 * 3_600_000)
    await world.fan_out.expand(replace(offer(), slots=(1, 2)))
    (held,) = world.held()
    assert held.page is not None and len(world.deliveries()) == 2
    world.clock.advance(MORNING_MS - START_MS)
    await world.fan_out.expand(replace(offer(), slots=held.page.slots, hop=1, released_at_ms=MORNING_MS))
    again = world.deliveries()[2:]
    assert [replace(one, hop=0, released_at_ms=0) for one in again] == [
        replace(one, released_at_ms=0) for one in planned
    ]
