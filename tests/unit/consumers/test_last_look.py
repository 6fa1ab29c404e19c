"""What changes while a call waits for money, for its connection or for another token still keeps it from being made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from consumers.limits import Token
from consumers.prices import Prices
from consumers.spend import Budget, Purse, Spend
from schemas import stores
from schemas.messages import CampaignOrder, Channel, Delivery, Priority
from schemas.policies import ContentCheck, MessageClass, QuietWindow, TemplatePolicy
from schemas.quiet_hours import QuietHours
from schemas.records import Answer, Defer
from tests.doubles import deliveries
from tests.doubles.manual_clock import START_MS
from tests.doubles.memory_money import MemoryMoney
from tests.doubles.sender_bench import FreeTokens, SenderBench, shown

STALL_MS = 4_000
PRICE = 50_000
MINUTE_MS = 60_000
TEN_MS = START_MS + ((22 - 20) * 60 + 6) * MINUTE_MS + 40_000
"""Ten in the evening in New York."""


class LateTokens(FreeTokens):
    """The first token is dead by the time of the call; another one takes a while."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self._meanwhile = meanwhile
        self._taken = 0
        self.dead = 1

    async def take(self, wanted: int, wait_s: float, rank: int = 0) -> list[Token]:
        self._taken += 1
        if self._taken > 1:
            self._meanwhile()
        return await super().take(wanted, wait_s, rank)


class Stall:
    """A worker whose call is kept waiting once, for four seconds, in which something happens."""

    def __init__(self, folder: Path) -> None:
        self.bench = SenderBench(folder)
        self.money = MemoryMoney()
        self.happens: Callable[[], object] = lambda: None
        self.purse = Purse(self.money, self.bench.clock, Budget("default", Channel.SMS, 100 * PRICE, "UTC"))

    def passes(self) -> None:
        self.bench.clock.advance(STALL_MS)
        self.happens()

    def money_is_slow(self) -> None:
        self.bench.spend = Spend(Channel.SMS, {"default": self.purse}, {"gateway": Prices({}, PRICE)})
        self.money.before_answer = self.passes

    def connection_is_slow(self) -> None:
        async def reaching() -> None:
            self.bench.provider.reaching = None
            self.passes()

        self.bench.provider.reaching = reaching

    def token_is_slow(self) -> None:
        self.bench.tokens = LateTokens(self.passes)

    async def send(self, delivery: Delivery) -> Answer:
        (answer,) = await self.bench.send(delivery)
        assert self.bench.provider.open_ways == 0, "its connection is somebody else's now"
        return answer


WAITS = [Stall.money_is_slow, Stall.connection_is_slow, Stall.token_is_slow]
waits = pytest.mark.parametrize("wait", WAITS, ids=lambda wait: wait.__name__)


@pytest.fixture
def stall(tmp_path: Path) -> Stall:
    return Stall(tmp_path)


@waits
@pytest.mark.parametrize("order", [CampaignOrder.PAUSED, CampaignOrder.CANCELLED])
async def test_an_order_answered_while_a_call_waited_stops_it(
    stall: Stall, wait: Callable[[Stall], None], order: CampaignOrder
) -> None:
    wait(stall)
    stall.happens = lambda: stall.bench.orders.update({("default", "spring"): order})
    answer = await stall.send(deliveries.recipient())
    assert stall.bench.provider.calls == []
    if order is CampaignOrder.CANCELLED:
        assert shown(answer) == [("cancelled", "campaign_cancelled")]
    else:
        assert isinstance(answer, Defer), "looked at again at once, without its claim"


@waits
async def test_what_expired_while_its_call_waited_is_not_sent(stall: Stall, wait: Callable[[Stall], None]) -> None:
    wait(stall)
    answer = await stall.send(deliveries.single(expires_at_ms=START_MS + STALL_MS))
    assert (shown(answer), stall.bench.provider.calls) == ([("expired", "expired")], [])


@waits
async def test_who_went_to_sleep_while_the_call_waited_is_not_woken(
    stall: Stall, wait: Callable[[Stall], None]
) -> None:
    wait(stall)
    bench = stall.bench
    bench.policy = TemplatePolicy("welcome", MessageClass.MARKETING, (Channel.SMS,), content_check=ContentCheck.OFF)
    bench.quiet = QuietHours({"default": QuietWindow("22:00", "08:00")}, {"default": "America/New_York"})
    bench.people.write("42", stores.Profile(2, phone="+4930123456"))
    bench.clock.advance(TEN_MS - START_MS - STALL_MS)
    answer = await stall.send(deliveries.single(priority=Priority.BULK))
    assert bench.provider.calls == [] and isinstance(answer, Defer)


@waits
async def test_a_provider_found_to_be_down_while_the_call_waited_is_not_called(
    stall: Stall, wait: Callable[[Stall], None]
) -> None:
    wait(stall)
    stall.happens = lambda: stall.bench.breaker.read_record([b"open", 0, 0, 100, 0, b"failures"])
    answer = await stall.send(deliveries.single())
    assert stall.bench.provider.calls == [] and isinstance(answer, Defer)


async def test_what_is_stopped_after_it_waited_costs_nothing(stall: Stall) -> None:
    stall.money_is_slow()
    stall.happens = lambda: stall.bench.orders.update({("default", "spring"): CampaignOrder.CANCELLED})
    await stall.send(deliveries.recipient())
    await stall.purse.close()
    (account,) = stall.money.accounts.values()
    assert account["d"] == account["r"]


@waits
async def test_what_waited_and_may_still_go_is_sent(stall: Stall, wait: Callable[[Stall], None]) -> None:
    wait(stall)
    answer = await stall.send(deliveries.single())
    assert shown(answer) == [("sent", "")]
