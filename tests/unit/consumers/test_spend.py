"""A budget is a promise about money: whatever workers do, and however they die, never more is spent."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.prices import Prices
from consumers.spend import ASK_AGAIN_S, BLOCKS, IDLE_S, Budget, Charge, Gone, Purse, Spend
from schemas.content import Content
from schemas.errors import StoreDown
from schemas.messages import Channel
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_money import MemoryMoney

PRICE = 70_000
DEAREST = 5 * PRICE
ACCOUNT = "{spend:acme:sms:2026-11-30}"
WORKERS = 5


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


class Office:
    """Workers that share one budget, what they were charged and made no call for yet, and what their calls cost.

    lost: what dead workers had, the last of them at most.
    """

    def __init__(self, per_day: int, zone: str = "UTC", now: str = "2026-11-30T10:00") -> None:
        self.money = MemoryMoney()
        self.clock = ManualClock(at(now))
        self.budget = Budget("acme", Channel.SMS, per_day, zone)
        self.workers = [self.worker() for _ in range(WORKERS)]
        self.charged: list[list[Charge]] = [[] for _ in range(WORKERS)]
        self.spent = 0
        self.lost = 0

    def worker(self) -> Purse:
        return Purse(self.money, self.clock, self.budget)

    @property
    def out(self) -> int:
        """Spent, or about to be."""
        return self.spent + sum(charge.micros for charges in self.charged for charge in charges)

    async def charge(self, who: int, micros: int) -> None:
        found = await self.workers[who].charge(micros)
        if isinstance(found, Charge):
            self.charged[who].append(found)

    async def called(self, who: int, micros: int = 0) -> None:
        for charge in self.charged[who][:1]:
            self.workers[who].called(self.charged[who].pop(0))
            self.spent += charge.micros

    async def back(self, who: int, micros: int = 0) -> None:
        for charge in self.charged[who][:1]:
            self.workers[who].give_back(charge)
            self.charged[who].remove(charge)
            await self.workers[who].tell()  # as it does once a second

    async def idle(self, who: int, micros: int = 0) -> None:
        self.clock.advance(1_000 * IDLE_S)
        await self.workers[who].tell()

    async def leave(self, who: int, micros: int = 0) -> None:
        while self.charged[who]:
            await self.back(who)
        await self.workers[who].close()
        self.workers[who] = self.worker()

    async def die(self, who: int, micros: int = 0) -> None:
        block = self.workers[who].held
        assert block <= max(self.budget.per_day // BLOCKS, DEAREST)
        self.lost += block + sum(charge.micros for charge in self.charged[who])
        self.workers[who], self.charged[who] = self.worker(), []

    async def deaf(self, who: int, micros: int) -> None:
        """Redis does what this worker asks, and its answer is lost."""
        self.money.deaf = True
        with contextlib.suppress(StoreDown):
            await self.charge(who, micros)
        self.money.deaf = False


def steps(*names: str) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    amounts = st.sampled_from([1, PRICE, DEAREST])
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, WORKERS - 1), amounts), max_size=60)


BUDGETS = st.sampled_from([3, PRICE, 20 * PRICE + 1, 700 * PRICE])
LIFE = ("charge", "charge", "charge", "called", "called", "back", "idle", "leave", "die")


@given(steps(*LIFE, "deaf"), BUDGETS)
def test_never_more_is_spent_than_the_budget(history: list[tuple[str, int, int]], per_day: int) -> None:
    async def live() -> None:
        office = Office(per_day)
        for step, who, micros in history:
            await getattr(office, step)(who, micros)
            assert office.out <= per_day

    asyncio.run(live())


@given(steps(*LIFE), BUDGETS)
def test_what_stays_unspent_is_what_the_dead_took_with_them(history: list[tuple[str, int, int]], per_day: int) -> None:
    """At most a block of each; to the last micro-unit, whoever is left can spend all the rest."""

    async def live() -> None:
        office = Office(per_day)
        for step, who, micros in history:
            await getattr(office, step)(who, micros)
        for who in range(WORKERS):
            await office.leave(who)
        left, heir = per_day - office.spent - office.lost, office.worker()
        assert left == 0 or isinstance(await heir.charge(left), Charge)
        assert isinstance(await heir.charge(1), Gone)

    asyncio.run(live())


async def test_a_block_that_was_given_back_is_not_spent_again() -> None:
    office = Office(700 * PRICE)
    await office.charge(0, PRICE)
    await office.idle(0)
    for _ in range(700):
        await office.charge(1, PRICE)
    assert office.out == 700 * PRICE
    await office.charge(0, PRICE)
    assert office.out == 700 * PRICE


@given(steps("charge", "charge", "called", "lose_account"), BUDGETS)
def test_an_emptied_redis_is_told_what_the_last_worker_to_ask_knows(
    history: list[tuple[str, int, int]], per_day: int
) -> None:
    """With one worker nothing is spent twice; with more at most what the last to ask did not know."""

    async def live() -> None:
        office = Office(per_day)
        for step, _, micros in history:
            if step == "lose_account":
                office.money.accounts.clear()
            else:
                await getattr(office, step)(0, micros)
            assert office.out <= per_day

    asyncio.run(live())


async def test_many_calls_cost_one_round_trip() -> None:
    office = Office(10_000 * PRICE)
    for _ in range(100):
        await office.charge(0, PRICE)
    assert office.money.made == 1


async def test_who_waits_for_the_same_block_asks_once() -> None:
    office = Office(10_000 * PRICE)
    await asyncio.gather(*(office.charge(0, PRICE) for _ in range(100)))
    assert (office.money.made, len(office.charged[0])) == (1, 100)


async def test_a_spent_budget_is_not_asked_for_by_every_delivery_and_is_noticed_when_some_comes_back() -> None:
    office = Office(10 * PRICE)
    one, other = office.workers[:2]
    kept = await one.charge(PRICE)
    assert isinstance(kept, Charge)
    while isinstance(await other.charge(PRICE), Charge):
        pass
    made = office.money.made
    assert [type(await other.charge(PRICE)) for _ in range(50)] == [Gone] * 50
    assert office.money.made == made
    one.give_back(kept)
    await one.close()
    office.clock.advance(1_000 * ASK_AGAIN_S)
    assert isinstance(await other.charge(PRICE), Charge)


async def test_a_cheaper_call_still_goes_where_a_dear_one_did_not() -> None:
    office = Office(3 * PRICE)
    worker = office.workers[0]
    assert isinstance(await worker.charge(4 * PRICE), Gone)
    assert isinstance(await worker.charge(3 * PRICE), Charge)


async def test_the_blocks_become_small_towards_the_end() -> None:
    """Else one worker would hold what another has none of."""
    office = Office(100 * DEAREST)
    for _ in range(98):
        await office.charge(0, DEAREST)
    for who in (1, 2):
        await office.charge(who, PRICE)
    assert office.workers[1].held + office.workers[2].held < DEAREST


async def test_a_budget_ends_with_the_tenants_own_day() -> None:
    office = Office(PRICE, "Asia/Ho_Chi_Minh", now="2026-11-30T16:59:59")
    worker = office.workers[0]
    assert isinstance(await worker.charge(PRICE), Charge)
    gone = await worker.charge(PRICE)
    assert gone == Gone(at("2026-11-30T17:00"))
    office.clock.advance(1_000)
    assert isinstance(await worker.charge(PRICE), Charge)
    assert sorted(office.money.accounts) == [ACCOUNT, "{spend:acme:sms:2026-12-01}"]


@pytest.mark.parametrize(
    ("now", "ends"), [("2026-10-24T23:00", "2026-10-25T23:00"), ("2027-03-27T23:30", "2027-03-28T22:00")]
)
async def test_a_day_on_which_clocks_are_changed_is_25_or_23_hours_long(now: str, ends: str) -> None:
    office = Office(0, "Europe/Berlin", now=now)
    hours = {"2026-10-24T23:00": 1, "2027-03-27T23:30": 0}[now]
    office.clock.advance(hours * 3_600_000)
    assert await office.workers[0].charge(1) == Gone(at(ends))


async def test_yesterdays_money_is_not_spent_today() -> None:
    """A block, a charge that comes back, and an answer that comes over midnight."""
    office = Office(100 * PRICE, now="2026-11-30T23:59:59")
    worker, late = office.workers[:2]
    charge = await worker.charge(PRICE)
    assert isinstance(charge, Charge)
    office.money.before_answer = lambda: office.clock.advance(1_000)
    assert isinstance(await late.charge(PRICE), Charge)
    worker.give_back(charge)
    assert (worker.held, late.held) == (0, 0)
    assert office.money.accounts["{spend:acme:sms:2026-12-01}"]["d"] == PRICE


async def test_what_was_spent_is_told_by_the_hour() -> None:
    office = Office(100 * PRICE, "Europe/Berlin")
    for _ in range(2):
        await office.charge(0, PRICE)
        await office.called(0)
        office.clock.advance(3_600_000)
    await office.workers[0].tell()
    await office.workers[0].tell()
    account = office.money.accounts[ACCOUNT]
    assert (account["h11"], account["h12"]) == (PRICE, PRICE)


async def test_without_redis_whoever_waits_hears_it_at_once_and_nothing_is_charged() -> None:
    office = Office(100 * PRICE)
    office.money.down = True
    answers = await asyncio.gather(*(office.workers[0].charge(PRICE) for _ in range(20)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreDown}
    office.money.down = False
    assert isinstance(await office.workers[0].charge(PRICE), Charge)


@pytest.mark.parametrize(
    ("number", "text", "micros"),
    [
        ("+4930123456", "a" * 160, 70_000),
        ("+4930123456", "a" * 161, 140_000),
        ("+4930123456", "😀" * 36, 140_000),
        ("+12025550123", "a" * 307, 150_000),
    ],
)
async def test_an_sms_costs_its_segments_times_the_price_of_its_country(number: str, text: str, micros: int) -> None:
    office = Office(1_000 * PRICE)
    spending = Spend(Channel.SMS, {"acme": office.workers[0]}, {"texter": Prices({"DE": 70_000}, 50_000)})
    charge = await spending.charge("acme", "texter", number, Content(text))
    assert isinstance(charge, Charge) and charge.micros == micros


async def test_other_channels_cost_by_the_message_and_other_tenants_nothing() -> None:
    office = Office(1_000 * PRICE)
    spending = Spend(Channel.EMAIL, {"acme": office.workers[0]}, {"mail": Prices({}, 400)})
    charge = await spending.charge("acme", "mail", "ann@example.org", Content("a" * 5_000))
    assert isinstance(charge, Charge) and charge.micros == 400
    assert await spending.charge("other", "mail", "ann@example.org", Content("a")) is None
