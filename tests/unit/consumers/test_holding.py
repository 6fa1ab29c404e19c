"""What a worker puts into hold: waits longer than any tier, and what it meets of a paused campaign."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from consumers import claims
from schemas import codec
from schemas.messages import CampaignOrder, Delivery, Held
from schemas.outcomes import Kind, Outcome
from schemas.policies import OnUnknown
from schemas.records import Answer
from tests.doubles import deliveries
from tests.doubles.sender_bench import SenderBench, done, events, published, shown

HOUR_MS = 3_600_000


@pytest.fixture
def bench(tmp_path: Path) -> SenderBench:
    return SenderBench(tmp_path)


def held(answer: Answer) -> Held:
    (outgoing,) = done(answer).publish
    assert outgoing.topic == "hold"
    return codec.decode(outgoing.value, Held)


def fired(answer: Answer) -> Delivery:
    """What comes out of hold."""
    found = held(answer)
    assert found.delivery is not None and found.delivery.hop == found.hop
    return found.delivery


async def crashed(bench: SenderBench, delivery: Delivery, where: str) -> None:
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


class TestLongWaits:
    """A provider that wants to be left alone for longer than the longest tier."""

    async def asked_to_wait(self, bench: SenderBench, delivery: Delivery, **outcome: Any) -> Answer:
        bench.provider.script = [Outcome(Kind.RETRY, retry_after_ms=HOUR_MS, **outcome)]
        (answer,) = await bench.send(delivery)
        return answer

    async def test_an_hour_is_waited_for_in_hold_and_counts_a_try(self, bench: SenderBench) -> None:
        answer = await self.asked_to_wait(bench, deliveries.single())
        until_ms = bench.clock.now_ms() + HOUR_MS
        assert shown(answer) == [("held", "provider_error")]
        assert (events(answer)[0].until_ms, events(answer)[0].hop, events(answer)[0].call) == (until_ms, 1, 1)
        found = held(answer)
        assert (found.due_ms, found.reason, found.hop) == (until_ms, "provider_error", 1)
        assert (fired(answer).call, fired(answer).tries) == (2, 1)

    async def test_what_comes_out_of_hold_is_sent_by_the_next_number(self, bench: SenderBench) -> None:
        later = fired(await self.asked_to_wait(bench, deliveries.single()))
        bench.clock.advance(HOUR_MS)
        (answer,) = await bench.send(later)
        assert shown(answer) == [("sent", "")] and events(answer)[0].call == 2
        (answer,) = await bench.send(later)
        assert done(answer).events == () and len(bench.provider.calls) == 2

    async def test_a_copy_of_what_waits_in_hold_calls_nobody(self, bench: SenderBench) -> None:
        await self.asked_to_wait(bench, deliveries.single())
        (answer,) = await bench.send(deliveries.single())
        assert done(answer).publish == () and len(bench.provider.calls) == 1

    async def test_a_crash_after_the_wait_was_stored_puts_it_into_hold_and_calls_nobody(
        self, bench: SenderBench
    ) -> None:
        bench.provider.script = [Outcome(Kind.RETRY, retry_after_ms=HOUR_MS)]
        until_ms = bench.clock.now_ms() + HOUR_MS
        await crashed(bench, deliveries.single(), "after_settle")
        (answer,) = await bench.send(deliveries.single())
        assert shown(answer) == [("held", "provider_error")]
        assert (held(answer).due_ms, fired(answer).call) == (until_ms, 2)
        assert len(bench.provider.calls) == 1

    async def test_the_timeline_says_nothing_of_a_wait(self, bench: SenderBench) -> None:
        await self.asked_to_wait(bench, deliveries.single())
        assert not any(bench.claims.timelines.values())


class TestPausedCampaign:
    async def met(self, bench: SenderBench, delivery: Delivery) -> Answer:
        """What becomes of it while its campaign is paused."""
        bench.orders["default", "spring"] = CampaignOrder.PAUSED
        (answer,) = await bench.send(delivery)
        bench.orders.clear()
        return answer

    async def test_its_deliveries_leave_the_lane_until_it_is_resumed(self, bench: SenderBench) -> None:
        answer = await self.met(bench, deliveries.recipient())
        assert shown(answer) == [("held", "campaign_paused")]
        assert (held(answer).due_ms, events(answer)[0].until_ms) == (0, 0)
        assert bench.provider.calls == [] and bench.claims.entries == {}

    async def test_after_the_resume_each_is_sent_once(self, bench: SenderBench) -> None:
        """Paused twice: what was held, its copy in the lane, and what was held again."""
        first = fired(await self.met(bench, deliveries.recipient()))
        second = fired(await self.met(bench, first))
        assert (first.hop, second.hop, second.call, second.tries) == (1, 2, 1, 0)
        answers = [(await bench.send(one))[0] for one in (second, first, deliveries.recipient())]
        assert shown(answers[0]) == [("sent", "")]
        assert [done(answer).publish for answer in answers[1:]] == [(), ()]
        assert len(bench.provider.calls) == 1

    async def test_a_replayed_lane_does_not_grow_young_in_hold(self, bench: SenderBench) -> None:
        """What was released too long ago may have been sent without anybody knowing it any more."""
        bench.clock.advance(22 * HOUR_MS + 1)
        answer = await self.met(bench, deliveries.recipient())
        assert shown(answer) == [("failed", "too_old")] and published(answer) == ["sms.dlq"]

    async def test_what_its_caller_cancelled_does_not_wait_for_the_resume(self, bench: SenderBench) -> None:
        delivery = deliveries.recipient()
        bench.claims.cancelled.add(claims.bid_for(delivery).cancel_key)
        assert shown(await self.met(bench, delivery)) == [("cancelled", "cancelled_by_caller")]

    async def test_a_call_nobody_heard_of_is_counted_and_its_number_is_not_used_again(self, bench: SenderBench) -> None:
        await crashed(bench, deliveries.recipient(), "after_send")
        answer = await self.met(bench, deliveries.recipient())
        assert shown(answer) == [("possible_duplicate", ""), ("held", "campaign_paused")]
        assert (events(answer)[0].call, fired(answer).call) == (1, 2)
        bench.claims.entries.clear()
        (answer,) = await bench.send(fired(answer))
        assert shown(answer) == [("sent", "")] and events(answer)[0].call == 2

    async def test_where_a_loss_is_better_than_a_repeat_nothing_waits_behind_such_a_call(
        self, bench: SenderBench
    ) -> None:
        bench.policy = replace(bench.policy, on_unknown=OnUnknown.RISK_LOSS)
        await crashed(bench, deliveries.recipient(), "after_send")
        answer = await self.met(bench, deliveries.recipient())
        assert {kind for kind, _ in shown(answer)} == {"unconfirmed"} and published(answer) == []


class TestSchedules:
    """What route held days ago: by now nobody remembers its plan."""

    def out_of_hold(self, bench: SenderBench, offset: int = 35) -> Delivery:
        now_ms = bench.clock.now_ms()
        return deliveries.single(offset=offset, hop=1, released_at_ms=now_ms, expires_at_ms=now_ms + HOUR_MS)

    async def test_two_copies_of_a_request_that_both_waited_make_one_call(self, bench: SenderBench) -> None:
        bench.clock.advance(9 * 24 * HOUR_MS)
        first, second = [(await bench.send(self.out_of_hold(bench, offset)))[0] for offset in (35, 99)]
        assert shown(first) == [("sent", "")]
        assert shown(second) == [("suppressed", "duplicate_of")]
        assert len(bench.provider.calls) == 1

    async def test_what_comes_out_of_hold_twice_is_sent_once(self, bench: SenderBench) -> None:
        (answer,) = await bench.send(self.out_of_hold(bench))
        bench.clock.advance(HOUR_MS // 2)
        (copy,) = await bench.send(self.out_of_hold(bench))
        assert shown(answer) == [("sent", "")] and done(copy).events == ()
        assert len(bench.provider.calls) == 1
