"""A budget that will not last the day is worth a word before it is gone, once, whoever notices."""

from __future__ import annotations

import asyncio
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Gauge

from consumers.spend import Budget, Gone, Moment, Purse, Spend
from consumers.spend_watch import Day, SpendWatch, Worry, usual, worries
from schemas import metrics
from schemas.messages import Channel
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_money import MemoryMoney

TEN = 1_796_029_200_000
"""2026-11-30, ten o'clock in Berlin."""
UNIT = 1_000_000
BUDGET = 240 * UNIT


def day(*hours: int) -> Day:
    return {hour: spent * UNIT for hour, spent in enumerate(hours)}


class Branch:
    """One worker with its watch; all share the accounts."""

    def __init__(self, money: MemoryMoney, clock: ManualClock) -> None:
        self.purse = Purse(money, clock, Budget("acme", Channel.SMS, BUDGET, "Europe/Berlin"))
        self.watch = SpendWatch(Spend(Channel.SMS, {"acme": self.purse}, {}), money, clock)

    async def spend(self, units: int) -> None:
        charge = await self.purse.charge(units * UNIT)
        assert not isinstance(charge, Gone)
        self.purse.called(charge)

    async def look(self) -> None:
        await self.watch.tell()
        await self.watch.look()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(TEN)


@pytest.fixture
def branches(clock: ManualClock) -> list[Branch]:
    money = MemoryMoney()
    return [Branch(money, clock) for _ in range(3)]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [vars(record)["worry"] for record in caplog.records if record.message == "spend.warned"]


def test_of_three_days_the_mean_by_this_time_is_usual() -> None:
    days = [day(0, 10, 20, 100), day(0, 20, 40), day(0, 30, 60, 7), day()]
    assert usual(days, BUDGET, Moment(date(2026, 11, 30), 2, 0.5)) == (10 + 20 + 30 + 10 + 20 + 30) / 3 * UNIT


def test_with_less_to_compare_with_it_is_a_straight_line_to_the_budget() -> None:
    assert usual([day(0, 200), day(1), day()], BUDGET, Moment(date(2026, 11, 30), 6, 0.5)) == 65 * UNIT


@given(st.lists(st.dictionaries(st.integers(0, 23), st.integers(0, BUDGET)), max_size=7), st.integers(0, 23))
def test_what_is_usual_never_falls_in_the_course_of_a_day(days: list[Day], hour: int) -> None:
    when = date(2026, 11, 30)
    earlier, later = usual(days, BUDGET, Moment(when, hour, 0.25)), usual(days, BUDGET, Moment(when, hour, 0.75))
    assert earlier <= later


@pytest.mark.parametrize(
    ("spent", "ordinary", "expected"),
    [
        (50, 40, []),
        (61, 40, [Worry.AHEAD]),
        (20, 1, []),
        (195, 180, [Worry.MOST]),
        (195, 100, [Worry.AHEAD, Worry.MOST]),
    ],
)
def test_half_more_than_usual_and_four_fifths_of_the_budget_are_worth_a_word(
    spent: int, ordinary: int, expected: list[Worry]
) -> None:
    assert list(worries(spent * UNIT, ordinary * UNIT, BUDGET)) == expected


async def test_of_all_workers_one_says_it_once_an_hour(
    branches: list[Branch], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for branch in branches:
        await branch.spend(51)
    for branch in branches * 2:
        await branch.look()
    assert said(caplog) == ["ahead"]
    clock.advance(3_600_000)
    for branch in branches:
        await branch.look()
    assert said(caplog) == ["ahead"]  # 153 is no longer half more than 110
    await branches[0].spend(40)
    for branch in branches:
        await branch.look()
    assert said(caplog) == ["ahead"] * 2 + ["most"]


async def test_who_spends_as_on_the_days_before_is_not_warned_of(
    branches: list[Branch], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """In the morning most of it is spent: that is their way."""
    clock.jump(-4 * 86_400_000)
    for _ in range(4):
        await branches[0].spend(190)
        await branches[0].watch.tell()
        clock.advance(86_400_000)
    await branches[0].look()
    caplog.clear()
    clock.advance(3_600_000)
    await branches[0].spend(189)
    await branches[0].look()
    assert said(caplog) == []


async def test_a_budget_that_is_gone_is_told_at_once_and_once_a_day(
    branches: list[Branch], caplog: pytest.LogCaptureFixture
) -> None:
    await branches[0].spend(240)
    for branch in branches:
        assert isinstance(await branch.purse.charge(UNIT), Gone)
        await branch.watch.tell()
    assert said(caplog) == ["all"]


async def test_the_metrics_show_what_all_workers_spent_beside_the_usual(branches: list[Branch]) -> None:
    for branch in branches:
        await branch.spend(10)
        await branch.watch.tell()
    await branches[0].watch.look()
    assert [shown(gauge) for gauge in (metrics.SPEND_TODAY, metrics.SPEND_USUAL, metrics.SPEND_BUDGET)] == [
        30,
        100,
        240,
    ]


async def test_an_idle_block_goes_back_and_so_does_all_at_the_end(branches: list[Branch], clock: ManualClock) -> None:
    idle, leaving, other = branches
    for branch in (idle, leaving):
        await branch.spend(1)
        assert branch.purse.held > 0
    clock.advance(10_000)
    await idle.watch.tell()
    await leaving.watch.close()
    assert not isinstance(await other.purse.charge(238 * UNIT), Gone)


async def test_without_redis_the_watch_goes_on_and_tells_it_later(clock: ManualClock) -> None:
    money, turns = MemoryMoney(), 0

    async def sleep(seconds: float) -> None:
        nonlocal turns
        turns += 1
        clock.advance(seconds * 1_000)
        money.down = turns < 3
        if turns == 4:
            raise asyncio.CancelledError

    branch = Branch(money, clock)
    await branch.spend(5)
    money.down = True
    with pytest.raises(asyncio.CancelledError):
        await SpendWatch(Spend(Channel.SMS, {"acme": branch.purse}, {}), money, clock, sleep).run()
    assert money.accounts["{spend:acme:sms:2026-11-30}"]["h10"] == 5 * UNIT


def shown(gauge: Gauge) -> float:
    return float(gauge.labels("acme", Channel.SMS)._value.get())
