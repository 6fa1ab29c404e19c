"""A worker in the night: who sleeps is held until their morning, asked once more just before the call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from retry_topics import hold
from schemas import codec, quiet_hours, stores
from schemas.messages import Channel, Contact, Delivery, Held, Priority
from schemas.policies import OFF, MessageClass, QuietWindow, TemplatePolicy
from schemas.quiet_hours import QuietHours
from schemas.records import Answer
from tests.doubles import deliveries
from tests.doubles.manual_clock import START_MS
from tests.doubles.sender_bench import SenderBench, all_of, deferred_ms, done, events, shown

MINUTE_MS = 60_000
MORNING_MS = START_MS + 6 * 60 * MINUTE_MS + 6 * MINUTE_MS + 40_000
"""Eight in Berlin. It is ten in the morning in Tokyo, two at night in Berlin, eight in the evening in New York."""
MARKETING = TemplatePolicy("welcome", MessageClass.MARKETING, (Channel.SMS,))


@pytest.fixture
def bench(tmp_path: Path) -> SenderBench:
    bench = SenderBench(tmp_path)
    bench.policy = MARKETING
    bench.quiet = QuietHours({"default": QuietWindow("22:00", "08:00")}, {"default": "Europe/Berlin"})
    return bench


def lives_in(bench: SenderBench, zone: str) -> None:
    bench.people.write("42", stores.Profile(2, phone="+4930123456", time_zone=zone))


def offer(**changes: Any) -> Delivery:
    return deliveries.single(priority=Priority.BULK, **changes)


def held(answer: Answer) -> Held:
    (outgoing,) = done(answer).publish
    assert outgoing.topic == "hold"
    return codec.decode(outgoing.value, Held)


async def test_who_sleeps_is_held_until_their_morning_and_the_row_says_so(bench: SenderBench) -> None:
    (answer,) = await bench.send(offer())
    found, (event,) = held(answer), events(answer)
    assert shown(answer) == [("held", "quiet_hours")]
    assert MORNING_MS <= found.due_ms < MORNING_MS + hold.SPREAD_MS
    assert (event.until_ms, event.hop, found.reason) == (found.due_ms, 1, "quiet_hours")
    assert bench.provider.calls == [] and bench.claims.entries == {} and bench.tokens.spent == 0


async def test_what_comes_out_in_the_morning_is_sent_and_its_tries_are_kept(bench: SenderBench) -> None:
    (answer,) = await bench.send(offer(tries=3, call=4))
    found = held(answer)
    assert found.delivery is not None
    bench.clock.advance(found.due_ms - START_MS)
    (answer,) = await bench.send(replace(found.delivery, released_at_ms=found.due_ms))
    assert shown(answer) == [("sent", "")]
    assert (found.delivery.tries, found.delivery.call) == (3, 4)


@pytest.mark.parametrize(
    ("profile", "to", "told"),
    [
        ("Asia/Tokyo", None, "sent"),
        ("America/New_York", None, "sent"),
        ("Europe/Berlin", Contact(time_zone="Asia/Tokyo"), "sent"),
        ("Asia/Tokyo", Contact(time_zone="Europe/Berlin"), "held"),
        ("", None, "held"),
        ("Mars/Olympus", None, "held"),
    ],
)
async def test_the_night_is_that_of_the_request_or_of_the_profile_or_of_the_tenant(
    bench: SenderBench, profile: str, to: Contact | None, told: str
) -> None:
    lives_in(bench, profile)
    (answer,) = await bench.send(offer(to=to))
    assert [kind for kind, _ in shown(answer)] == [told]


@pytest.mark.parametrize(
    "policy",
    [
        TemplatePolicy("welcome", MessageClass.TRANSACTIONAL, (Channel.SMS,)),
        replace(MARKETING, quiet_hours=OFF),
        replace(MARKETING, quiet_hours=QuietWindow("13:00", "15:00")),
    ],
)
async def test_a_code_goes_at_any_hour_also_by_bulk_and_a_template_may_know_better(
    bench: SenderBench, policy: TemplatePolicy
) -> None:
    bench.policy = policy
    (answer,) = await bench.send(offer())
    assert shown(answer) == [("sent", "")]


async def test_a_night_that_begins_while_a_token_is_waited_for_is_noticed_before_the_call(bench: SenderBench) -> None:
    minutes_until = (22 - 20) * 60 + 6
    bench.clock.advance(minutes_until * MINUTE_MS + 39_000)
    lives_in(bench, "America/New_York")
    bench.gap = _once(lambda name: bench.clock.advance(1_000 if name == "after_claim" else 0))
    (answer,) = await bench.send(offer())
    assert bench.provider.calls == [] and deferred_ms(answer, bench.clock) == 0
    bench.gap = None
    (answer,) = await bench.send(offer())
    assert shown(answer) == [("held", "quiet_hours")], "its claim was given back"


async def test_whose_night_is_longer_than_the_message_is_worth_ends_as_expired_at_once(bench: SenderBench) -> None:
    (answer,) = await bench.send(offer(expires_at_ms=MORNING_MS))
    (event,) = events(answer)
    assert (event.kind, event.reason, event.detail) == ("expired", "expired", quiet_hours.TOO_LONG)


async def test_nobody_is_spread_past_the_expiry(bench: SenderBench) -> None:
    (answer,) = await bench.send(offer(expires_at_ms=MORNING_MS + 1))
    assert held(answer).due_ms == MORNING_MS


async def test_nobody_is_let_go_just_before_they_expire(bench: SenderBench) -> None:
    expires_at_ms = MORNING_MS + 2 * MINUTE_MS
    wishes = [offer(event_id=f"order-{number}", expires_at_ms=expires_at_ms) for number in range(100)]
    found = [held(answer).due_ms - MORNING_MS for answer in await bench.send(*wishes)]
    assert 0 <= min(found) < max(found) < MINUTE_MS


async def test_what_was_let_go_by_a_clock_that_is_ahead_is_judged_by_that_clock(bench: SenderBench) -> None:
    bench.clock.advance(MORNING_MS - START_MS - 5)
    (answer,) = await bench.send(offer(released_at_ms=MORNING_MS, hop=1))
    assert shown(answer) == [("sent", "")]


async def test_a_morning_is_spread_over_half_an_hour_each_person_at_the_same_moment_on_every_channel(
    bench: SenderBench,
) -> None:
    answers = await bench.send(*(offer(event_id=f"order-{number}") for number in range(300)))
    minutes = {(held(answer).due_ms - MORNING_MS) // MINUTE_MS for answer in answers}
    assert minutes == set(range(30))
    (again,) = await bench.send(offer(event_id="order-7", offset=36))
    assert held(again).due_ms == held(answers[7]).due_ms


async def test_who_opted_out_is_told_as_that_at_night_too(bench: SenderBench) -> None:
    opted_out = stores.Profile(2, phone="+49", opt_outs=frozenset({("*", "marketing")}))
    bench.people.write("42", opted_out)
    assert all_of(await bench.send(offer())) == [("suppressed", "opted_out")]


def _once(act: Callable[[str], None]) -> Callable[[str], Any]:
    async def gap(name: str) -> None:
        act(name)

    return gap
