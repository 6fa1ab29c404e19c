"""One send after another: what reaches the provider, what the row is told, what is written where."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consumers.claims import Entry
from consumers.limits import Token
from schemas import codec, keys, metrics, stores
from schemas.errors import StoreDown
from schemas.messages import Channel, Delivery, Suppression
from schemas.outcomes import Kind, Outcome
from schemas.policies import OnUnknown
from schemas.records import Answer
from tests.doubles import deliveries
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


@pytest.fixture
def bench(tmp_path: Path) -> SenderBench:
    return SenderBench(tmp_path)


async def test_a_delivery_is_sent_once_and_its_row_told(bench: SenderBench) -> None:
    (answer,) = await bench.send(deliveries.single())
    (call,) = bench.provider.calls
    assert (call.to, call.content.text, call.delivery_key) == ("+4930123456", "Hallo Ada", "default/e/order-1:sms")
    assert shown(answer) == [("sent", "")]
    (event,) = events(answer)
    assert (event.provider, event.provider_id, event.call, event.delivery) == ("gateway", "m1", 1, "sms")
    assert published(answer) == []


async def test_a_callback_finds_its_call_by_the_reference(bench: SenderBench) -> None:
    delivery = deliveries.single()
    await bench.send(delivery)
    (call,) = bench.provider.calls
    reference = IDS.read_reference(call.reference)
    assert reference is not None
    assert (reference.address, reference.index, reference.call) == (keys.Address(delivery.row, delivery.slot), 0, 1)
    assert reference.address_hash == keys.address_hash("sms", "+4930123456")


async def test_the_trace_goes_on_to_the_provider(bench: SenderBench) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await bench.send(bench.record(deliveries.single(), traceparent=trace.encode()))
    assert bench.provider.calls[0].traceparent == trace


async def test_a_publishers_trace_cannot_add_a_header_to_the_call(bench: SenderBench) -> None:
    trace = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    forged = (trace + b"\r\nAuthorization: Bearer stolen", trace + b"\n", b"\xff" + trace, b"00-ab-cd-01")
    for number, given in enumerate(forged):
        await bench.send(bench.record(deliveries.single(event_id=f"e{number}"), traceparent=given))
    assert [call.traceparent for call in bench.provider.calls] == [""] * len(forged)


async def test_support_finds_what_was_sent_in_the_users_timeline(bench: SenderBench) -> None:
    delivery = deliveries.single()
    await bench.send(delivery)
    ((line,),) = bench.claims.timelines.values()
    name = IDS.notification_id("default", keys.Address(delivery.row, delivery.slot))
    assert name.encode() in line and b"sms" in line and b"sent" in line


async def test_a_copy_of_a_record_sends_nothing_and_says_nothing_new(bench: SenderBench) -> None:
    await bench.send(deliveries.single())
    (answer,) = await bench.send(deliveries.single())
    assert len(bench.provider.calls) == 1
    assert done(answer).events == ()


async def test_many_deliveries_together_share_their_round_trips(bench: SenderBench) -> None:
    answers = await bench.send(*(deliveries.single(event_id=f"e{n}") for n in range(50)))
    assert [shown(answer) for answer in answers] == [[("sent", "")]] * 50
    assert bench.trips.made <= 6


class TestOutcomes:
    """What the provider answers decides what is written."""

    async def after(self, bench: SenderBench, outcome: Outcome | Exception, **changes: Any) -> Answer:
        bench.provider.script = [outcome]
        (answer,) = await bench.send(replace(deliveries.single(), **changes))
        return answer

    async def test_a_failure_waits_in_a_tier_and_counts_a_try(self, bench: SenderBench) -> None:
        answer = done(await self.after(bench, Outcome(Kind.RETRY, detail="503")))
        assert shown(answer) == [("retrying", "provider_error")]
        (outgoing,) = answer.publish
        assert outgoing.topic == "sms.retry.10s"
        later = next_delivery(outgoing)
        assert (later.call, later.tries, later.hop) == (2, 1, 1)
        due = dict(outgoing.headers)["tid-not-before"]
        assert int(due) == events(answer)[0].until_ms
        assert events(answer)[0].hop == 1

    async def test_the_retry_is_sent_with_the_next_number(self, bench: SenderBench) -> None:
        answer = done(await self.after(bench, Outcome(Kind.RETRY)))
        (answer,) = await bench.send(next_delivery(answer.publish[0]))  # type: ignore[assignment]
        assert events(answer)[0].call == 2
        assert len(bench.provider.calls) == 2

    async def test_a_throttled_call_counts_no_try(self, bench: SenderBench) -> None:
        answer = done(await self.after(bench, Outcome(Kind.THROTTLE, retry_after_ms=30_000)))
        assert shown(answer) == [("retrying", "provider_throttled")]
        assert answer.publish[0].topic == "sms.retry.1m"
        assert next_delivery(answer.publish[0]).tries == 0

    async def test_a_refused_message_ends_failed_and_lies_in_the_dlq_as_it_came(self, bench: SenderBench) -> None:
        bench.provider.script = [Outcome(Kind.DROP, detail="bad payload")]
        record = bench.record(deliveries.single())
        (answer,) = await bench.send(record)
        assert shown(answer) == [("failed", "refused_by_provider")]
        (letter,) = done(answer).publish
        assert (letter.topic, letter.value, letter.key) == ("sms.dlq", record.value, record.key)
        assert dict(letter.headers)["tid-error-class"] == b"refused"

    async def test_an_address_that_must_not_be_used_again_is_suppressed(self, bench: SenderBench) -> None:
        answer = done(await self.after(bench, Outcome(Kind.SUPPRESS, detail="opted out at the carrier")))
        assert shown(answer) == [("failed", "address_refused")]
        (outgoing,) = answer.publish
        hashed = keys.address_hash("sms", "+4930123456")
        assert (outgoing.topic, outgoing.key) == ("suppressions", f"default/sms:{hashed}".encode())
        assert codec.decode(outgoing.value, Suppression).cause == "refused"

    async def test_it_is_suppressed_too_where_a_worker_died_before_it_could_say_so(self, bench: SenderBench) -> None:
        """By whoever finds the verdict in the claim, though the person has another number by then."""
        bench.provider.script = [Outcome(Kind.SUPPRESS)]
        await bench.die(deliveries.single(), "after_settle")
        bench.people.write("42", stores.Profile(2, phone="+4930999999"))
        (answer,) = await bench.send(deliveries.single())
        (outgoing,) = done(answer).publish
        hashed = keys.address_hash("sms", "+4930123456")
        assert (outgoing.topic, outgoing.key) == ("suppressions", f"default/sms:{hashed}".encode())
        assert len(bench.provider.calls) == 1

    async def test_blocked_content_ends_failed_and_the_address_stays_usable(self, bench: SenderBench) -> None:
        answer = done(await self.after(bench, Outcome(Kind.BLOCKED)))
        assert shown(answer) == [("failed", "blocked_by_provider")]
        assert answer.publish == ()

    async def test_wrong_credentials_keep_the_message(self, bench: SenderBench) -> None:
        answer = done(await self.after(bench, Outcome(Kind.AUTH_CONFIG)))
        assert shown(answer) == [("retrying", "provider_config")]
        assert next_delivery(answer.publish[0]).tries == 0
        assert bench.breaker.noted == [("auth_config", False)]

    async def test_an_unknown_outcome_is_repeated_and_counted_as_possible_duplicate(self, bench: SenderBench) -> None:
        answer = done(await self.after(bench, Outcome(Kind.UNKNOWN)))
        assert shown(answer) == [("possible_duplicate", ""), ("retrying", "unknown_outcome")]
        assert next_delivery(answer.publish[0]).tries == 1

    async def test_a_template_may_prefer_a_loss_to_a_repeat(self, bench: SenderBench) -> None:
        bench.policy = replace(bench.policy, on_unknown=OnUnknown.RISK_LOSS)
        answer = done(await self.after(bench, Outcome(Kind.UNKNOWN)))
        assert shown(answer) == [("unconfirmed", "unknown_outcome")]
        assert answer.publish == ()

    async def test_a_bug_of_an_adapter_is_an_unknown_outcome(self, bench: SenderBench) -> None:
        answer = done(await self.after(bench, ValueError("oops")))
        assert shown(answer)[-1] == ("retrying", "unknown_outcome")

    @pytest.mark.parametrize("unreached", [Outcome(Kind.NOT_PROCESSED), ValueError("oops")])
    async def test_a_provider_that_was_not_reached_got_nothing_and_no_try_is_counted(
        self, bench: SenderBench, unreached: Outcome | Exception
    ) -> None:
        bench.provider.unreached = unreached
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("retrying", "provider_down")]
        assert next_delivery(done(answer).publish[0]).tries == 0
        assert bench.provider.calls == [] and bench.breaker.noted == [("not_processed", False)]

    async def test_a_provider_that_never_answers_is_left_at_the_deadline(self, tmp_path: Path) -> None:
        bench = SenderBench(tmp_path, deadline_s=0.01)
        bench.provider.hang = True
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer)[-1] == ("retrying", "unknown_outcome")

    async def test_the_eighth_failure_is_the_last_and_lies_in_the_dlq(self, bench: SenderBench) -> None:
        answer = done(await self.after(bench, Outcome(Kind.RETRY), tries=7, call=8))
        assert shown(answer) == [("failed", "tries_used_up")]
        assert published(answer) == ["sms.dlq"]

    @pytest.mark.parametrize(
        ("reason", "changes"),
        [("tries_used_up", {"tries": 7, "call": 8}), ("template_error", {"params": "{}"})],
    )
    async def test_whatever_lies_in_the_dlq_is_counted(
        self, bench: SenderBench, reason: str, changes: dict[str, Any]
    ) -> None:
        counted = metrics.DEAD_LETTERS.labels("sms.dlq", reason)
        before = counted._value.get()
        answer = await self.after(bench, Outcome(Kind.RETRY), **changes)
        assert published(answer) == ["sms.dlq"]
        assert counted._value.get() == before + 1

    async def test_no_retry_outlives_the_message(self, bench: SenderBench) -> None:
        soon = bench.clock.now_ms() + 1_000
        answer = await self.after(bench, Outcome(Kind.RETRY, retry_after_ms=2_000), expires_at_ms=soon)
        assert shown(answer) == [("expired", "expired")]

    async def test_more_retries_than_a_tenth_of_the_sends_wait_longer_and_count_no_try(
        self, bench: SenderBench
    ) -> None:
        bench.breaker.recent = (200, 50)
        counted = metrics.OVER_BUDGET.labels(bench.provider.name)
        before = counted._value.get()
        answer = done(await self.after(bench, Outcome(Kind.RETRY)))
        assert answer.publish[0].topic == "sms.retry.1m"
        assert next_delivery(answer.publish[0]).tries == 0
        assert counted._value.get() == before + 1


class TestFallback:
    async def test_without_an_address_the_next_channel_follows_in_the_same_event(self, bench: SenderBench) -> None:
        bench.people.write("42", stores.Profile(2, phone="+4930123456"))
        email = deliveries.single(channel=Channel.EMAIL, fallback=(Channel.SMS, Channel.INAPP))
        (answer,) = await bench.send(email)
        assert shown(answer) == [("suppressed", "no_address")]
        assert events(answer)[0].next == "sms"
        (outgoing,) = done(answer).publish
        assert outgoing.topic == "sms.transactional"
        other = next_delivery(outgoing)
        assert (other.channel, other.fallback, other.call) == (Channel.SMS, (Channel.INAPP,), 1)
        assert keys.fallback_name(other.index) == "sms"
        (answer,) = await bench.send(other)
        assert shown(answer) == [("sent", "")]

    async def test_used_up_tries_start_it_an_opt_out_does_not(self, bench: SenderBench) -> None:
        bench.provider.script = [Outcome(Kind.RETRY)]
        (answer,) = await bench.send(deliveries.single(tries=7, fallback=(Channel.EMAIL,)))
        assert published(answer) == ["sms.dlq", "email.transactional"]
        bench.people.write("42", stores.Profile(2, opt_outs=frozenset({("sms", "*")})))
        (answer,) = await bench.send(deliveries.single(event_id="e2", fallback=(Channel.EMAIL,)))
        assert shown(answer) == [("suppressed", "opted_out")] and published(answer) == []

    async def test_while_another_device_may_still_be_reached_nothing_follows(self, bench: SenderBench) -> None:
        push = deliveries.single(
            channel=Channel.PUSH, device="old", siblings=("push/12345678",), fallback=(Channel.SMS,)
        )
        (answer,) = await bench.send(push)
        assert shown(answer) == [("suppressed", "dead_device")] and published(answer) == []


class TestBadInput:
    async def test_undecodable_bytes_are_parked_as_they_are_and_the_neighbours_sent(self, bench: SenderBench) -> None:
        poison = bench.raw(b"\x00garbage")
        parked, sent = await bench.send(poison, bench.record(deliveries.single()))
        assert done(parked).publish[0].value == b"\x00garbage"
        assert done(parked).parked
        assert shown(sent) == [("sent", "")]

    async def test_a_value_the_template_needs_and_nobody_gave_parks_one_record(self, bench: SenderBench) -> None:
        broken, sent = await bench.send(deliveries.single(params="{}"), deliveries.single(event_id="e2"))
        assert shown(broken) == [("failed", "template_error")] and published(broken) == ["sms.dlq"]
        assert bench.tokens.given_back == 1
        assert shown(sent) == [("sent", "")]
        assert len(bench.provider.calls) == 1

    async def test_an_unknown_template_fails_by_name(self, bench: SenderBench) -> None:
        (answer,) = await bench.send(deliveries.single(template="nobody"))
        assert shown(answer) == [("failed", "unknown_template")] and published(answer) == ["sms.dlq"]

    async def test_a_row_that_is_none_of_ours_is_parked(self, bench: SenderBench) -> None:
        (answer,) = await bench.send(deliveries.single(row="x.1"))
        assert dict(done(answer).publish[0].headers)["tid-error-class"] == b"bad_request"

    async def test_a_store_that_breaks_for_one_delivery_does_not_harm_the_others(self, bench: SenderBench) -> None:
        bench.people.profiles["7"] = "no profile"  # type: ignore[assignment]
        broken, sent = await bench.send(deliveries.single("7"), deliveries.single())
        assert shown(broken) == [("failed", "internal_error")] and done(broken).parked
        assert shown(sent) == [("sent", "")]


async def test_while_redis_is_away_everything_waits_in_the_lane(bench: SenderBench) -> None:
    bench.trips.down = True
    (answer,) = await bench.send(deliveries.single())
    assert deferred_ms(answer, bench.clock) == 1_000


@pytest.mark.parametrize("epoch", [None, b"another run"])
async def test_an_emptied_or_rolled_back_redis_counts_as_away(bench: SenderBench, epoch: bytes | None) -> None:
    bench.trips.epoch = epoch
    bench.people.write("7", stores.Profile(1, erased=True))
    answers = await bench.send(deliveries.single(), deliveries.single("7"))
    assert [deferred_ms(answer, bench.clock) for answer in answers] == [1_000, 1_000]
    assert bench.provider.calls == []


async def test_a_redis_emptied_between_the_look_and_the_claim_sends_nothing(bench: SenderBench) -> None:
    claim = bench.claims.ask_first

    def empty_first(*args: Any) -> Entry:
        bench.trips.epoch = None
        return claim(*args)

    bench.claims.ask_first = empty_first  # type: ignore[method-assign,assignment]
    (answer,) = await bench.send(deliveries.single())
    assert deferred_ms(answer, bench.clock) == 1_000
    assert bench.provider.calls == []


class TestSetBackRedis:
    """It comes back some seconds older while a later call of a delivery is under way: the claim of the call before."""

    @pytest.fixture
    async def later(self, bench: SenderBench) -> Delivery:
        """Failed once; its second call is made while Redis is set back."""
        bench.provider.script = [Outcome(Kind.RETRY)]
        (answer,) = await bench.send(deliveries.single())
        kept = dict(bench.claims.entries)

        async def gap(name: str) -> None:
            if name == "after_send":
                bench.claims.entries.clear()
                bench.claims.entries.update(kept)

        bench.gap = gap
        return next_delivery(done(answer).publish[0])

    @pytest.mark.parametrize("kind", [Kind.RETRY, Kind.UNKNOWN, Kind.NOT_PROCESSED])
    async def test_a_call_that_failed_is_tried_again_all_the_same(
        self, bench: SenderBench, later: Delivery, kind: Kind
    ) -> None:
        bench.provider.script = [Outcome(kind)]
        (answer,) = await bench.send(later)
        assert shown(answer)[-1][0] == "retrying" and len(published(answer)) == 1

    async def test_a_call_that_was_refused_fails_all_the_same(self, bench: SenderBench, later: Delivery) -> None:
        bench.provider.script = [Outcome(Kind.DROP)]
        (answer,) = await bench.send(later)
        assert [state for state, _ in shown(answer)] == ["failed"]

    async def test_a_copy_of_what_was_sent_is_not_called_again(self, bench: SenderBench, later: Delivery) -> None:
        (answer,) = await bench.send(later)
        assert shown(answer)[-1] == ("sent", "")
        await bench.send(later)
        assert len(bench.provider.calls) == 2

    async def test_what_was_given_back_and_claimed_again_goes_on(self, bench: SenderBench) -> None:
        bench.tokens.dead = 5
        await bench.send(deliveries.single())
        kept, bench.tokens.dead = dict(bench.claims.entries), 0
        assert [entry.given_back for entry in kept.values()] == [True]

        async def gap(name: str) -> None:
            if name == "after_send":
                bench.claims.entries.update(kept)

        bench.gap, bench.provider.script = gap, [Outcome(Kind.RETRY)]
        (answer,) = await bench.send(deliveries.single())
        assert [state for state, _ in shown(answer)] == ["retrying"]


async def test_a_call_whose_token_died_when_redis_went_away_is_made_later(
    bench: SenderBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes = iter([bench.tokens.take])

    async def gone(wanted: int, wait_s: float, rank: int = 0) -> list[Token]:
        raise StoreDown("Redis is away")

    async def take(wanted: int, wait_s: float, rank: int = 0) -> list[Token]:
        return await next(takes, gone)(wanted, wait_s, rank)

    monkeypatch.setattr(bench.tokens, "take", take)
    bench.tokens.dead = 1
    (answer,) = await bench.send(deliveries.single())
    assert deferred_ms(answer, bench.clock) == 0 and bench.provider.calls == []
    monkeypatch.undo()
    assert shown((await bench.send(deliveries.single()))[0]) == [("sent", "")]


async def test_a_worker_that_can_settle_nothing_more_ends_its_process(bench: SenderBench) -> None:
    async def stand_in(gap: str) -> None:
        if gap == "after_settle":
            raise ZeroDivisionError(gap)

    bench.gap = stand_in
    worker = bench.worker()
    await worker.handle([bench.record(deliveries.single())], lambda record, answer: None)
    async with asyncio.timeout(5):
        with pytest.raises(ZeroDivisionError):
            await worker.watched()
        await worker.close(within_s=60)
