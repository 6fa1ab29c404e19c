"""Which of two providers a delivery goes to, and what it waits for when it may go to neither."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consumers.breaker import CLOSED, Gate, State
from consumers.throttles import LANE
from schemas import keys, stores
from schemas.messages import Delivery
from schemas.outcomes import Kind, Outcome, Scope
from schemas.policies import OnUnknown
from tests.doubles import deliveries
from tests.doubles.sender_bench import SecondProvider, SenderBench, deferred_ms, done, events, next_delivery, shown

DOWN = State(Gate.OPEN, 20_000)
HOUR_MS = 3_600_000
TOLD = Outcome(Kind.UNKNOWN, detail="no answer")


@pytest.fixture
def second() -> SecondProvider:
    return SecondProvider()


@pytest.fixture
def bench(tmp_path: Path, second: SecondProvider) -> SenderBench:
    made = SenderBench(tmp_path)
    made.others = [second]
    return made


def many(count: int, **changes: Any) -> list[Delivery]:
    return [deliveries.single(event_id=f"e{number}", **changes) for number in range(count)]


def calls(bench: SenderBench, second: SecondProvider) -> tuple[int, int]:
    return len(bench.provider.calls), len(second.scripted.calls)


async def test_while_both_are_well_a_twentieth_goes_to_the_second(bench: SenderBench, second: SecondProvider) -> None:
    answers = await bench.send(*many(1_000))
    assert {told for answer in answers for told in shown(answer)} == {("sent", "")}
    first, standby = calls(bench, second)
    assert first + standby == 1_000 and 30 <= standby <= 75
    assert bench.tokens.spent == first and second.tokens.spent == standby, "each at the rate of its own provider"
    providers = [events(answer)[0].provider for answer in answers]
    assert providers.count("second") == standby, "the status names who sent it"


async def test_the_share_of_the_second_does_not_wait_for_the_tokens_of_the_first(
    bench: SenderBench, second: SecondProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, granted = asyncio.Event(), bench.tokens.take
    called, spend = asyncio.Event(), second.tokens.spend

    async def take(*wish: Any) -> Any:
        await free.wait()
        return await granted(*wish)

    def spent(token: Any) -> bool:
        called.set()
        return spend(token)

    monkeypatch.setattr(bench.tokens, "take", take)
    monkeypatch.setattr(second.tokens, "spend", spent)
    sending = asyncio.create_task(bench.send(*many(200)))
    async with asyncio.timeout(5):
        await called.wait()
    assert not bench.provider.calls
    free.set()
    await sending


async def test_the_same_delivery_goes_to_the_same_provider_whoever_sends_it(
    bench: SenderBench, second: SecondProvider
) -> None:
    """Who takes over the call of a dead worker repeats it where the provider knows the key."""
    await bench.send(*many(300))
    before = {call.delivery_key for call in second.scripted.calls}
    bench.claims.entries.clear()
    await bench.send(*many(300))
    assert before and {call.delivery_key for call in second.scripted.calls} == before


@pytest.mark.parametrize("share", [0.0, 0.3])
async def test_the_share_is_a_setting(tmp_path: Path, second: SecondProvider, share: float) -> None:
    bench = SenderBench(tmp_path, standby_share=share)
    bench.others = [second]
    await bench.send(*many(400))
    assert abs(calls(bench, second)[1] - 400 * share) <= 40


@pytest.mark.parametrize("state", [DOWN, State(Gate.OPEN, 60_000, is_hold=True)])
async def test_when_the_first_is_open_the_second_gets_all(
    bench: SenderBench, second: SecondProvider, state: State
) -> None:
    bench.breaker.state = state
    answers = await bench.send(*many(20))
    assert [shown(answer) for answer in answers] == [[("sent", "")]] * 20
    assert calls(bench, second) == (0, 20)


async def test_what_failed_at_the_first_is_tried_at_the_second_when_the_first_is_open_by_then(
    bench: SenderBench, second: SecondProvider
) -> None:
    bench.provider.script = [Outcome(Kind.RETRY, detail="503")]
    (answer,) = await bench.send(deliveries.single())
    bench.breaker.state = DOWN
    (answer,) = await bench.send(next_delivery(done(answer).publish[0]))
    assert shown(answer) == [("sent", "")] and calls(bench, second) == (1, 1)


async def test_one_that_delivers_too_little_is_used_only_where_no_other_is_well(
    bench: SenderBench, second: SecondProvider
) -> None:
    bench.breaker.state = State(Gate.CLOSED, is_avoided=True)
    await bench.send(*many(20))
    assert calls(bench, second) == (0, 20)
    second.still.state = DOWN
    (answer,) = await bench.send(deliveries.single(event_id="last"))
    assert shown(answer) == [("sent", "")] and calls(bench, second) == (1, 20)


async def test_a_sick_standby_gets_nothing(bench: SenderBench, second: SecondProvider) -> None:
    second.still.state = DOWN
    answers = await bench.send(*many(200))
    assert calls(bench, second) == (200, 0) and {shown(answer)[0] for answer in answers} == {("sent", "")}


async def test_a_provider_that_may_be_back_is_tested_though_another_one_is_well(
    bench: SenderBench, second: SecondProvider
) -> None:
    """Else what failed over would never come back."""
    bench.breaker.state, bench.breaker.probes = State(Gate.HALF_OPEN), 3
    answers = await bench.send(*many(20))
    assert calls(bench, second) == (3, 17) and {shown(answer)[0] for answer in answers} == {("sent", "")}
    assert bench.breaker.noted == [("done", True)] * 3
    assert second.still.noted == [("done", False)] * 17


async def test_when_both_are_open_all_wait_for_whichever_may_be_back_first(
    bench: SenderBench, second: SecondProvider
) -> None:
    bench.breaker.state, second.still.state = State(Gate.OPEN, 40_000), State(Gate.OPEN, 9_000)
    (answer,) = await bench.send(deliveries.single())
    assert shown(answer) == [("retrying", "provider_down")]
    assert events(answer)[0].until_ms == bench.clock.now_ms() + 9_000


async def test_a_breaker_that_a_person_opened_is_looked_at_again_within_a_minute(bench: SenderBench) -> None:
    bench.others, bench.breaker.state = [], State(Gate.OPEN, 2**40)
    (answer,) = await bench.send(deliveries.single())
    assert events(answer)[0].until_ms == bench.clock.now_ms() + 60_000


class TestCallsInDoubt:
    async def in_doubt(self, bench: SenderBench) -> Delivery:
        bench.provider.script = [TOLD]
        (answer,) = await bench.send(deliveries.single())
        later = next_delivery(done(answer).publish[0])
        assert (later.doubted_at, later.doubted_at_ms) == ("gateway", bench.clock.now_ms())
        return later

    async def test_is_repeated_where_it_was_made_though_another_provider_is_well(
        self, bench: SenderBench, second: SecondProvider
    ) -> None:
        later = await self.in_doubt(bench)
        bench.breaker.state = DOWN
        (answer,) = await bench.send(later)
        assert shown(answer) == [("retrying", "provider_down")] and calls(bench, second) == (1, 0)
        again = next_delivery(done(answer).publish[0])
        assert (again.doubted_at, again.doubted_at_ms) == (later.doubted_at, later.doubted_at_ms)
        bench.breaker.state = CLOSED
        (answer,) = await bench.send(again)
        assert shown(answer) == [("sent", "")] and calls(bench, second) == (2, 0)
        assert len({call.delivery_key for call in bench.provider.calls}) == 1, "the provider can tell the repeat"

    async def test_but_not_for_longer_than_ten_minutes(self, bench: SenderBench, second: SecondProvider) -> None:
        later = await self.in_doubt(bench)
        bench.breaker.state = DOWN
        bench.clock.advance(600_001)
        (answer,) = await bench.send(later)
        assert shown(answer) == [("sent", "")] and calls(bench, second) == (1, 1)

    @pytest.mark.parametrize("paused", [LANE, f"r:{keys.address_hash('sms', '+4930123456')}"], ids=["all", "recipient"])
    async def test_nor_where_its_provider_wants_to_be_left_alone_for_an_hour(
        self, bench: SenderBench, second: SecondProvider, paused: str
    ) -> None:
        later = deliveries.single(doubted_at="second", doubted_at_ms=bench.clock.now_ms())
        bench.clock.advance(540_000)
        second.quiet.paused = {paused: HOUR_MS}
        (answer,) = await bench.send(later)
        assert shown(answer) == [("retrying", "provider_throttled")]
        assert events(answer)[0].until_ms == later.doubted_at_ms + 600_000
        bench.clock.advance(60_000)
        (answer,) = await bench.send(next_delivery(done(answer).publish[0]))
        assert shown(answer) == [("sent", "")] and calls(bench, second) == (1, 0)

    async def test_nor_at_a_provider_that_is_no_longer_ours(self, bench: SenderBench) -> None:
        (answer,) = await bench.send(deliveries.single(doubted_at="gone", doubted_at_ms=bench.clock.now_ms()))
        assert shown(answer) == [("sent", "")]

    async def test_it_is_the_first_to_test_whether_its_provider_is_back(
        self, bench: SenderBench, second: SecondProvider
    ) -> None:
        other = deliveries.single(event_id="e2", doubted_at="second", doubted_at_ms=bench.clock.now_ms())
        bench.breaker.state, bench.breaker.probes = State(Gate.HALF_OPEN), 3
        (answer,) = await bench.send(other)
        assert shown(answer) == [("sent", "")] and calls(bench, second) == (0, 1), "a probe of its own provider only"


class TestCallsOfDeadWorkers:
    """Their claims name the provider that they had called, or were about to."""

    @pytest.mark.parametrize("away", [0, 1], ids=["first", "second"])
    async def test_are_repeated_where_they_were_made_whoever_is_well_by_then(
        self, bench: SenderBench, second: SecondProvider, away: int
    ) -> None:
        breakers = (bench.breaker, second.still)
        breakers[1 - away].state = DOWN
        await bench.die(deliveries.single(), "after_send")
        breakers[1 - away].state, breakers[away].state = CLOSED, DOWN
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("possible_duplicate", ""), ("retrying", "provider_down")]
        breakers[away].state = CLOSED
        (answer,) = await bench.send(next_delivery(done(answer).publish[0]))
        assert shown(answer)[-1] == ("sent", "")
        assert calls(bench, second) == ((2, 0) if away == 0 else (0, 2))

    async def test_but_not_for_longer_than_ten_minutes(self, bench: SenderBench, second: SecondProvider) -> None:
        await bench.die(deliveries.single(), "after_send")
        bench.breaker.state = DOWN
        bench.clock.advance(600_001)
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer)[-1] == ("sent", "") and calls(bench, second) == (1, 1)

    async def test_nor_is_one_waited_with_that_is_never_repeated(
        self, bench: SenderBench, second: SecondProvider
    ) -> None:
        bench.policy = replace(bench.policy, on_unknown=OnUnknown.RISK_LOSS)
        await bench.die(deliveries.single(), "after_send")
        bench.breaker.state = DOWN
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer)[-1] == ("unconfirmed", "unknown_outcome") and calls(bench, second) == (1, 0)

    async def test_a_claim_that_was_taken_over_and_given_back_names_it_still(
        self, bench: SenderBench, second: SecondProvider
    ) -> None:
        await bench.die(deliveries.single(), "after_send")

        async def opens(name: str) -> None:
            bench.breaker.is_open = name == "after_claim"

        bench.gap = opens
        (answer,) = await bench.send(deliveries.single())
        assert deferred_ms(answer, bench.clock) == 0
        bench.gap, bench.breaker.state = None, DOWN
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer)[-1] == ("retrying", "provider_down") and calls(bench, second) == (1, 0)

    @pytest.mark.parametrize("is_named", [False, True], ids=["by the claim alone", "by the record"])
    async def test_a_claim_given_back_at_another_provider_ties_nobody_to_that_one(
        self, bench: SenderBench, second: SecondProvider, is_named: bool
    ) -> None:
        delivery = deliveries.single()
        await bench.die(delivery, "after_send")
        bench.breaker.state = DOWN
        if is_named:
            (answer,) = await bench.send(delivery)
            delivery = next_delivery(done(answer).publish[0])
        bench.clock.advance(600_000)

        async def opens(name: str) -> None:
            second.still.is_open = name == "after_claim"

        bench.gap = opens
        (answer,) = await bench.send(delivery)
        assert deferred_ms(answer, bench.clock) == 0
        bench.gap, bench.breaker.state, second.still.state = None, CLOSED, DOWN
        (answer,) = await bench.send(delivery)
        assert shown(answer)[-1] == ("sent", "") and calls(bench, second) == (2, 0)

    async def test_ten_minutes_are_not_begun_anew_by_a_claim_that_is_given_back(
        self, bench: SenderBench, second: SecondProvider
    ) -> None:
        await bench.die(deliveries.single(), "after_send")
        ended_ms = bench.clock.now_ms()
        bench.clock.advance(300_000)

        async def opens(name: str) -> None:
            bench.breaker.is_open = name == "after_claim"

        bench.gap = opens
        for _ in range(2):
            (answer,) = await bench.send(deliveries.single())
            assert deferred_ms(answer, bench.clock) == 0
            bench.breaker.is_open = False
        bench.gap, bench.breaker.state = None, DOWN
        (answer,) = await bench.send(deliveries.single())
        later = next_delivery(done(answer).publish[0])
        assert (later.doubted_at, later.doubted_at_ms) == ("gateway", ended_ms)

    async def test_a_claim_that_names_nobody_leaves_a_call_in_doubt_to_the_provider_that_its_record_names(
        self, bench: SenderBench, second: SecondProvider
    ) -> None:
        """A worker of the release before ends its claims' tokens anyhow."""
        tied = deliveries.single(doubted_at="second", doubted_at_ms=bench.clock.now_ms())
        await bench.die(tied, "after_send")
        ((key, entry),) = bench.claims.entries.items()
        bench.claims.entries[key] = entry._replace(token=b"old\xfe")
        second.still.state = DOWN
        (answer,) = await bench.send(tied)
        assert shown(answer)[-1] == ("retrying", "provider_down")
        later = next_delivery(done(answer).publish[0])
        assert (later.doubted_at, later.doubted_at_ms) == (tied.doubted_at, tied.doubted_at_ms)

    @pytest.mark.parametrize("is_told_again", [False, True])
    async def test_stay_in_doubt_while_the_delivery_is_tried_further(
        self, bench: SenderBench, second: SecondProvider, is_told_again: bool
    ) -> None:
        await bench.die(deliveries.single(), "after_send")
        bench.provider.script = [Outcome(Kind.RETRY, detail="503")]
        if is_told_again:
            await bench.die(deliveries.single(), "after_settle")
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("possible_duplicate", ""), ("retrying", "provider_error")]
        bench.breaker.state = DOWN
        (answer,) = await bench.send(next_delivery(done(answer).publish[0]))
        assert shown(answer)[-1] == ("retrying", "provider_down") and calls(bench, second) == (2, 0)


async def test_what_a_wrong_setting_kept_over_a_weekend_is_sent_when_it_was_mended(bench: SenderBench) -> None:
    bench.others, bench.breaker.state = [], State(Gate.OPEN, 60_000, is_hold=True)
    waits = deliveries.single(expires_at_ms=bench.clock.now_ms() + 72 * HOUR_MS)
    for _ in range(6):
        (answer,) = await bench.send(waits)
        assert shown(answer) == [("retrying", "provider_config")]
        waits = next_delivery(done(answer).publish[0])
        bench.clock.advance(10 * HOUR_MS)
    bench.breaker.state = CLOSED
    (answer,) = await bench.send(waits)
    assert shown(answer) == [("sent", "")]


class TestThrottles:
    async def test_a_long_pause_of_the_first_is_not_waited_for_where_there_is_a_second(
        self, bench: SenderBench, second: SecondProvider
    ) -> None:
        bench.throttle.paused = {LANE: 30_000}
        await bench.send(*many(5))
        assert calls(bench, second) == (0, 5)

    async def test_without_a_second_it_is_waited_for_outside_the_lane(self, bench: SenderBench) -> None:
        bench.others, bench.throttle.paused = [], {LANE: 30_000}
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("retrying", "provider_throttled")]
        assert next_delivery(done(answer).publish[0]).tries == 0

    async def test_what_it_refused_itself_does_not_wait_for_it_either(
        self, bench: SenderBench, second: SecondProvider
    ) -> None:
        """An hour of Retry-After is between us and that provider."""
        bench.provider.script = [Outcome(Kind.THROTTLE, retry_after_ms=3_600_000)]
        (answer,) = await bench.send(deliveries.single())
        later = next_delivery(done(answer).publish[0])
        assert events(answer)[0].until_ms - bench.clock.now_ms() <= 1_000
        bench.throttle.paused = {LANE: 3_600_000}
        (answer,) = await bench.send(later)
        assert shown(answer) == [("sent", "")] and calls(bench, second) == (1, 1)

    async def test_what_one_recipient_gets_too_much_of_waits_all_the_same(self, bench: SenderBench) -> None:
        bench.provider.script = [Outcome(Kind.THROTTLE, retry_after_ms=60_000, scope=Scope.RECIPIENT)]
        (answer,) = await bench.send(deliveries.single())
        assert events(answer)[0].until_ms == bench.clock.now_ms() + 60_000

    async def test_one_recipient_waits_and_the_others_are_sent(
        self, bench: SenderBench, second: SecondProvider
    ) -> None:
        bench.throttle.paused = {f"r:{keys.address_hash('sms', '+4930123456')}": 4_000}
        bench.people.write("7", stores.Profile(1, phone="+49302"))
        waits, sent = await bench.send(deliveries.single(), deliveries.single("7", event_id="e2"))
        assert deferred_ms(waits, bench.clock) == 4_000
        assert shown(sent) == [("sent", "")] and calls(bench, second)[0] == 1
