"""Caps and look-alikes on the way of a send: what a user gets, what is held, and what becomes of places and marks."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consumers.caps import CapRules
from consumers.claims import bid_for
from schemas import codec, keys
from schemas.messages import CampaignOrder, Channel, Delivery, Device, Held
from schemas.outcomes import Kind, Outcome
from schemas.policies import ContentCheck, MessageClass, OnUnknown, TemplatePolicy
from schemas.records import Answer, Defer
from tests.doubles import deliveries
from tests.doubles.sender_bench import IDS, SenderBench, done, events, next_delivery, shown

SENT, CAPPED = [("sent", "")], [("suppressed", "capped")]
HELD = [("held", "lookalike")]


@pytest.fixture
def bench(tmp_path: Path) -> SenderBench:
    return SenderBench(tmp_path)


def policy(**changes: Any) -> TemplatePolicy:
    given = {"caps": {}, "content_check": ContentCheck.OFF, **changes}
    return TemplatePolicy("welcome", MessageClass.MARKETING, (Channel.SMS,), **given)


def wish(number: int, **changes: Any) -> Delivery:
    return deliveries.single(event_id=f"wish-{number}", offset=100 + number, **changes)


async def one(bench: SenderBench, delivery: Delivery) -> Answer:
    (answer,) = await bench.send(delivery)
    return answer


def give_devices(bench: SenderBench, *names: str) -> None:
    devices = tuple(Device(name, f"token-{name}", "ios") for name in names)
    bench.people.write("42", replace(bench.people.profiles["42"], devices=devices))


async def died(bench: SenderBench, delivery: Delivery) -> None:
    """A worker dies after its call; its lease runs out."""
    called = asyncio.Event()

    async def gap(name: str) -> None:
        if name == "after_send":
            called.set()
            await asyncio.Event().wait()

    bench.gap = gap
    worker = bench.worker()
    await worker.handle([bench.record(delivery)], lambda record, answer: None)
    await called.wait()
    await worker.close(within_s=0)
    bench.gap = None
    bench.clock.advance(30_001)


class TestCaps:
    @pytest.fixture(autouse=True)
    def capped(self, bench: SenderBench) -> None:
        bench.policy = policy(caps={"day": 2})

    async def test_the_third_of_a_day_is_dropped_with_its_reason_and_without_a_call(self, bench: SenderBench) -> None:
        told = [shown(await one(bench, wish(number))) for number in range(4)]
        assert told == [SENT, SENT, CAPPED, CAPPED]
        assert len(bench.provider.calls) == 2
        assert events(await one(bench, wish(9)))[-1].detail == "2 a day of welcome"

    async def test_of_many_at_once_as_many_are_sent_as_may_be(self, bench: SenderBench) -> None:
        answers = await bench.send(*map(wish, range(10)))
        assert [shown(a) for a in answers if not isinstance(a, Defer)] == [SENT, SENT]
        assert sum(isinstance(a, Defer) for a in answers) == 8, "the others see later whether a place came free"

    async def test_the_next_day_counts_anew(self, bench: SenderBench) -> None:
        await bench.send(wish(0), wish(1))
        bench.clock.advance(86_400_000)
        later = replace(wish(2), released_at_ms=bench.clock.now_ms(), expires_at_ms=0)
        assert shown(await one(bench, later)) == SENT

    async def test_a_call_that_failed_for_certain_does_not_count(self, bench: SenderBench) -> None:
        bench.provider.script = [Outcome(Kind.DROP), Outcome(Kind.RETRY)]
        await bench.send(wish(0))
        await bench.send(wish(1))
        assert [shown(await one(bench, wish(number))) for number in (2, 3, 4)] == [SENT, SENT, CAPPED]

    async def test_a_call_that_may_have_arrived_counts_once_with_its_repeat(self, bench: SenderBench) -> None:
        bench.provider.script = [Outcome(Kind.UNKNOWN)]
        answer = await one(bench, wish(0))
        again = codec.decode(done(answer).publish[0].value, Delivery)
        assert [shown(await one(bench, wish(number))) for number in (1, 2)] == [SENT, CAPPED]
        assert shown(await one(bench, again)) == SENT

    async def test_a_last_try_that_may_have_arrived_counts_and_is_told_as_a_possible_duplicate(
        self, bench: SenderBench
    ) -> None:
        bench.provider.script = [Outcome(Kind.UNKNOWN)]
        told = shown(await one(bench, wish(0, tries=7)))
        assert told == [("possible_duplicate", ""), ("failed", "tries_used_up")]
        assert [shown(await one(bench, wish(number))) for number in (1, 2)] == [SENT, CAPPED]

    async def test_what_was_taken_over_from_a_dead_worker_counts_once(self, bench: SenderBench) -> None:
        await died(bench, wish(0))
        assert shown(await one(bench, wish(0)))[-1:] == SENT
        assert [shown(await one(bench, wish(number))) for number in (1, 2)] == [SENT, CAPPED]

    async def test_where_a_worker_died_at_the_call_its_place_stays_taken(self, bench: SenderBench) -> None:
        await died(bench, wish(0))
        assert [shown(await one(bench, wish(number))) for number in (1, 2)] == [SENT, CAPPED]
        assert shown(await one(bench, wish(0)))[-1:] == SENT and len(bench.provider.calls) == 3

    async def test_a_replay_and_a_redrive_of_what_was_sent_do_not_count_again(self, bench: SenderBench) -> None:
        await bench.send(wish(0))
        await bench.send(wish(0))
        await bench.send(replace(wish(0), generation=1, force=True))
        assert len(bench.provider.calls) == 2
        assert shown(await one(bench, wish(1))) == SENT

    async def test_a_push_to_three_devices_counts_once(self, bench: SenderBench) -> None:
        bench.policy = policy(caps={"day": 1})
        give_devices(bench, "phone", "tablet", "watch")
        pushes = [wish(0, channel=Channel.PUSH, device=device) for device in ("phone", "tablet", "watch")]
        assert [shown(answer) for answer in await bench.send(*pushes)] == [SENT] * 3
        assert shown(await one(bench, wish(1, channel=Channel.PUSH, device="phone"))) == CAPPED

    async def test_what_ends_at_the_claim_gives_its_place_back(self, bench: SenderBench) -> None:
        bench.policy = policy(caps={"day": 1})
        bench.people.causes["sms", "+4930123456"] = "bounced"
        assert shown(await one(bench, wish(0)))[0][0] == "suppressed"
        bench.people.causes.clear()
        assert shown(await one(bench, wish(1))) == SENT

    async def test_a_claim_that_is_given_back_gives_the_place_back(self, bench: SenderBench) -> None:
        bench.policy = policy(caps={"day": 1})
        campaign = deliveries.recipient()
        bench.gap = lambda name: pausing(bench, name)
        assert isinstance(await one(bench, campaign), Defer)
        bench.gap = None
        assert shown(await one(bench, wish(1))) == SENT

    async def test_two_users_and_two_templates_do_not_share_a_cap(self, bench: SenderBench) -> None:
        await bench.send(wish(0), wish(1))
        bench.people.write("43", bench.people.profiles["42"])
        assert shown(await one(bench, wish(2, user_id="43"))) == SENT

    async def test_all_marketing_of_a_tenant_counts_together(self, bench: SenderBench) -> None:
        bench.policy = policy()
        bench.cap_rules = CapRules({"default": 1}, {})
        told = [shown(await one(bench, wish(number))) for number in (0, 1)]
        assert told == [SENT, CAPPED]
        assert events(await one(bench, wish(2)))[-1].detail == "1 a day of marketing messages"

    async def test_who_asks_for_no_cap_pays_no_command(self, bench: SenderBench) -> None:
        bench.policy = policy()
        await bench.send(wish(0))
        assert not bench.caps.sets

    async def test_the_count_outlives_the_claim_of_a_late_worker(self, bench: SenderBench) -> None:
        """Its verdict comes when another holds the claim: what it sent counts all the same."""
        bench.provider.script = [Outcome(Kind.DONE, provider_id="m1")]

        async def taken_over(name: str) -> None:
            if name == "after_send":
                bench.gap = None
                (entry,) = bench.claims.entries.items()
                bench.claims.entries[entry[0]] = entry[1]._replace(token=b"them")

        bench.gap = taken_over
        await bench.send(wish(0))
        (members,) = bench.caps.sets.values()
        assert list(members.values()) == [math.inf]


async def pausing(bench: SenderBench, name: str) -> None:
    if name == "after_claim":
        bench.orders["default", "spring"] = CampaignOrder.PAUSED


def following(answer: Answer, topic: str = "") -> Delivery:
    """What goes on: in a tier, or on another channel."""
    found = [outgoing for outgoing in done(answer).publish if outgoing.topic.startswith(topic)]
    return next_delivery(found[-1])


def cancelled(bench: SenderBench, delivery: Delivery) -> Delivery:
    bench.claims.cancelled.add(bid_for(delivery).cancel_key)
    return delivery


def opted_out(bench: SenderBench, delivery: Delivery) -> Delivery:
    profile = replace(bench.people.profiles["42"], version=2, opt_outs=frozenset({("sms", "*")}))
    bench.people.write("42", profile)
    return delivery


def expired(bench: SenderBench, delivery: Delivery) -> Delivery:
    return replace(delivery, expires_at_ms=bench.clock.now_ms())


def campaign_paused(bench: SenderBench, delivery: Delivery) -> Delivery:
    bench.orders["default", delivery.campaign_id] = CampaignOrder.PAUSED
    return delivery


def refused(bench: SenderBench, delivery: Delivery) -> Delivery:
    bench.provider.script = [Outcome(Kind.DROP)]
    return delivery


def gave_up_for_want_of_time(bench: SenderBench, delivery: Delivery) -> Delivery:
    bench.provider.script = [Outcome(Kind.RETRY, retry_after_ms=10**12)]
    return delivery


def given_back(bench: SenderBench, delivery: Delivery) -> Delivery:
    async def opens(name: str) -> None:
        bench.breaker.is_open = True

    bench.gap = opens
    return delivery


class TestLookalikes:
    @pytest.fixture(autouse=True)
    def checked(self, bench: SenderBench) -> None:
        bench.policy = policy(content_check=ContentCheck.TEMPLATE)

    def held(self, answer: Answer) -> Held:
        (outgoing,) = done(answer).publish
        return codec.decode(outgoing.value, Held)

    async def test_the_second_within_ten_minutes_waits_for_a_person(
        self, bench: SenderBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = wish(0)
        await bench.send(first)
        with caplog.at_level(logging.WARNING):
            answer = await one(bench, wish(1))
        assert shown(answer) == HELD and len(bench.provider.calls) == 1
        named = IDS.notification_id("default", keys.Address(first.row, first.slot))
        assert events(answer)[-1].detail == f"like {named}"
        assert (self.held(answer).due_ms, self.held(answer).reason) == (0, "lookalike")
        assert [record.message for record in caplog.records] == ["lookalike.held"]

    async def test_one_that_looks_like_a_campaigns_message_names_it(self, bench: SenderBench) -> None:
        first = deliveries.recipient()
        await bench.send(first)
        answer = await one(bench, deliveries.recipient(campaign_id="spring-again"))
        named = IDS.notification_id("default", keys.Address(first.row, first.slot))
        assert (shown(answer), events(answer)[-1].detail) == (HELD, f"like {named}")

    async def test_of_two_at_once_exactly_one_is_sent(self, bench: SenderBench) -> None:
        workers = bench.worker(), bench.worker()
        answers = await asyncio.gather(*(bench.hand(w, wish(n)) for n, w in enumerate(workers)))
        assert sorted(shown(answer) for (answer,) in answers) == [HELD, SENT]
        assert len(bench.provider.calls) == 1

    async def test_after_ten_minutes_it_is_another_message(self, bench: SenderBench) -> None:
        await bench.send(wish(0))
        bench.clock.advance(600_001)
        assert shown(await one(bench, wish(1))) == SENT

    async def test_a_replay_is_not_its_own_lookalike(self, bench: SenderBench) -> None:
        await bench.send(wish(0))
        answer = await one(bench, replace(wish(0), generation=1, force=True))
        assert shown(answer) == SENT

    async def test_a_retry_goes_on_and_what_came_meanwhile_waits(self, bench: SenderBench) -> None:
        bench.provider.script = [Outcome(Kind.RETRY)]
        again = codec.decode(done(await one(bench, wish(0))).publish[0].value, Delivery)
        assert shown(await one(bench, wish(1))) == HELD
        assert shown(await one(bench, again)) == SENT

    @pytest.mark.parametrize("outcome", [Kind.DROP, Kind.DEAD_ADDRESS])
    async def test_one_like_a_message_that_was_never_sent_goes_out(self, bench: SenderBench, outcome: Kind) -> None:
        bench.provider.script = [Outcome(outcome)]
        await bench.send(wish(0))
        assert shown(await one(bench, wish(1))) == SENT

    async def test_one_like_a_message_dropped_at_the_claim_goes_out(self, bench: SenderBench) -> None:
        bench.people.causes["sms", "+4930123456"] = "bounced"
        await bench.send(wish(0))
        bench.people.causes.clear()
        assert shown(await one(bench, wish(1))) == SENT

    async def test_one_like_a_message_over_its_cap_is_over_it_too(self, bench: SenderBench) -> None:
        bench.policy = policy(content_check=ContentCheck.PARAMS, caps={"day": 1})
        await bench.send(wish(0))
        assert [shown(await one(bench, wish(n, params='{"name": "Bob"}'))) for n in (1, 2)] == [CAPPED, CAPPED]

    async def test_one_like_a_message_that_may_have_arrived_is_held(self, bench: SenderBench) -> None:
        bench.policy = policy(content_check=ContentCheck.TEMPLATE, on_unknown=OnUnknown.RISK_LOSS)
        bench.provider.script = [Outcome(Kind.UNKNOWN)]
        assert shown(await one(bench, wish(0)))[-1][0] == "unconfirmed"
        assert shown(await one(bench, wish(1))) == HELD

    async def test_one_like_a_message_whose_last_try_may_have_arrived_is_held(self, bench: SenderBench) -> None:
        bench.provider.script = [Outcome(Kind.UNKNOWN)]
        assert shown(await one(bench, wish(0, tries=7)))[-1] == ("failed", "tries_used_up")
        assert shown(await one(bench, wish(1))) == HELD

    @pytest.mark.parametrize("ends", [cancelled, opted_out, expired, campaign_paused])
    async def test_one_like_a_message_that_was_stopped_after_a_refused_call_goes_out(
        self, bench: SenderBench, ends: Callable[[SenderBench, Delivery], Delivery]
    ) -> None:
        bench.provider.script = [Outcome(Kind.RETRY)]
        again = following(await one(bench, deliveries.recipient()))
        profile = bench.people.profiles["42"]
        again = ends(bench, again)
        assert shown(await one(bench, again))[-1][0] in ("cancelled", "suppressed", "expired", "held")
        bench.people.write("42", replace(profile, version=3))
        assert shown(await one(bench, wish(1))) == SENT and len(bench.provider.calls) == 2

    async def test_one_like_a_message_whose_next_try_is_an_hour_away_goes_out(self, bench: SenderBench) -> None:
        bench.provider.script = [Outcome(Kind.RETRY, retry_after_ms=3_600_000)]
        assert shown(await one(bench, wish(0))) == [("held", "provider_error")]
        assert shown(await one(bench, wish(1))) == SENT

    async def test_what_another_worker_has_begun_to_send_since_is_not_forgotten(
        self, bench: SenderBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.provider.script = [Outcome(Kind.RETRY)]
        again = following(await one(bench, wish(0)))
        cancelled(bench, again)
        withdraw = bench.marks.ask_withdraw

        def another_first(trip: Any, *args: Any) -> None:
            bench.claims.entries[bid_for(again).claim_key] = bench.claims.fresh(bid_for(again))
            withdraw(trip, *args)

        monkeypatch.setattr(bench.marks, "ask_withdraw", another_first)
        assert shown(await one(bench, again))[-1][0] == "cancelled"
        assert shown(await one(bench, wish(1))) == HELD

    @pytest.mark.parametrize("ends", [refused, gave_up_for_want_of_time, given_back, cancelled, opted_out])
    async def test_one_like_a_message_of_which_an_earlier_call_may_have_arrived_is_held(
        self, bench: SenderBench, ends: Callable[[SenderBench, Delivery], Delivery]
    ) -> None:
        bench.provider.script = [Outcome(Kind.UNKNOWN)]
        again = following(await one(bench, wish(0)))
        profile = bench.people.profiles["42"]
        await bench.send(ends(bench, again))
        bench.gap, bench.breaker.is_open = None, False
        bench.people.write("42", replace(profile, version=3))
        assert shown(await one(bench, wish(1))) == HELD

    async def test_one_like_a_message_that_a_dead_worker_may_have_sent_is_held_however_it_ends(
        self, bench: SenderBench
    ) -> None:
        await died(bench, wish(0))
        bench.provider.script = [Outcome(Kind.RETRY), Outcome(Kind.DROP)]
        again = following(await one(bench, wish(0)))
        assert shown(await one(bench, again))[-1][0] == "failed"
        assert shown(await one(bench, wish(1))) == HELD

    @pytest.mark.parametrize(
        ("first", "devices", "then"),
        [(Kind.DEAD_ADDRESS, 1, SENT), (Kind.UNKNOWN, 1, HELD), (Kind.DEAD_ADDRESS, 2, HELD)],
        ids=["refused", "in doubt", "on one of two devices"],
    )
    async def test_one_like_a_message_that_was_refused_on_its_second_channel_goes_by_what_became_of_the_first(
        self, bench: SenderBench, first: Kind, devices: int, then: list[tuple[str, str]]
    ) -> None:
        names = ("phone", "tablet")[:devices]
        give_devices(bench, *names)
        bench.provider.script = [*[Outcome(first)] * devices, Outcome(Kind.DROP)]
        for name in names:
            siblings = tuple(keys.delivery_suffix(Channel.PUSH, other) for other in names if other != name)
            pushed = {"channel": Channel.PUSH, "device": name, "siblings": siblings, "fallback": (Channel.EMAIL,)}
            answer = await one(bench, wish(0, tries=7, **pushed))
        email = following(answer, topic="email")
        assert shown(await one(bench, email))[-1][0] == "failed"
        assert shown(await one(bench, wish(1))) == then

    async def test_a_redrive_that_is_refused_does_not_hide_what_was_sent_before(self, bench: SenderBench) -> None:
        await bench.send(wish(0))
        bench.provider.script = [Outcome(Kind.DROP)]
        await bench.send(replace(wish(0), generation=1, force=True))
        assert shown(await one(bench, wish(1))) == HELD

    async def test_a_lookalike_takes_no_place_under_a_cap(self, bench: SenderBench) -> None:
        bench.policy = policy(content_check=ContentCheck.TEMPLATE, caps={"day": 2})
        for number in range(3):
            await bench.send(wish(number))
        bench.clock.advance(600_001)
        assert shown(await one(bench, wish(3))) == SENT

    async def test_what_the_caller_or_an_operator_forces_goes_out(self, bench: SenderBench) -> None:
        await bench.send(wish(0))
        assert shown(await one(bench, wish(1, force=True))) == SENT

    async def test_one_forced_that_was_refused_does_not_hide_what_was_sent_before(self, bench: SenderBench) -> None:
        await bench.send(wish(0))
        bench.provider.script = [Outcome(Kind.DROP)]
        await bench.send(wish(1, force=True))
        assert shown(await one(bench, wish(2))) == HELD

    async def test_the_ten_minutes_begin_with_the_sending_however_long_it_was_tried(self, bench: SenderBench) -> None:
        bench.provider.script = [Outcome(Kind.RETRY)]
        again = codec.decode(done(await one(bench, wish(0))).publish[0].value, Delivery)
        bench.clock.advance(599_000)
        assert shown(await one(bench, again)) == SENT
        bench.clock.advance(599_000)
        assert shown(await one(bench, wish(1))) == HELD

    async def test_they_begin_with_the_repeat_of_a_dead_workers_call_however_long_that_had_to_wait(
        self, bench: SenderBench
    ) -> None:
        await died(bench, wish(0))
        bench.clock.advance(550_000)
        assert shown(await one(bench, wish(0)))[-1:] == SENT
        bench.clock.advance(599_000)
        assert shown(await one(bench, wish(1))) == HELD

    async def test_they_begin_with_the_sending_on_the_next_channel(self, bench: SenderBench) -> None:
        give_devices(bench, "phone")
        bench.provider.script = [Outcome(Kind.UNKNOWN)]
        pushed: dict[str, Any] = {"channel": Channel.PUSH, "device": "phone", "fallback": (Channel.EMAIL,)}
        email = following(await one(bench, wish(0, tries=7, **pushed)), topic="email")
        bench.clock.advance(580_000)
        assert shown(await one(bench, email)) == SENT
        bench.clock.advance(599_000)
        assert shown(await one(bench, wish(1))) == HELD

    async def test_one_that_was_let_go_to_end_ends_by_the_clock_that_let_it_go(self, bench: SenderBench) -> None:
        ends_ms = bench.clock.now_ms() + 500
        expired = wish(1, force=True, hop=1, released_at_ms=ends_ms, expires_at_ms=ends_ms)
        assert shown(await one(bench, expired)) == [("expired", "expired")] and not bench.provider.calls

    async def test_the_devices_of_one_push_are_one_message(self, bench: SenderBench) -> None:
        give_devices(bench, "phone", "tablet")
        pushes = [
            wish(0, channel=Channel.PUSH, device=device, siblings=("push/1", "push/2"))
            for device in ("phone", "tablet")
        ]
        assert [shown(answer) for answer in await bench.send(*pushes)] == [SENT, SENT]

    async def test_by_params_only_the_same_values_are_held(self, bench: SenderBench) -> None:
        bench.policy = policy(content_check=ContentCheck.PARAMS)
        told = [
            await one(bench, wish(n, params=f'{{"name": "{name}"}}')) for n, name in enumerate(("Ada", "Bob", "Ada"))
        ]
        assert [shown(answer) for answer in told] == [SENT, SENT, HELD]

    async def test_by_params_values_that_no_text_shows_make_no_difference(self, bench: SenderBench) -> None:
        bench.policy = policy(content_check=ContentCheck.PARAMS)
        told = [await one(bench, wish(n, params=f'{{"name": "Ada", "job": "{n}"}}')) for n in range(2)]
        assert [shown(answer) for answer in told] == [SENT, HELD]

    async def test_by_params_a_text_that_takes_in_another_one_shows_all_values(self, bench: SenderBench) -> None:
        (bench.folder / "foot.j2").write_text("{{ job }}")
        text = '{% block text %}Hallo {{ name }}{% include "foot.j2" %}{% endblock %}'
        (bench.folder / "welcome" / "sms.de.j2").write_text(text)
        bench.policy = policy(content_check=ContentCheck.PARAMS)
        told = [await one(bench, wish(n, params=f'{{"name": "Ada", "job": "{n}"}}')) for n in range(2)]
        assert [shown(answer) for answer in told] == [SENT, SENT]

    async def test_params_that_cannot_be_read_are_parked_without_harm_to_others(self, bench: SenderBench) -> None:
        bench.policy = policy(content_check=ContentCheck.PARAMS)
        broken, whole = await bench.send(wish(0, params="{"), wish(1))
        assert (shown(broken), shown(whole)) == ([("failed", "bad_request")], SENT)

    async def test_where_nothing_looks_alike_no_mark_is_left(self, bench: SenderBench) -> None:
        bench.policy = policy()
        assert [shown(await one(bench, wish(number))) for number in (0, 1)] == [SENT, SENT]
        assert not bench.marks.marks
