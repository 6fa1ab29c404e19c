"""What a sender does about money: it is charged just before the call, comes back when none was made, and runs out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from consumers.prices import Prices
from consumers.spend import Budget, Charge, Purse, Spend
from schemas import codec
from schemas.messages import Channel, Delivery, Held
from schemas.outcomes import Kind, Outcome
from schemas.policies import ContentCheck, MessageClass, TemplatePolicy
from schemas.records import Answer
from tests.doubles import deliveries
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_money import MemoryMoney
from tests.doubles.sender_bench import SenderBench, deferred_ms, done, published, shown

PRICE = 50_000


class Shop:
    """A sender whose tenant may spend so many times the price of a short SMS."""

    def __init__(self, folder: Path, calls: int = 2) -> None:
        self.bench = SenderBench(folder)
        self.money = MemoryMoney()
        self.purse = Purse(self.money, self.bench.clock, Budget("default", Channel.SMS, calls * PRICE, "UTC"))
        self.bench.spend = Spend(Channel.SMS, {"default": self.purse}, {"gateway": Prices({}, PRICE)})

    async def left(self) -> int:
        """How many more calls could be paid."""
        charges = 0
        while isinstance(await self.purse.charge(PRICE), Charge):
            charges += 1
        return charges


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def sms(number: int) -> Delivery:
    return deliveries.single(event_id=f"order-{number}")


def fired(answer: Answer) -> Held:
    (outgoing,) = done(answer).publish
    assert outgoing.topic == "hold"
    return codec.decode(outgoing.value, Held)


def until_midnight_ms(clock: ManualClock) -> int:
    return clock.now_ms() + 86_400_000 - clock.now_ms() % 86_400_000


async def test_marketing_without_money_ends_with_its_reason_and_makes_no_call(shop: Shop) -> None:
    bench = shop.bench
    bench.policy = TemplatePolicy("welcome", MessageClass.MARKETING, (Channel.SMS,), content_check=ContentCheck.OFF)
    answers = await bench.send(*(sms(n) for n in range(4)))
    assert sorted(shown(answer)[0] for answer in answers) == [("sent", "")] * 2 + [("suppressed", "spend_cap")] * 2
    assert (len(bench.provider.calls), bench.tokens.given_back) == (2, 2)


async def test_transactional_without_money_waits_for_the_next_day_and_is_sent_then(shop: Shop) -> None:
    bench = shop.bench
    assert await shop.left() == 2
    (answer,) = await bench.send(deliveries.single(expires_at_ms=0))
    assert (shown(answer), published(answer)) == ([("held", "spend_cap")], ["hold"])
    held = fired(answer)
    assert held.due_ms == until_midnight_ms(bench.clock)
    bench.clock.advance(held.due_ms - bench.clock.now_ms())
    assert held.delivery is not None
    (again,) = await bench.send(replace(held.delivery, released_at_ms=bench.clock.now_ms()))
    assert (shown(again), len(bench.provider.calls)) == ([("sent", "")], 1)


async def test_a_longer_text_is_charged_by_its_segments(shop: Shop) -> None:
    (answer,) = await shop.bench.send(deliveries.single(params='{"name": "' + "x" * 160 + '"}'))
    assert shown(answer) == [("sent", "")]
    assert await shop.left() == 0


@pytest.mark.parametrize(("kind", "left"), [(Kind.DONE, 1), (Kind.UNKNOWN, 1), (Kind.RETRY, 1), (Kind.DROP, 1)])
async def test_a_call_that_may_be_billed_stays_charged(shop: Shop, kind: Kind, left: int) -> None:
    shop.bench.provider.script = [Outcome(kind)]
    await shop.bench.send(sms(1))
    assert await shop.left() == left


@pytest.mark.parametrize("kind", [Kind.NOT_PROCESSED, Kind.THROTTLE, Kind.AUTH_CONFIG])
async def test_what_the_provider_did_not_take_in_costs_nothing(shop: Shop, kind: Kind) -> None:
    shop.bench.provider.script = [Outcome(kind)]
    await shop.bench.send(sms(1))
    assert await shop.left() == 2


async def test_a_token_that_died_on_the_way_costs_nothing(shop: Shop) -> None:
    shop.bench.tokens.dead = 2
    await shop.bench.send(sms(1))
    assert shop.bench.provider.calls == []
    assert await shop.left() == 2


async def test_without_redis_at_the_till_the_delivery_comes_again_and_nothing_is_parked(shop: Shop) -> None:
    bench = shop.bench
    shop.money.down = True
    (answer,) = await bench.send(sms(1))
    assert deferred_ms(answer, bench.clock) == bench.options.store_pause_ms
    assert (bench.provider.calls, bench.tokens.given_back) == ([], 1)
    shop.money.down = False
    (again,) = await bench.send(sms(1))
    assert shown(again) == [("sent", "")]


async def test_a_tenant_without_a_budget_never_asks_the_till(shop: Shop) -> None:
    bench = shop.bench
    bench.spend = Spend(Channel.SMS, {"other": shop.purse}, {"gateway": Prices({}, PRICE)})
    await bench.send(*(sms(n) for n in range(5)))
    assert (len(bench.provider.calls), shop.money.made) == (5, 0)
