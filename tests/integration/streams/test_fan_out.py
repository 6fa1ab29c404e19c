"""A page becomes deliveries once, on real Redis; the log is the one in memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from schemas import keys
from schemas.errors import StoreDown, Transient
from schemas.messages import Channel, Contact, Delivery, EventKind, Recipient
from schemas.reasons import Reason
from schemas.stores import DeliveryView, SlotView
from tests.doubles.manual_clock import START_MS
from tests.doubles.pages import page
from tests.integration.streams.fan_out_world import TOPICS, World, opened

LANE = TOPICS.lane(Channel.EMAIL, "bulk")


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    async with opened(redis_url) as world:
        yield world


async def test_each_recipient_gets_one_delivery_and_the_row_its_plan(world: World) -> None:
    await world.knows("ann", "ann@example.org")
    await world.knows("bob", "bob@example.org")
    await world.fan_out.expand(page("ann", "bob"))
    assert {(d.user_id, d.slot, d.row) for d in world.deliveries()} == {
        ("ann", 0, "c.spring.3"),
        ("bob", 1, "c.spring.3"),
    }
    assert {(e.slot, e.kind, e.plan) for e in world.events()} == {
        (0, EventKind.PLANNED, ("email",)),
        (1, EventKind.PLANNED, ("email",)),
    }


async def test_a_second_run_with_a_changed_profile_sends_nothing_new(world: World) -> None:
    await world.knows("ann", "ann@example.org")
    await world.fan_out.expand(page("ann", "bob"))
    await world.knows("bob", "bob@example.org")
    await world.redis.delete(keys.redis_profile("default", "ann"))
    await world.fan_out.expand(page("ann", "bob"))
    first, second = world.deliveries()
    assert first == second, "the same delivery again, which its claim will stop"
    assert first.user_id == "ann"


async def test_the_same_user_twice_in_a_page_gets_it_once(world: World) -> None:
    await world.knows("ann", "ann@example.org")
    await world.fan_out.expand(page("ann", "ann"))
    assert [d.slot for d in world.deliveries()] == [0]
    assert ends(world) == {(1, Reason.DUPLICATE_RECIPIENT)}


async def test_the_later_of_two_positions_stays_the_repeated_one_when_it_is_due_first(world: World) -> None:
    await world.knows("ann", "ann@example.org")
    await world.fan_out.expand(page("ann", "ann", slots=(1,)))
    assert world.deliveries() == []
    await world.fan_out.expand(page("ann", "ann", slots=(0,)))
    assert [d.slot for d in world.deliveries()] == [0]


async def test_the_same_user_on_two_pages_gets_it_once(world: World) -> None:
    await world.knows("ann", "ann@example.org")
    await world.fan_out.expand(page("ann", page=3))
    await world.fan_out.expand(page("bob", "ann", page=4))
    assert [d.row for d in world.deliveries()] == ["c.spring.3"]
    assert (1, Reason.DUPLICATE_RECIPIENT) in ends(world)


async def test_only_the_slots_that_are_due_are_expanded(world: World) -> None:
    for name in ("ann", "bob", "cat"):
        await world.knows(name, f"{name}@example.org")
    await world.fan_out.expand(page("ann", "bob", "cat", slots=(2,)))
    assert [(d.user_id, d.slot) for d in world.deliveries()] == [("cat", 2)]


async def test_addresses_in_the_audience_travel_with_the_delivery(world: World) -> None:
    await world.fan_out.expand(page(Recipient("eve", "{}", Contact(email="eve@example.org"))))
    (delivery,) = world.deliveries()
    assert delivery.to == Contact(email="eve@example.org")


async def test_a_page_past_its_expiry_ends_as_expired_and_sends_nothing(world: World) -> None:
    await world.knows("ann", "ann@example.org")
    await world.fan_out.expand(page("ann", expires_at_ms=START_MS))
    assert world.deliveries() == []
    assert [(e.kind, e.user_id) for e in world.events()] == [(EventKind.EXPIRED, "ann")]


async def test_who_was_planned_before_a_page_expired_keeps_the_plan(world: World) -> None:
    """A part of it may be on its way, and its row may not have been told yet."""
    for name in ("ann", "bob"):
        await world.knows(name, f"{name}@example.org")
    await world.fan_out.expand(page("ann"))
    await world.fan_out.expand(page("ann", "bob", expires_at_ms=START_MS))
    assert [(d.user_id, d.expires_at_ms <= START_MS) for d in world.deliveries()] == [("ann", False), ("ann", True)]
    assert [e.user_id for e in world.events() if e.kind is EventKind.EXPIRED] == ["bob"]


async def test_a_page_let_go_by_a_deposed_leader_after_the_cancel_plans_nobody_who_had_no_plan_before(
    world: World,
) -> None:
    for name in ("ann", "bob"):
        await world.knows(name, f"{name}@example.org")
    await world.fan_out.expand(page("ann"))
    before = world.deliveries()
    world.cancel(page("ann").campaign_id)
    await world.fan_out.expand(page("ann", "bob"))
    assert world.deliveries() == before * 2, "ann has her plan still: a part of it may be on its way"
    ends = [(e.kind, e.user_id) for e in world.events() if e.kind is EventKind.CANCELLED]
    assert ends == [(EventKind.CANCELLED, "bob")]


async def test_a_page_let_go_a_day_ago_skips_whom_its_row_already_has_a_plan_for(world: World) -> None:
    for name in ("ann", "bob"):
        await world.knows(name, f"{name}@example.org")
    sent = DeliveryView("email", "", "sent", "", "", "", 1, START_MS, 0, 0)
    world.rows.told = [SlotView("sent", "", "", "ann", "offer", START_MS, (sent,))]
    day_ago = START_MS - 23 * 3_600_000
    await world.fan_out.expand(page("ann", "bob", released_at_ms=day_ago))
    assert [(d.user_id, d.released_at_ms) for d in world.deliveries()] == [("bob", START_MS)], "no sender finds it old"
    world.rows.told.append(world.rows.told[0])
    await world.redis.delete(keys.redis_plan("default", "bob", world.deliveries()[0].intent))
    await world.fan_out.expand(page("ann", "bob", released_at_ms=day_ago))
    assert len(world.deliveries()) == 1


async def test_a_page_let_go_a_day_ago_whose_deliveries_were_lost_on_the_way_is_done_again(world: World) -> None:
    """Of what was written of it the row has its part, the lanes do not; the log fails, or fan-out dies."""
    await world.knows("ann", "ann@example.org")
    day_ago = START_MS - 23 * 3_600_000
    world.log.only, world.log.fail = frozenset(TOPICS.lanes()), True
    with pytest.raises(Transient):
        await world.fan_out.expand(page("ann", released_at_ms=day_ago))
    world.log.only, world.log.fail = frozenset(), False
    queued = DeliveryView("email", "", "queued", "", "", "", 0, 0, 0, 0)
    world.rows.told = [SlotView("queued", "", "", "ann", "offer", START_MS, (queued,))]
    await world.fan_out.expand(page("ann", released_at_ms=day_ago))
    assert [d.user_id for d in world.deliveries()] == ["ann"]


class TestTheRowHeardOfAPlanThatRedisForgot:
    """A page that may have been let go a day ago; who planned it died before its lanes had all of it."""

    async def again(self, world: World, *told: DeliveryView, **changes: Any) -> list[Delivery]:
        world.rows.told = [SlotView(told[0].state, "", "", "ann", "offer", START_MS, told)]
        await world.fan_out.expand(page("ann", released_at_ms=START_MS - 23 * 3_600_000, **changes))
        return world.deliveries()

    @pytest.mark.parametrize("state", ["accepted", "queued", "scheduled"])
    async def test_what_was_never_called_and_has_not_ended_goes_again(self, world: World, state: str) -> None:
        await world.knows("ann", "ann@example.org")
        (one,) = await self.again(world, told(Channel.EMAIL, state))
        assert (one.user_id, one.released_at_ms) == ("ann", START_MS), "no sender finds it old"
        assert world.events() == [], "the row knows all of it"

    @pytest.mark.parametrize(("state", "calls"), [("sent", 1), ("retrying", 1), ("held", 0), ("suppressed", 0)])
    async def test_what_was_called_or_waits_elsewhere_or_has_ended_does_not(
        self, world: World, state: str, calls: int
    ) -> None:
        await world.knows("ann", "ann@example.org")
        assert await self.again(world, told(Channel.EMAIL, state, calls=calls)) == []

    async def test_beside_what_went_only_the_rest_goes_by_the_number_that_the_row_has_for_it(
        self, world: World
    ) -> None:
        """Providers report by that number, and phones are numbered from the newest."""
        await world.knows("ann", "ann@example.org")
        await world.has_phone("ann", "newer", 2)
        await world.has_phone("ann", "older", 1)
        was_sent, is_lost = told(Channel.PUSH, "sent", "sold", 1), told(Channel.PUSH, "accepted", "older")
        (one,) = await self.again(world, was_sent, is_lost, channels=(Channel.PUSH,))
        assert (one.device, one.index) == ("older", 1)

    async def test_where_somebody_may_have_been_reached_nothing_falls_back(self, world: World) -> None:
        await world.knows("ann", "ann@example.org")
        for was_called, left in ((False, (Channel.INAPP,)), (True, ())):
            other = told(Channel.SMS, "sent", calls=1) if was_called else told(Channel.SMS, "suppressed")
            lost = await self.again(world, other, told(Channel.EMAIL), template="turns")
            assert lost[-1].fallback == left

    async def test_who_cannot_be_reached_there_any_more_ends_and_is_not_reached_elsewhere(self, world: World) -> None:
        await world.has_phone("ann", "new", 2)
        gone = (told(Channel.PUSH, device="sold"), told(Channel.EMAIL))
        assert await self.again(world, *gone, channels=(Channel.PUSH, Channel.EMAIL)) == []
        assert [(e.kind, e.delivery, e.reason) for e in world.events()] == [
            (EventKind.SUPPRESSED, keys.delivery_suffix(Channel.PUSH, "sold"), Reason.DEAD_DEVICE),
            (EventKind.SUPPRESSED, "email", Reason.NO_ADDRESS),
        ]

    async def test_who_opted_out_meanwhile_ends_by_that_name(self, world: World) -> None:
        await world.has_phone("ann", "phone", 1)
        await world.redis.hset(keys.redis_profile("default", "ann"), "optout/push/*", "1 []")  # type: ignore[misc]
        assert await self.again(world, told(Channel.PUSH, device="phone"), channels=(Channel.PUSH,)) == []
        assert [e.reason for e in world.events()] == [Reason.OPTED_OUT]

    async def test_who_has_meanwhile_the_plan_of_another_page_goes_and_ends_at_the_claim(self, world: World) -> None:
        """Left out, or told to be named twice, the slot that has a plan would never end."""
        await world.knows("ann", "ann@example.org")
        await world.fan_out.expand(page("ann", page=400))
        _, again = await self.again(world, told(Channel.EMAIL))
        assert again.row == keys.recipient_address("spring", 3, 0).row

    async def test_who_got_a_phone_since_their_plan_fell_back_is_reached_where_it_had_begun(self, world: World) -> None:
        await world.knows("ann", "ann@example.org")
        await world.has_phone("ann", "new", 1)
        unreached, fallen_back = told(Channel.PUSH, "suppressed"), told(Channel.EMAIL)
        (one,) = await self.again(world, unreached, fallen_back, template="falls")
        assert (one.channel, one.index, one.fallback) == (Channel.EMAIL, 1, (Channel.SMS,))

    async def test_who_lost_the_address_to_which_the_plan_fell_back_ends_there(self, world: World) -> None:
        await world.has_phone("ann", "new", 1)
        assert await self.again(world, told(Channel.PUSH, "suppressed"), told(Channel.EMAIL), template="falls") == []
        assert [(e.delivery, e.reason) for e in world.events()] == [("email", Reason.NO_ADDRESS)]

    @pytest.mark.parametrize("cancelled", [True, False], ids=["cancelled", "expired"])
    async def test_of_a_page_that_is_stopped_what_was_never_called_ends_by_name(
        self, world: World, cancelled: bool
    ) -> None:
        """The end of a whole slot says nothing of one that has a plan: it would be waited for for ever."""
        if cancelled:
            world.cancel(page("ann").campaign_id)
        expires_at_ms = START_MS if not cancelled else page("ann").expires_at_ms
        sent, lost = told(Channel.PUSH, "sent", "one", 1), told(Channel.EMAIL)
        assert await self.again(world, sent, lost, expires_at_ms=expires_at_ms) == []
        kind = EventKind.CANCELLED if cancelled else EventKind.EXPIRED
        assert [(e.kind, e.slot, e.delivery) for e in world.events()] == [(kind, 0, "email")]

    async def test_of_a_page_whose_template_is_gone_what_was_never_called_fails_by_name(self, world: World) -> None:
        assert await self.again(world, told(Channel.EMAIL), template="gone") == []
        assert [(e.kind, e.delivery, e.reason) for e in world.events()] == [
            (EventKind.FAILED, "email", Reason.UNKNOWN_TEMPLATE)
        ]

    async def test_of_a_page_that_is_stopped_what_has_ended_hears_nothing(self, world: World) -> None:
        world.cancel(page("ann").campaign_id)
        assert await self.again(world, told(Channel.EMAIL, "sent", calls=1)) == [] == world.events()

    async def test_what_a_fallback_added_is_left_to_its_sender(self, world: World) -> None:
        await world.knows("ann", "ann@example.org")
        failed, added = told(Channel.EMAIL, "failed", calls=8), told(Channel.INAPP)
        assert await self.again(world, failed, added, template="turns") == [] == world.events()


def told(channel: Channel, state: str = "accepted", device: str = "", calls: int = 0) -> DeliveryView:
    hashed = keys.device_hash(device) if device else ""
    return DeliveryView(channel, hashed, state, "", "", "", calls, 0, 0, 0)


async def test_the_trace_of_the_upload_goes_with_each_delivery(world: World) -> None:
    await world.knows("ann", "ann@example.org")
    trace = (("traceparent", b"00-1-2-01"),)
    await world.fan_out.expand(page("ann"), trace)
    assert world.log.records(LANE)[0].headers == trace


async def test_while_the_log_is_away_the_page_is_not_done(world: World) -> None:
    await world.knows("ann", "ann@example.org")
    world.log.fail = True
    with pytest.raises(Exception, match="unavailable"):
        await world.fan_out.expand(page("ann"))


async def test_an_emptied_redis_sends_to_nobody(world: World) -> None:
    await world.redis.flushdb()
    with pytest.raises(StoreDown):
        await world.fan_out.expand(page("ann"))
    assert world.log.records(*TOPICS.lanes(), TOPICS.status) == []


def ends(world: World) -> set[tuple[int, str]]:
    return {
        (event.slot, event.reason)
        for event in world.events()
        if event.kind is EventKind.SUPPRESSED and not event.delivery
    }
