"""A delivery that ended without a call has ended: read again, it is not sent, whatever has changed since."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consumers.breaker import CLOSED, Gate, State
from consumers.claims import Bid, Entry
from schemas import codec, metrics, stores
from schemas.messages import CampaignOrder, Channel, Held
from schemas.outcomes import Kind, Outcome
from schemas.policies import OnUnknown
from schemas.records import Done
from tests.doubles import deliveries
from tests.doubles.manual_clock import START_MS
from tests.doubles.sender_bench import SenderBench, deferred_ms, done, events, next_delivery, published, shown

REACHED = stores.Profile(3, email="ada@example.org", phone="+4930123456")


@pytest.fixture
def bench(tmp_path: Path) -> SenderBench:
    """Ada has no phone number."""
    bench = SenderBench(tmp_path)
    bench.people.write("42", stores.Profile(2, email="ada@example.org"))
    return bench


async def test_who_got_the_fallback_does_not_get_the_first_channel_as_well_when_all_is_read_again(
    bench: SenderBench,
) -> None:
    sms = deliveries.single(fallback=(Channel.EMAIL,))
    (answer,) = await bench.send(sms)
    assert shown(answer) == [("suppressed", "no_address")] and published(answer) == ["email.transactional"]
    await bench.send(next_delivery(done(answer).publish[0]))
    bench.people.write("42", REACHED)
    (answer,) = await bench.send(sms)
    assert done(answer) == Done(), "nothing is told or sent a second time"
    assert [call.channel for call in bench.provider.calls] == [Channel.EMAIL]


def opt_out(bench: SenderBench) -> None:
    bench.people.write("42", replace(REACHED, version=2, opt_outs=frozenset({("sms", "*")})))


def erase(bench: SenderBench) -> None:
    bench.people.write("42", stores.Profile(2, erased=True))


@pytest.mark.parametrize("happens", [opt_out, erase])
async def test_who_wants_messages_again_does_not_get_what_had_ended_before(
    bench: SenderBench, happens: Callable[[SenderBench], None]
) -> None:
    happens(bench)
    await bench.send(deliveries.single())
    bench.people.write("42", REACHED)
    (answer,) = await bench.send(deliveries.single())
    assert done(answer) == Done() and bench.provider.calls == []


async def test_a_crash_before_the_end_is_on_the_log_repeats_what_is_published(bench: SenderBench) -> None:
    sms = deliveries.single(fallback=(Channel.EMAIL,))
    await bench.die(sms, "after_settle")
    bench.people.write("42", REACHED)
    (answer,) = await bench.send(sms)
    assert shown(answer) == [("suppressed", "no_address")] and published(answer) == ["email.transactional"]
    assert events(answer)[0].at_ms == START_MS and events(answer)[0].next == "email"
    (answer,) = await bench.send(sms)
    assert done(answer) == Done() and bench.provider.calls == []


async def test_a_worker_that_dies_before_an_end_is_kept_leaves_no_call_in_doubt(bench: SenderBench) -> None:
    worker = bench.worker()
    ends = bench.claims.ask_end
    asked = asyncio.Event()

    def never_answered(trip: Any, *args: Any) -> None:
        asked.set()
        bench.trips.down = True
        ends(trip, *args)

    bench.claims.ask_end = never_answered  # type: ignore[method-assign,assignment]
    await worker.handle([bench.record(deliveries.single())], lambda record, answer: None)
    async with asyncio.timeout(5):
        await asked.wait()
    await worker.close(within_s=0)
    bench.trips.down, bench.claims.ask_end = False, ends  # type: ignore[method-assign]
    bench.people.write("42", REACHED)
    (answer,) = await bench.send(deliveries.single())
    assert shown(answer) == [("sent", "")]


async def test_a_redrive_of_what_had_ended_is_sent(bench: SenderBench) -> None:
    await bench.send(deliveries.single())
    bench.people.write("42", REACHED)
    (answer,) = await bench.send(deliveries.single(generation=1))
    assert shown(answer) == [("sent", "")]


async def test_a_template_that_came_too_late_sends_nothing_that_had_failed_for_it(bench: SenderBench) -> None:
    bench.people.write("42", REACHED)
    unknown = deliveries.single(template="nobody")
    (answer,) = await bench.send(unknown)
    assert shown(answer) == [("failed", "unknown_template")] and published(answer) == ["sms.dlq"]
    (answer,) = await bench.send(replace(unknown, template="welcome"))
    assert done(answer) == Done() and bench.provider.calls == []


class TestWhatIsInTheWay:
    async def test_who_began_to_send_after_the_look_is_waited_for(self, bench: SenderBench) -> None:
        ends = bench.claims.ask_end

        def another_first(trip: Any, bid: Bid, *args: Any) -> None:
            bench.claims.entries.setdefault(bid.claim_key, bench.claims.fresh(bid))
            ends(trip, bid, *args)

        bench.claims.ask_end = another_first  # type: ignore[method-assign,assignment]
        (answer,) = await bench.send(deliveries.single())
        assert deferred_ms(answer, bench.clock) == 0, "the next look says what becomes of it"
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("retrying", "leased_elsewhere")]

    async def test_the_same_intent_at_another_address_ends_naming_the_one_that_ended(self, bench: SenderBench) -> None:
        await bench.send(deliveries.single(offset=35))
        (answer,) = await bench.send(deliveries.single(offset=99))
        assert shown(answer) == [("suppressed", "duplicate_of")]

    async def test_two_copies_in_one_batch_are_told_as_one_end(self, bench: SenderBench) -> None:
        first, second = await bench.send(deliveries.single(), deliveries.single())
        assert shown(first) == [("suppressed", "no_address")]
        assert deferred_ms(second, bench.clock) == 0
        (second,) = await bench.send(deliveries.single())
        assert done(second) == Done()

    async def test_a_claim_that_cannot_be_had_parks_its_delivery_and_no_other(self, bench: SenderBench) -> None:
        ends = bench.claims.ask_end

        def broken(trip: Any, bid: Bid, *args: Any) -> None:
            if bid.delivery_key.startswith("default/e/broken"):
                trip.execute_command("WRONGTYPE")
            else:
                ends(trip, bid, *args)

        bench.claims.ask_end = broken  # type: ignore[method-assign,assignment]
        one, other = await bench.send(deliveries.single(event_id="broken"), deliveries.single())
        assert shown(one) == [("failed", "internal_error")] and done(one).parked
        assert shown(other) == [("suppressed", "no_address")]

    async def test_redis_failing_at_the_bids_of_others_does_not_hide_an_end(self, bench: SenderBench) -> None:
        first = bench.claims.ask_first

        def empty_first(*args: Any) -> Entry:
            bench.trips.epoch = None
            return first(*args)

        bench.claims.ask_first = empty_first  # type: ignore[method-assign,assignment]
        bench.people.write("7", REACHED)
        ended, waits = await bench.send(deliveries.single(), deliveries.single("7"))
        assert shown(ended) == [("suppressed", "no_address")]
        assert deferred_ms(waits, bench.clock) == 1_000


class TestCallsInDoubt:
    """Who was called by a worker that died, and cannot be reached any more."""

    async def test_they_are_told_as_unconfirmed_before_the_end_and_the_same_after_another_crash(
        self, bench: SenderBench
    ) -> None:
        bench.people.write("42", REACHED)
        await bench.die(deliveries.single(), "after_send")
        bench.people.write("42", stores.Profile(4))
        await bench.die(deliveries.single(), "after_settle")
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("unconfirmed", ""), ("suppressed", "no_address")]
        assert [event.call for event in events(answer)] == [1, 1]
        assert len(bench.provider.calls) == 1

    async def test_also_when_the_delivery_lay_in_hold_meanwhile(self, bench: SenderBench) -> None:
        bench.people.write("42", REACHED)
        await bench.die(deliveries.recipient(), "after_send")
        bench.orders["default", "spring"] = CampaignOrder.PAUSED
        (answer,) = await bench.send(deliveries.recipient())
        assert shown(answer) == [("possible_duplicate", ""), ("held", "campaign_paused")]
        bench.orders.clear()
        bench.people.write("42", stores.Profile(4))
        held = deliveries.recipient(call=2)
        await bench.die(held, "after_settle")
        (answer,) = await bench.send(held)
        assert shown(answer) == [("unconfirmed", ""), ("suppressed", "no_address")]
        assert [event.call for event in events(answer)] == [1, 1]

    async def test_each_is_counted_once_however_often_the_delivery_is_held_before_it_is_sent(
        self, bench: SenderBench
    ) -> None:
        counter = metrics.POSSIBLE_DUPLICATES.labels("sms", "takeover")
        before = counter._value.get()
        bench.people.write("42", REACHED)
        held = deliveries.recipient()
        await bench.die(held, "after_send")
        bench.orders["default", "spring"] = CampaignOrder.PAUSED
        for _ in range(3):
            (answer,) = await bench.send(held)
            assert shown(answer) == [("possible_duplicate", ""), ("held", "campaign_paused")]
            later = codec.decode(done(answer).publish[0].value, Held).delivery
            assert later is not None
            held = later
        bench.orders.clear()
        (answer,) = await bench.send(held)
        assert shown(answer) == [("sent", "")] and len(bench.provider.calls) == 2
        assert counter._value.get() == before + 1

    async def test_each_is_counted_once_when_it_is_taken_over_behind_a_tier(self, bench: SenderBench) -> None:
        counter = metrics.POSSIBLE_DUPLICATES.labels("sms", "takeover")
        before = counter._value.get()
        bench.people.write("42", REACHED)
        await bench.die(deliveries.single(), "after_send")
        bench.breaker.state = State(Gate.OPEN, 60_000)
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("possible_duplicate", ""), ("retrying", "provider_down")]
        bench.breaker.state = CLOSED
        (answer,) = await bench.send(next_delivery(done(answer).publish[0]))
        assert shown(answer) == [("possible_duplicate", ""), ("sent", "")]
        assert counter._value.get() == before + 1

    async def test_also_when_the_next_worker_gave_the_claim_back(self, bench: SenderBench) -> None:
        bench.people.write("42", REACHED)
        await bench.die(deliveries.single(), "after_send")
        bench.tokens.dead = 2
        (answer,) = await bench.send(deliveries.single())
        assert deferred_ms(answer, bench.clock) == 0
        bench.people.write("42", stores.Profile(4))
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("unconfirmed", ""), ("suppressed", "no_address")]
        assert len(bench.provider.calls) == 1

    async def test_where_a_loss_is_better_than_a_repeat_the_end_is_told_once(self, bench: SenderBench) -> None:
        bench.people.write("42", REACHED)
        bench.policy = replace(bench.policy, on_unknown=OnUnknown.RISK_LOSS)
        await bench.die(deliveries.recipient(), "after_send")
        bench.orders["default", "spring"] = CampaignOrder.PAUSED
        (answer,) = await bench.send(deliveries.recipient())
        assert {kind for kind, _ in shown(answer)} == {"unconfirmed"}
        bench.orders.clear()
        (answer,) = await bench.send(deliveries.recipient())
        assert done(answer) == Done() and len(bench.provider.calls) == 1


async def test_what_expires_or_is_cancelled_costs_no_claim(bench: SenderBench) -> None:
    """It is as true at every later look, and a cancelled campaign has millions of them."""
    bench.orders["default", "spring"] = CampaignOrder.CANCELLED
    answers = await bench.send(deliveries.recipient(), deliveries.single(expires_at_ms=START_MS))
    assert [shown(answer) for answer in answers] == [[("cancelled", "campaign_cancelled")], [("expired", "expired")]]
    assert bench.claims.entries == {}


async def test_the_next_try_of_a_delivery_that_lost_its_address_ends_it_for_good(bench: SenderBench) -> None:
    bench.people.write("42", REACHED)
    bench.provider.script = [Outcome(Kind.RETRY)]
    (answer,) = await bench.send(deliveries.single())
    again = next_delivery(done(answer).publish[0])
    bench.people.write("42", stores.Profile(4))
    (answer,) = await bench.send(again)
    assert shown(answer) == [("suppressed", "no_address")]
    bench.people.write("42", replace(REACHED, version=5))
    for copy in (deliveries.single(), again):
        (answer,) = await bench.send(copy)
        assert done(answer) == Done()
    assert len(bench.provider.calls) == 1
