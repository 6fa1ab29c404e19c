"""Everything that keeps a delivery from being sent, or sends it later: each with its named reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consumers.breaker import Gate, State
from consumers.claims import Bid, Entry, bid_for
from schemas import keys, states, stores
from schemas.errors import Misconfigured
from schemas.messages import CampaignOrder, Channel, Delivery, Device
from schemas.outcomes import Kind, Outcome
from schemas.policies import OnUnknown
from schemas.records import Answer, Defer
from tests.doubles import deliveries
from tests.doubles.manual_clock import START_MS
from tests.doubles.sender_bench import (
    IDS,
    SenderBench,
    deferred_ms,
    done,
    events,
    next_delivery,
    published,
    shown,
)

HOUR_MS = 3_600_000
PHONE = Device("phone", "token-1", "ios")


@pytest.fixture
def bench(tmp_path: Path) -> SenderBench:
    return SenderBench(tmp_path)


def erased(bench: SenderBench) -> None:
    bench.people.write("42", stores.Profile(2, erased=True))


def opted_out_of(channel: str, kind: str) -> Callable[[SenderBench], None]:
    def write(bench: SenderBench) -> None:
        bench.people.write("42", stores.Profile(2, phone="+49", opt_outs=frozenset({(channel, kind)})))

    return write


def without_phone(bench: SenderBench) -> None:
    bench.people.write("42", stores.Profile(2))


def suppressed(bench: SenderBench) -> None:
    bench.people.causes["sms", "+4930123456"] = "complaint"


def cancelled(bench: SenderBench) -> None:
    intent = keys.single_intent("default", "order-1")
    bench.claims.cancelled.add(keys.redis_cancel("default", "42", intent))


def late(hours: int) -> Callable[[SenderBench], None]:
    return lambda bench: bench.clock.advance(hours * HOUR_MS)


@pytest.mark.parametrize(
    ("happens", "told", "written"),
    [
        (erased, ("suppressed", "erased"), []),
        (opted_out_of("sms", "transactional"), ("suppressed", "opted_out"), []),
        (opted_out_of("*", "welcome"), ("suppressed", "opted_out"), []),
        (without_phone, ("suppressed", "no_address"), []),
        (suppressed, ("suppressed", "suppressed_address"), []),
        (cancelled, ("cancelled", "cancelled_by_caller"), []),
        (late(24), ("expired", "expired"), []),
        (late(23), ("failed", "too_old"), ["sms.dlq"]),
    ],
)
async def test_nothing_is_sent_and_the_reason_named(
    bench: SenderBench, happens: Callable[[SenderBench], None], told: tuple[str, str], written: list[str]
) -> None:
    happens(bench)
    (answer,) = await bench.send(deliveries.single())
    assert (shown(answer), published(answer)) == ([told], written)
    assert bench.provider.calls == []
    assert bench.tokens.spent == 0


async def test_an_opt_out_of_another_kind_stops_nothing(bench: SenderBench) -> None:
    opted_out_of("sms", "marketing")(bench)
    (answer,) = await bench.send(deliveries.single())
    assert shown(answer) == [("sent", "")]


class TestPush:
    async def test_a_push_goes_to_its_device(self, bench: SenderBench) -> None:
        bench.people.write("42", stores.Profile(2, devices=(PHONE, replace(PHONE, id="pad", token="token-2"))))
        await bench.send(deliveries.single(channel=Channel.PUSH, device="pad"))
        assert bench.provider.calls[0].to == "token-2"

    async def test_a_device_that_was_removed_is_a_dead_one(self, bench: SenderBench) -> None:
        (answer,) = await bench.send(deliveries.single(channel=Channel.PUSH, device="phone"))
        assert shown(answer) == [("suppressed", "dead_device")]

    async def test_a_token_reported_dead_is_not_used_again(self, bench: SenderBench) -> None:
        bench.people.write("42", stores.Profile(2, devices=(PHONE,)))
        bench.provider.script = [Outcome(Kind.DEAD_ADDRESS)]
        (answer,) = await bench.send(deliveries.single(channel=Channel.PUSH, device="phone"))
        assert shown(answer) == [("failed", "dead_device")]
        assert published(answer) == ["suppressions"]
        bench.people.causes["push", "token-1"] = "dead_device"
        (answer,) = await bench.send(deliveries.single(event_id="e2", channel=Channel.PUSH, device="phone"))
        assert shown(answer) == [("suppressed", "dead_device")]

    async def test_when_many_tokens_are_called_dead_none_is_given_up_and_a_person_is_asked(
        self, bench: SenderBench
    ) -> None:
        bench.people.write("42", stores.Profile(2, devices=(PHONE,)))
        bench.provider.script = [Outcome(Kind.DEAD_ADDRESS)]
        bench.breaker.read_record([b"", 200, 0, 200, 57, b""])
        (answer,) = await bench.send(deliveries.single(channel=Channel.PUSH, device="phone"))
        assert shown(answer) == [("retrying", "provider_config")]
        assert published(answer) == ["push.retry.1m"], "the message is kept, and its token"
        assert bench.breaker.noted == [("auth_config", False)], "a config hold"

    async def test_a_fallback_to_push_reaches_the_newest_device(self, bench: SenderBench) -> None:
        newer = replace(PHONE, id="new", token="token-9", registered_at_ms=9)
        bench.people.write("42", stores.Profile(2, devices=(PHONE, newer)))
        await bench.send(deliveries.single(channel=Channel.PUSH))
        assert bench.provider.calls[0].to == "token-9"


class TestCampaignOrders:
    async def test_a_cancelled_campaign_ends(self, bench: SenderBench) -> None:
        bench.orders["default", "spring"] = CampaignOrder.CANCELLED
        (answer,) = await bench.send(deliveries.recipient())
        assert shown(answer) == [("cancelled", "campaign_cancelled")]

    @pytest.mark.parametrize("order", [CampaignOrder.PAUSED, CampaignOrder.CANCELLED])
    async def test_an_order_given_while_the_claim_was_taken_still_stops_the_call(
        self, bench: SenderBench, order: CampaignOrder
    ) -> None:
        async def gap(name: str) -> None:
            if name == "after_claim":
                bench.orders["default", "spring"] = order

        bench.gap = gap
        (answer,) = await bench.send(deliveries.recipient())
        assert bench.provider.calls == [] and bench.tokens.given_back == 1
        if order is CampaignOrder.CANCELLED:
            assert shown(answer) == [("cancelled", "campaign_cancelled")]
            return
        assert deferred_ms(answer, bench.clock) == 0, "looked at again at once, without its claim"
        bench.gap, bench.orders = None, {}
        (answer,) = await bench.send(deliveries.recipient())
        assert shown(answer) == [("sent", "")]


class TestClaims:
    async def crash(self, bench: SenderBench, delivery: Delivery, where: str = "after_send") -> None:
        """A worker dies in this gap; its lease runs out."""
        died = asyncio.Event()

        async def gap(name: str) -> None:
            if name == where:
                died.set()
                await asyncio.Event().wait()

        bench.gap = gap
        worker = bench.worker()
        await worker.handle([bench.record(delivery)], lambda record, answer: None)
        await died.wait()
        await worker.close(within_s=0)
        bench.gap = None
        bench.clock.advance(30_001)

    async def test_while_another_worker_sends_it_the_record_waits_for_the_end_of_its_lease(
        self, bench: SenderBench
    ) -> None:
        await self.crash(bench, deliveries.single())
        bench.clock.advance(-10_000)
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("retrying", "leased_elsewhere")]
        (outgoing,) = done(answer).publish
        assert outgoing.topic == "sms.retry.10s" and next_delivery(outgoing).call == 1
        bench.clock.advance(6_000)
        (answer,) = await bench.send(deliveries.single())
        assert 0 < deferred_ms(answer, bench.clock) <= 5_000
        assert len(bench.provider.calls) == 1

    async def test_a_dead_workers_delivery_is_taken_over_and_counted_as_possible_duplicate(
        self, bench: SenderBench
    ) -> None:
        await self.crash(bench, deliveries.single())
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("possible_duplicate", ""), ("sent", "")]
        assert [event.call for event in events(answer)] == [1, 2]
        assert len(bench.provider.calls) == 2

    async def test_a_claim_is_taken_kept_for_its_lease_and_taken_over_after_it(self, bench: SenderBench) -> None:
        """First claimed; at 10 s still being sent; at 31 s somebody else's."""
        await self.crash(bench, deliveries.single())
        bench.clock.advance(10_000 - 30_001)
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("retrying", "leased_elsewhere")] and len(bench.provider.calls) == 1
        bench.clock.advance(21_000)
        (answer,) = await bench.send(next_delivery(done(answer).publish[0]))
        assert shown(answer) == [("possible_duplicate", ""), ("sent", "")] and len(bench.provider.calls) == 2

    async def test_a_delivery_that_kills_three_workers_is_parked(self, bench: SenderBench) -> None:
        for _ in range(3):
            await self.crash(bench, deliveries.single(), "after_claim")
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer)[-1] == ("failed", "crashes_worker")
        assert published(answer) == ["sms.dlq"]
        assert bench.provider.calls == []

    async def test_where_a_loss_is_better_than_a_repeat_nothing_is_sent_after_a_crash(self, bench: SenderBench) -> None:
        bench.policy = replace(bench.policy, on_unknown=OnUnknown.RISK_LOSS)
        await self.crash(bench, deliveries.single())
        (answer,) = await bench.send(deliveries.single())
        assert {kind for kind, _ in shown(answer)} == {"unconfirmed"}
        assert len(bench.provider.calls) == 1

    async def test_what_expires_after_a_crash_is_told_as_unconfirmed(self, bench: SenderBench) -> None:
        await self.crash(bench, deliveries.single(expires_at_ms=START_MS + 20_000))
        (answer,) = await bench.send(deliveries.single(expires_at_ms=START_MS + 20_000))
        assert shown(answer) == [("unconfirmed", ""), ("expired", "expired")]

    @pytest.mark.parametrize("end", ["expired", "cancelled"])
    async def test_a_call_in_doubt_is_told_although_who_took_it_over_gave_the_claim_back(
        self, bench: SenderBench, end: str
    ) -> None:
        delivery = deliveries.single(expires_at_ms=START_MS + 60_000)
        await bench.die(delivery, "after_send")
        bench.tokens.dead = 2
        (waits,) = await bench.send(delivery)
        assert isinstance(waits, Defer)
        if end == "expired":
            bench.clock.advance(60_000)
        else:
            bench.claims.cancelled.add(bid_for(delivery).cancel_key)
        (answer,) = await bench.send(delivery)
        assert [(event.kind.value, event.call) for event in events(answer)] == [("unconfirmed", 1), (end, 0)]

    async def test_of_what_expires_after_two_crashes_the_first_call_is_counted_as_repeated(
        self, bench: SenderBench
    ) -> None:
        sms = deliveries.single(expires_at_ms=START_MS + 50_000)
        await self.crash(bench, sms)
        await self.crash(bench, sms)
        (answer,) = await bench.send(sms)
        assert shown(answer) == [("possible_duplicate", ""), ("unconfirmed", ""), ("expired", "expired")]
        assert [event.call for event in events(answer)][:2] == [1, 2] and len(bench.provider.calls) == 2

    async def test_a_crash_after_the_verdict_was_stored_repeats_what_is_published_and_no_call(
        self, bench: SenderBench
    ) -> None:
        bench.provider.script = [Outcome(Kind.RETRY, detail="503")]
        await self.crash(bench, deliveries.single(), "after_settle")
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("retrying", "provider_error")]
        assert next_delivery(done(answer).publish[0]).call == 2
        assert len(bench.provider.calls) == 1

    async def test_a_record_overtaken_by_its_own_retry_is_dropped(self, bench: SenderBench) -> None:
        await bench.send(deliveries.single(call=2))
        (answer,) = await bench.send(deliveries.single(call=1))
        assert done(answer).events == () and len(bench.provider.calls) == 1

    async def test_the_same_intent_at_another_address_ends_naming_the_first(self, bench: SenderBench) -> None:
        await bench.send(deliveries.single(offset=35))
        (answer,) = await bench.send(deliveries.single(offset=99))
        assert shown(answer) == [("suppressed", "duplicate_of")]
        first = keys.single_address(deliveries.EPOCH, 3, 35)
        assert events(answer)[0].detail == IDS.notification_id("default", first)

    async def test_the_same_user_twice_in_a_campaign_is_told_so(self, bench: SenderBench) -> None:
        _, second = await bench.send(deliveries.recipient(slot=1), deliveries.recipient(page=8, slot=2))
        assert shown(second) == [("suppressed", "duplicate_recipient")]
        assert events(second)[0].detail == IDS.notification_id("default", keys.recipient_address("spring", 7, 1))

    async def test_two_copies_in_one_batch_make_one_call(self, bench: SenderBench) -> None:
        first, second = await bench.send(deliveries.single(), deliveries.single())
        assert shown(first) == [("sent", "")]
        assert shown(second) == [("retrying", "leased_elsewhere")]
        assert len(bench.provider.calls) == 1

    async def test_redis_losing_the_claim_during_the_call_is_counted(self, bench: SenderBench) -> None:
        async def gap(name: str) -> None:
            bench.claims.entries.clear()

        bench.gap = gap
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("possible_duplicate", ""), ("sent", "")]

    async def test_what_is_sent_again_once_redis_has_lost_the_claim_is_counted(self, bench: SenderBench) -> None:
        """Its status was told and its record not committed: an older one below it still waited."""
        told = [*(await bench.send(deliveries.single())), *(await bench.send(deliveries.single()))]
        assert doubted(told) == 0, "a copy of the record says the same"
        bench.claims.entries.clear()
        bench.clock.advance(60_000)
        told += await bench.send(deliveries.single())
        assert len(bench.provider.calls) == 2 and doubted(told) == 1

    async def test_a_verdict_told_again_from_its_claim_is_no_second_call(self, bench: SenderBench) -> None:
        """One sender after the other dies between the log and the mark that it has the verdict."""
        await bench.die(deliveries.single(), "after_settle")
        settled = dict(bench.claims.entries)
        (first,) = await bench.send(deliveries.single())
        bench.claims.entries.update(settled)
        bench.clock.advance(60_000)
        (again,) = await bench.send(deliveries.single())
        assert shown(first) == [("sent", "")] and events(again) == events(first)
        assert doubted([first, again]) == 0 and len(bench.provider.calls) == 1

    async def test_what_is_sent_again_after_a_lost_claim_and_a_refusal_is_counted(self, bench: SenderBench) -> None:
        """The copy's own first call fails, so the second acceptance bears another number than the first."""
        told = await bench.send(deliveries.single())
        bench.claims.entries.clear()
        bench.provider.script = [Outcome(Kind.RETRY)]
        told += await bench.send(deliveries.single())
        told += await bench.send(next_delivery(done(told[-1]).publish[0]))
        assert len(bench.provider.calls) == 3 and doubted(told) == 1

    async def test_a_verdict_that_comes_after_a_takeover_starts_no_second_chain_of_retries(
        self, bench: SenderBench
    ) -> None:
        async def gap(name: str) -> None:
            if name == "after_send":
                (key,) = bench.claims.entries
                bench.claims.entries[key] = bench.claims.entries[key]._replace(token=b"next")

        bench.gap = gap
        bench.provider.script = [Outcome(Kind.RETRY)]
        failed, sent = await bench.send(deliveries.single()), await bench.send(deliveries.single(event_id="e2"))
        assert done(failed[0]).events == () and done(failed[0]).publish == ()
        assert len(sent) == 1

    async def test_an_opt_out_answered_before_the_claim_stops_the_call(self, bench: SenderBench) -> None:
        """Written between round trips A and B: the claim sends the delivery back to the checks."""
        claim = bench.claims.ask_first

        def opt_out_first(trip: Any, *args: Any) -> Entry:
            opted_out_of("sms", "*")(bench)
            return claim(trip, *args)

        bench.claims.ask_first = opt_out_first  # type: ignore[method-assign,assignment]
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("suppressed", "opted_out")]
        assert bench.tokens.given_back == 1 and bench.provider.calls == []

    @pytest.mark.parametrize(("lapsed", "calls"), [(False, 0), (True, 1)])
    async def test_a_worker_that_stood_still_before_its_claim_takes_nothing_from_who_claimed_meanwhile(
        self, bench: SenderBench, lapsed: bool, calls: int
    ) -> None:
        claim = bench.claims.ask_first

        def another_first(trip: Any, bid: Bid, *args: Any) -> Entry:
            if not bench.claims.entries:
                other = bench.claims.fresh(bid)
                bench.claims.entries[bid.claim_key] = other._replace(lease_end_ms=0) if lapsed else other
            return claim(trip, bid, *args)

        bench.claims.ask_first = another_first  # type: ignore[method-assign,assignment]
        (answer,) = await bench.send(deliveries.single())
        assert len(bench.provider.calls) == calls
        if lapsed:
            assert shown(answer) == [("possible_duplicate", ""), ("sent", "")]
        else:
            assert shown(answer) == [("retrying", "leased_elsewhere")]


class TestPace:
    async def test_without_a_token_it_waits_in_the_lane(self, bench: SenderBench) -> None:
        bench.tokens.none_left = True
        (answer,) = await bench.send(deliveries.single())
        assert deferred_ms(answer, bench.clock) == 200
        assert bench.claims.entries == {}

    async def test_a_token_that_died_on_the_way_is_replaced(self, bench: SenderBench) -> None:
        bench.tokens.dead = 1
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("sent", "")]

    async def test_without_another_one_the_claim_is_given_back(self, bench: SenderBench) -> None:
        bench.tokens.dead = 2
        (answer,) = await bench.send(deliveries.single())
        assert deferred_ms(answer, bench.clock) == 0 and bench.provider.calls == []
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("sent", "")] and events(answer)[0].call == 1

    async def test_a_claim_with_too_little_lease_left_makes_no_call(self, bench: SenderBench) -> None:
        async def gap(name: str) -> None:
            if name == "after_claim":
                bench.clock.advance(20_001)

        bench.gap = gap
        (answer,) = await bench.send(deliveries.single())
        assert deferred_ms(answer, bench.clock) == 0
        assert bench.provider.calls == []

    def test_a_lease_that_a_call_could_outlive_is_refused_at_start(self, tmp_path: Path) -> None:
        with pytest.raises(Misconfigured, match="lease_s"):
            SenderBench(tmp_path, lease_s=10.0).worker()


class TestBreaker:
    async def wait(self, bench: SenderBench, state: State, count: int = 1) -> list[Answer]:
        bench.breaker.state = state
        return await bench.send(*(deliveries.single(event_id=f"e{n}") for n in range(count)))

    async def test_a_short_outage_is_waited_for_in_the_lane(self, bench: SenderBench) -> None:
        (answer,) = await self.wait(bench, State(Gate.OPEN, 4_000))
        assert deferred_ms(answer, bench.clock) == 4_000

    async def test_a_long_one_in_a_tier_without_counting_a_try(self, bench: SenderBench) -> None:
        (answer,) = await self.wait(bench, State(Gate.OPEN, 20_000))
        assert shown(answer) == [("retrying", "provider_down")]
        later = next_delivery(done(answer).publish[0])
        assert (later.call, later.tries, later.hop) == (1, 0, 1)
        bench.breaker.state = State(Gate.CLOSED)
        (answer,) = await bench.send(later)
        assert shown(answer) == [("sent", "")]

    async def test_a_config_hold_says_that_a_person_must_act(self, bench: SenderBench) -> None:
        (answer,) = await self.wait(bench, State(Gate.OPEN, 40_000, is_hold=True))
        assert shown(answer) == [("retrying", "provider_config")]

    @pytest.mark.parametrize("heard", ["before_claim", "after_claim"])
    async def test_what_was_looked_at_before_it_opened_is_not_called_after_that(
        self, bench: SenderBench, heard: str
    ) -> None:
        """A worker has a thousand deliveries that wait for their tokens: a provider that is down must not get them."""

        async def gap(name: str) -> None:
            bench.breaker.is_open = bench.breaker.is_open or name == heard

        bench.gap, bench.breaker.is_open = gap, heard == "before_claim"
        (answer,) = await self.wait(bench, State(Gate.CLOSED))
        assert deferred_ms(answer, bench.clock) == 0, "looked at again at once"
        assert bench.provider.calls == [] and bench.tokens.given_back == 1
        bench.gap, bench.breaker.is_open = None, False
        (answer,) = await self.wait(bench, State(Gate.CLOSED))
        assert shown(answer) == [("sent", "")] and events(answer)[0].call == 1

    async def test_half_open_a_few_go_and_the_others_wait(self, bench: SenderBench) -> None:
        bench.breaker.probes = 2
        answers = await self.wait(bench, State(Gate.HALF_OPEN), count=5)
        assert [shown(answer) for answer in answers[:2]] == [[("sent", "")]] * 2
        assert [deferred_ms(answer, bench.clock) for answer in answers[2:]] == [2_000] * 3
        assert bench.breaker.noted == [("done", True)] * 2


def doubted(answers: Iterable[Answer]) -> int:
    """The possible duplicates that a row makes of their events."""
    known = states.UNTOUCHED
    for answer in answers:
        for event in events(answer):
            known = states.with_event(known, event, states.KIND_CODES[event.kind], True)
    return states.shown(known).possible_duplicates
