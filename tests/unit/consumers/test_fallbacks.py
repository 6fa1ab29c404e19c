"""When the next channel takes over, told by what one worker does with the deliveries of one notification."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consumers.breaker import Gate, State
from consumers.claims import bid_for
from consumers.fallbacks import Question, Wish
from consumers.throttles import LANE
from schemas import keys, slots, stores
from schemas.messages import Channel, Delivery, Device, EventKind, Priority, StatusEvent
from schemas.outcomes import Kind, Outcome
from schemas.policies import OnUnknown
from schemas.records import Answer, Done
from tests.doubles import deliveries
from tests.doubles.manual_clock import START_MS
from tests.doubles.sender_bench import (
    SecondProvider,
    SenderBench,
    deferred_ms,
    done,
    events,
    next_delivery,
    published,
    shown,
)

PHONE, TABLET, WATCH = "phone", "tablet", "watch"
DEAD = Outcome(Kind.DEAD_ADDRESS)
DOWN = State(Gate.OPEN, 60_000, False)


def device(name: str) -> Device:
    return Device(name, f"token-{name}", "android")


ADA = stores.Profile(1, email="ada@example.org", phone="+4930123456", devices=(device(PHONE), device(TABLET)))


@pytest.fixture
def bench(tmp_path: Path) -> SenderBench:
    """Ada has two devices, a telephone number and an email address."""
    bench = SenderBench(tmp_path)
    bench.people.write("42", ADA)
    return bench


def push(name: str, **changes: Any) -> Delivery:
    other = TABLET if name == PHONE else PHONE
    sibling = keys.delivery_suffix(Channel.PUSH, other)
    given = {"channel": Channel.PUSH, "device": name, "siblings": (sibling,), "fallback": (Channel.SMS,), **changes}
    return deliveries.single(**given)


def alone(**changes: Any) -> Delivery:
    """A login code that goes to the only device there is."""
    return push(PHONE, siblings=(), **changes)


def followed(answers: list[Answer]) -> list[str]:
    """The lanes of other channels that were written to."""
    return [topic for answer in answers for topic in published(answer) if topic.startswith(("sms.", "email."))]


def next_of(answer: Answer) -> list[str]:
    return [event.next for event in events(answer) if event.next]


class TestSeveralDevices:
    async def test_the_last_dead_one_starts_it_and_the_first_does_not(self, bench: SenderBench) -> None:
        bench.provider.script = [DEAD, DEAD]
        first = await bench.send(push(PHONE))
        assert shown(first[0]) == [("failed", "dead_device")] and followed(first) == []
        last = await bench.send(push(TABLET))
        assert followed(last) == ["sms.transactional"] and next_of(last[0]) == ["sms"]

    async def test_two_that_die_in_one_batch_start_it_once(self, bench: SenderBench) -> None:
        bench.provider.script = [DEAD, DEAD]
        assert followed(await bench.send(push(PHONE), push(TABLET))) == ["sms.transactional"]

    @pytest.mark.parametrize("order", [(PHONE, TABLET), (TABLET, PHONE)])
    async def test_one_that_was_reached_is_enough_whichever_comes_first(
        self, bench: SenderBench, order: tuple[str, str]
    ) -> None:
        bench.people.write("42", replace(ADA, devices=(device(PHONE),)))
        answers = [(await bench.send(push(name)))[0] for name in order]
        assert sorted(shown(answer)[0][0] for answer in answers) == ["sent", "suppressed"]
        assert followed(answers) == []

    async def test_one_that_waits_for_its_next_try_is_waited_for(self, bench: SenderBench) -> None:
        bench.provider.script = [Outcome(Kind.RETRY), DEAD]
        waits = await bench.send(push(PHONE))
        assert followed(await bench.send(push(TABLET))) == []
        bench.provider.script = [DEAD]
        assert followed(await bench.send(next_delivery(done(waits[0]).publish[0]))) == ["sms.transactional"]

    async def test_an_end_that_asks_for_nothing_does_not_hide_that_the_other_asked(self, bench: SenderBench) -> None:
        bench.provider.script = [DEAD, Outcome(Kind.DROP)]
        await bench.send(push(PHONE))
        last = await bench.send(push(TABLET))
        assert shown(last[0]) == [("failed", "refused_by_provider")] and followed(last) == ["sms.transactional"]

    async def test_refused_messages_alone_start_nothing(self, bench: SenderBench) -> None:
        bench.provider.script = [Outcome(Kind.DROP)] * 2
        assert followed(await bench.send(push(PHONE), push(TABLET))) == []

    async def test_used_up_tries_give_up_the_devices_that_wait_and_none_of_them_is_called(
        self, bench: SenderBench
    ) -> None:
        bench.provider.script = [Outcome(Kind.RETRY), Outcome(Kind.RETRY)]
        waits = await bench.send(push(PHONE))
        assert followed(await bench.send(push(TABLET, tries=7))) == ["sms.transactional"]
        again = await bench.send(next_delivery(done(waits[0]).publish[0]))
        assert shown(again[0]) == [("suppressed", "fell_back")] and followed(again) == []
        assert len(bench.provider.calls) == 2

    async def test_while_one_is_being_called_none_starts_and_who_comes_next_does(self, bench: SenderBench) -> None:
        phone, tablet = push(PHONE), push(TABLET, tries=7)
        under_way = bench.claims.fresh(bid_for(phone))
        bench.claims.entries[bid_for(phone).claim_key] = under_way
        bench.provider.script = [Outcome(Kind.RETRY)]
        assert followed(await bench.send(tablet)) == []
        bench.claims.entries[bid_for(phone).claim_key] = under_way._replace(given_back=True)
        last = await bench.send(phone)
        assert shown(last[0]) == [("failed", "provider_unavailable")] and next_of(last[0]) == ["sms"]
        assert len(bench.provider.calls) == 1

    async def test_two_that_were_cut_off_do_not_wait_for_each_other_once_the_channel_is_given_up(
        self, bench: SenderBench
    ) -> None:
        names = (PHONE, TABLET, WATCH)
        bench.people.write("42", replace(ADA, devices=tuple(map(device, names))))
        suffixes = {name: keys.delivery_suffix(Channel.PUSH, name) for name in names}
        phone, tablet, watch = (
            push(name, tries=7, siblings=tuple(suffixes[other] for other in names if other != name)) for name in names
        )
        bench.provider.script = [Outcome(Kind.DONE), Outcome(Kind.DONE), Outcome(Kind.RETRY)]
        await bench.die(phone, "after_send")
        await bench.die(tablet, "after_send")
        assert followed(await bench.send(watch)) == []
        answers = await bench.send(phone, tablet)
        assert [shown(answer)[-1] for answer in answers] == [("failed", "provider_unavailable")] * 2
        assert followed(answers) == ["sms.transactional"] and len(bench.provider.calls) == 3

    async def test_who_claimed_after_it_had_started_makes_no_call(self, bench: SenderBench) -> None:
        take = bench.claims.ask_first

        def another_ends(trip: Any, *args: Any) -> Any:
            bench.fallbacks.decide(Question(push(TABLET), Wish.CHANNEL))
            return take(trip, *args)

        bench.claims.ask_first = another_ends  # type: ignore[method-assign,assignment]
        (answer,) = await bench.send(push(PHONE))
        assert shown(answer) == [("suppressed", "fell_back")] and bench.provider.calls == []

    async def test_a_call_in_doubt_forbids_it_where_a_loss_is_better_than_a_repeat(self, bench: SenderBench) -> None:
        bench.policy = replace(bench.policy, on_unknown=OnUnknown.RISK_LOSS)
        bench.provider.script = [Outcome(Kind.UNKNOWN), DEAD]
        answers = [*await bench.send(push(PHONE)), *await bench.send(push(TABLET))]
        assert [shown(answer)[0][0] for answer in answers] == ["unconfirmed", "failed"] and followed(answers) == []


class TestWhatStartsNone:
    @pytest.mark.parametrize(
        "profile",
        [
            replace(ADA, opt_outs=frozenset({("push", "*")})),
            stores.Profile(1, erased=True),
        ],
    )
    async def test_a_wish_of_the_person(self, bench: SenderBench, profile: stores.Profile) -> None:
        bench.people.write("42", profile)
        assert followed(await bench.send(alone())) == []

    async def test_an_expiry(self, bench: SenderBench) -> None:
        assert followed(await bench.send(alone(expires_at_ms=START_MS))) == []

    async def test_a_dead_device_that_is_heard_of_after_the_expiry(self, bench: SenderBench) -> None:
        async def late(name: str) -> None:
            if name == "before_send":
                bench.clock.advance(2_000)

        bench.gap, bench.provider.script = late, [DEAD]
        assert followed(await bench.send(alone(expires_at_ms=START_MS + 1_000))) == []

    async def test_a_cancel(self, bench: SenderBench) -> None:
        bench.claims.cancelled.add(keys.redis_cancel("default", "42", alone().intent))
        assert followed(await bench.send(alone())) == []

    async def test_an_intent_that_lives_elsewhere(self, bench: SenderBench) -> None:
        bench.provider.script = [Outcome(Kind.RETRY)]
        await bench.send(push(PHONE, offset=99))
        (answer,) = await bench.send(push(PHONE))
        assert shown(answer) == [("suppressed", "duplicate_of")] and published(answer) == []

    async def test_a_channel_without_a_provider_is_passed_over(self, bench: SenderBench) -> None:
        bench.served = frozenset({Channel.PUSH, Channel.EMAIL})
        bench.people.write("42", replace(ADA, devices=()))
        (answer,) = await bench.send(alone(fallback=(Channel.SMS, Channel.EMAIL)))
        assert followed([answer]) == ["email.transactional"] and next_of(answer) == ["email"]
        (answer,) = await bench.send(alone(event_id="e2", fallback=(Channel.SMS,)))
        assert shown(answer) == [("suppressed", "dead_device")] and followed([answer]) == []


class TestTheListIsTriedInOrder:
    async def test_until_somebody_is_reached_and_each_channel_once(self, bench: SenderBench) -> None:
        bench.people.write("42", stores.Profile(1, email="ada@example.org"))
        (first,) = await bench.send(alone(fallback=(Channel.SMS, Channel.EMAIL)))
        (second,) = await bench.send(next_delivery(done(first).publish[0]))
        assert shown(second) == [("suppressed", "no_address")] and next_of(second) == ["email"]
        (third,) = await bench.send(next_delivery(done(second).publish[0]))
        assert shown(third) == [("sent", "")] and [call.channel for call in bench.provider.calls] == [Channel.EMAIL]

    async def test_an_opt_out_from_one_of_the_list_passes_it_over(self, bench: SenderBench) -> None:
        bench.people.write("42", replace(ADA, devices=(), opt_outs=frozenset({("sms", "*")})))
        (first,) = await bench.send(alone(fallback=(Channel.SMS, Channel.EMAIL)))
        (second,) = await bench.send(next_delivery(done(first).publish[0]))
        assert shown(second) == [("suppressed", "opted_out")] and followed([second]) == ["email.transactional"]

    async def test_who_cannot_be_reached_by_the_last_one_ends_with_its_reason(self, bench: SenderBench) -> None:
        bench.people.write("42", stores.Profile(1))
        (first,) = await bench.send(alone())
        (second,) = await bench.send(next_delivery(done(first).publish[0]))
        assert shown(second) == [("suppressed", "no_address")] and published(second) == []

    async def test_what_follows_carries_on_what_the_first_was(self, bench: SenderBench) -> None:
        bench.people.write("42", replace(ADA, devices=()))
        first = alone(priority=Priority.BULK, hop=3, campaign_id="spring", fallback=(Channel.SMS, Channel.EMAIL))
        (answer,) = await bench.send(first)
        (record,) = done(answer).publish
        other = next_delivery(record)
        assert record.topic == "sms.bulk" and record.key == keys.user_key("default", "42").encode()
        assert other == replace(
            first, channel=Channel.SMS, device="", index=keys.fallback_index(Channel.SMS), hop=4,
            fallback=(Channel.EMAIL,),
        )  # fmt: skip


class TestReadAgain:
    @pytest.fixture
    def dead(self, bench: SenderBench) -> Delivery:
        bench.people.write("42", replace(ADA, devices=()))
        return alone()

    async def test_a_replay_starts_no_second_one(self, bench: SenderBench, dead: Delivery) -> None:
        await bench.send(dead)
        (answer,) = await bench.send(dead)
        assert done(answer) == Done()

    async def test_a_redrive_starts_no_second_one_and_is_called_itself(
        self, bench: SenderBench, dead: Delivery
    ) -> None:
        await bench.send(dead)
        (answer,) = await bench.send(replace(dead, generation=1))
        assert shown(answer) == [("suppressed", "dead_device")] and followed([answer]) == []
        bench.people.write("42", ADA)
        (answer,) = await bench.send(replace(dead, generation=2))
        assert shown(answer) == [("sent", "")]

    @pytest.mark.parametrize("where", ["after_settle", "after_fallback"])
    async def test_a_crash_before_it_is_told_repeats_it_with_the_same_ids(
        self, bench: SenderBench, dead: Delivery, where: str
    ) -> None:
        await bench.die(dead, where)
        bench.people.write("42", ADA)
        (answer,) = await bench.send(dead)
        assert followed([answer]) == ["sms.transactional"] and events(answer)[0].at_ms == START_MS
        assert next_delivery(done(answer).publish[0]).released_at_ms == START_MS
        (answer,) = await bench.send(dead)
        assert done(answer) == Done() and bench.provider.calls == []

    async def test_of_two_that_a_worker_died_with_one_starts_it(self, bench: SenderBench) -> None:
        bench.provider.script = [DEAD, DEAD]
        await bench.die(push(PHONE), "after_settle")
        await bench.die(push(TABLET), "after_fallback")
        assert followed(await bench.send(push(PHONE), push(TABLET))) == ["sms.transactional"]


class TestAProviderThatIsAway:
    """fallback_after is 30 s."""

    async def test_a_login_code_waits_for_it_no_longer_than_that(self, bench: SenderBench) -> None:
        bench.breaker.state = DOWN
        (waits,) = await bench.send(alone())
        assert shown(waits) == [("retrying", "provider_down")]
        assert events(waits)[0].until_ms == START_MS + 30_000, "not the minute that the breaker is open"
        bench.clock.advance(30_000)
        (turned,) = await bench.send(next_delivery(done(waits).publish[0]))
        assert shown(turned) == [("failed", "provider_unavailable")] and next_of(turned) == ["sms"]
        assert followed([turned]) == ["sms.transactional"] and bench.provider.calls == []

    async def test_the_time_counts_from_the_first_wait_also_within_the_lane(self, bench: SenderBench) -> None:
        bench.breaker.state = State(Gate.OPEN, 2_000, False)
        (answer,) = await bench.send(alone())
        assert deferred_ms(answer, bench.clock) == 2_000
        bench.clock.advance(29_000)
        (answer,) = await bench.send(alone())
        assert deferred_ms(answer, bench.clock) == 1_000
        bench.clock.advance(1_000)
        assert followed(await bench.send(alone())) == ["sms.transactional"]

    async def test_when_it_is_back_in_time_it_is_called(self, bench: SenderBench) -> None:
        bench.breaker.state = DOWN
        (waits,) = await bench.send(alone())
        bench.clock.advance(30_000)
        bench.breaker.state = State(Gate.CLOSED, 0, False)
        (answer,) = await bench.send(next_delivery(done(waits).publish[0]))
        assert shown(answer) == [("sent", "")]

    @pytest.mark.parametrize("kind", [Kind.NOT_PROCESSED, Kind.THROTTLE, Kind.AUTH_CONFIG, Kind.RETRY, Kind.UNKNOWN])
    async def test_calls_that_come_to_nothing_for_that_long_are_as_good_as_no_provider(
        self, bench: SenderBench, kind: Kind
    ) -> None:
        bench.provider.script = [Outcome(kind)] * 2
        (waits,) = await bench.send(alone())
        assert followed([waits]) == []
        bench.clock.advance(30_000)
        (turned,) = await bench.send(next_delivery(done(waits).publish[0]))
        assert shown(turned)[-1] == ("failed", "provider_unavailable") and next_of(turned) == ["sms"]

    async def test_who_is_told_to_come_back_later_than_that_does_not_wait_for_it(self, bench: SenderBench) -> None:
        bench.provider.script = [Outcome(Kind.THROTTLE, retry_after_ms=45_000)]
        assert followed(await bench.send(alone())) == ["sms.transactional"]

    async def test_where_another_provider_stands_by_that_one_is_asked_first(self, bench: SenderBench) -> None:
        bench.others = [second := SecondProvider()]
        bench.provider.script = [Outcome(Kind.THROTTLE, retry_after_ms=45_000)]
        (waits,) = await bench.send(alone())
        assert shown(waits) == [("retrying", "provider_throttled")] and followed([waits]) == []
        bench.throttle.paused = {LANE: 45_000}
        (answer,) = await bench.send(next_delivery(done(waits).publish[0]))
        assert shown(answer) == [("sent", "")] and len(second.scripted.calls) == 1

    async def test_a_shorter_time_that_the_provider_asks_for_is_kept(self, bench: SenderBench) -> None:
        bench.provider.script = [Outcome(Kind.THROTTLE, retry_after_ms=20_000)]
        (waits,) = await bench.send(alone())
        assert START_MS + 20_000 <= events(waits)[0].until_ms <= START_MS + 30_000

    async def test_marketing_waits_however_long(self, bench: SenderBench) -> None:
        bench.breaker.state = DOWN
        bulk = alone(priority=Priority.BULK)
        (waits,) = await bench.send(bulk)
        bench.clock.advance(60_000)
        (waits,) = await bench.send(next_delivery(done(waits).publish[0]))
        assert shown(waits) == [("retrying", "provider_down")] and followed([waits]) == []

    async def test_one_device_that_was_reached_keeps_the_other_waiting(self, bench: SenderBench) -> None:
        await bench.send(push(PHONE))
        bench.breaker.state = DOWN
        (waits,) = await bench.send(push(TABLET))
        bench.clock.advance(60_000)
        (waits,) = await bench.send(next_delivery(done(waits).publish[0]))
        assert shown(waits) == [("retrying", "provider_down")] and followed([waits]) == []
        assert events(waits)[0].until_ms == bench.clock.now_ms() + 60_000

    async def test_two_devices_that_waited_start_it_once_and_the_other_gives_way(self, bench: SenderBench) -> None:
        bench.breaker.state = DOWN
        waits = await bench.send(push(PHONE), push(TABLET))
        bench.clock.advance(30_000)
        answers = await bench.send(*(next_delivery(done(answer).publish[0]) for answer in waits))
        reasons = sorted(shown(answer)[0][1] for answer in answers)
        assert reasons == ["fell_back", "provider_unavailable"] and followed(answers) == ["sms.transactional"]

    async def test_who_has_waited_long_enough_asks_again_soon_while_a_sibling_is_being_called(
        self, bench: SenderBench
    ) -> None:
        bench.breaker.state = DOWN
        (waits,) = await bench.send(push(PHONE))
        bench.clock.advance(30_000)
        bid = bid_for(push(TABLET))
        bench.claims.entries[bid.claim_key] = bench.claims.fresh(bid)
        again = next_delivery(done(waits).publish[0])
        (answer,) = await bench.send(again)
        assert deferred_ms(answer, bench.clock) == 1_000
        bench.claims.entries[bid.claim_key] = bench.claims.fresh(bid)._replace(given_back=True)
        (turned,) = await bench.send(again)
        assert shown(turned) == [("failed", "provider_unavailable")] and next_of(turned) == ["sms"]

    async def test_a_worker_that_dies_after_it_has_started_leaves_it_to_the_next_look(self, bench: SenderBench) -> None:
        bench.breaker.state = DOWN
        (waits,) = await bench.send(alone())
        again = next_delivery(done(waits).publish[0])
        bench.clock.advance(30_000)
        await bench.die(again, "after_fallback")
        bench.breaker.state = State(Gate.CLOSED, 0, False)
        (turned,) = await bench.send(again)
        assert shown(turned) == [("failed", "provider_unavailable")] and followed([turned]) == ["sms.transactional"]
        assert bench.provider.calls == []

    async def test_where_a_loss_is_better_a_call_in_doubt_waits_on(self, bench: SenderBench) -> None:
        bench.policy = replace(bench.policy, on_unknown=OnUnknown.RISK_LOSS)
        await bench.die(alone(), "after_send")
        bench.breaker.state = DOWN
        bench.clock.advance(60_000)
        (answer,) = await bench.send(alone())
        assert followed([answer]) == []


async def test_a_first_channel_that_is_reported_delivered_after_all_is_shown_so(bench: SenderBench) -> None:
    """The provider answered with errors and delivered all the same."""
    bench.provider.script = [Outcome(Kind.RETRY)]
    (answer,) = await bench.send(alone(tries=7))
    push_name = keys.delivery_suffix(Channel.PUSH, PHONE)
    slot = slots.merge(
        slots.EMPTY, StatusEvent(3, EventKind.PLANNED, START_MS, plan=(push_name,), source_offset=1), True
    )
    for event in (*events(answer), StatusEvent(3, EventKind.SENT, START_MS, "sms", call=1)):
        slot = slots.merge(slot, event, True)
    assert [view.state for view in slots.view(slot).deliveries] == ["failed", "sent"]
    slot = slots.merge(slot, StatusEvent(3, EventKind.DELIVERED, START_MS, push_name, call=1), True)
    assert [view.state for view in slots.view(slot).deliveries] == ["delivered", "sent"]
    assert slots.tally(slot).delivered == 1
