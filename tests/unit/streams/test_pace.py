"""Campaigns share the lanes by weight over any ten seconds, and the lanes are busy all the time and never too full.

On a virtual clock (`tests/doubles/pace_world.py`): minutes of pace cost less than a second.
"""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest

from schemas.messages import Channel, Priority
from tests.doubles.pace_world import PaceWorld

PUSH, EMAIL, SMS = Channel.PUSH, Channel.EMAIL, Channel.SMS
WINDOW_S = 10


def summed(seconds: Sequence[Counter[str]]) -> Counter[str]:
    return sum(seconds, Counter[str]())


def check_shares(world: PaceWorld, channel: Channel, weights: dict[str, float]) -> None:
    """In any ten seconds in which all of these were being sent each got its weight's share, within 10 %.

    A newcomer's first recipients meet partitions that are some tenths of a second longer than others: two seconds.
    """
    seconds = world.sent[world.lane(channel)]
    first = max(next(at for at, sent in enumerate(seconds) if name in sent) for name in weights) + 2
    last = min(max(at for at, sent in enumerate(seconds) if name in sent) for name in weights) - 2
    assert last - first > WINDOW_S, "they were hardly active together"
    for begin in range(first, last - WINDOW_S + 1):
        sent = summed(seconds[begin : begin + WINDOW_S])
        total = sum(sent[name] for name in weights)
        for name, weight in weights.items():
            fair = total * weight / sum(weights.values())
            assert abs(sent[name] - fair) <= 0.1 * fair + 1, f"{name} at {begin} s: {dict(sent)}"


def check_pace(world: PaceWorld, channel: Channel, from_s: float, until_s: float) -> None:
    """The lane was busy in each second, and held two to five seconds of its rate, give or take a piece."""
    rate, lane = world.bulk_rate(channel), world.lane(channel)
    for at, sent in enumerate(world.sent[lane][int(from_s) : int(until_s)]):
        assert sent.total() >= 0.97 * rate - 1, f"idle at {from_s + at} s: {sent.total()} of {rate:.0f}"
    ticks = [round(second * 20) for second in (from_s, until_s)]
    backlogs = world.backlogs[lane][ticks[0] : ticks[1]]
    assert min(backlogs) >= 2 * rate - 1
    assert max(backlogs) <= 5 * rate + 1


def pages(sizes: Sequence[int], recipients: int) -> list[int]:
    """Pages of these sizes, in turn, of so many recipients."""
    found: list[int] = []
    while recipients > 0:
        found += sizes
        recipients -= sum(sizes)
    return found


@pytest.mark.parametrize("seed", range(6))
async def test_three_campaigns_share_the_pace_by_weight_over_any_ten_seconds(seed: int) -> None:
    rng = random.Random(seed)
    rate, joins_s = rng.choice((60.0, 400.0, 1_500.0, 5_000.0)), rng.choice((0.0, 3.3, 11.0))
    weights = rng.sample((1, 2, 3), 3)
    sizes = rng.choices(((250,), (1, 250), (3, 40, 250), (17,)), k=3)
    world = PaceWorld(seed, {PUSH: rate})
    for name, weight, kind in zip("ab", weights, sizes, strict=False):
        world.accept(name, pages(kind, int(rate * 40)), weight=weight)
    await world.run(joins_s)
    world.accept("late", pages(sizes[2], int(rate * 40)), weight=weights[2])
    await world.run(35)
    check_shares(world, PUSH, dict(zip(("a", "b", "late"), weights, strict=True)))
    check_pace(world, PUSH, 2, joins_s + 35)


async def test_dispatch_remembers_nothing_of_campaigns_that_have_ended() -> None:
    """One a day for years."""
    world = PaceWorld(6, {PUSH: 1_000.0})
    for day in range(5):
        world.accept(f"day {day}", [250])
        world.accept(f"code of day {day}", [5], is_urgent=True)
        await world.run(2)
        world.campaigns.clear()
    world.accept("today", [250])
    await world.run(2)
    paces = world.releases._paces
    assert {name for name in paces if name not in world.lanes} == {"default/today"}
    assert world.lane(PUSH, Priority.TRANSACTIONAL) in paces, "of lanes they go on"


def full_pages(recipients: float) -> list[int]:
    return pages((250,), int(recipients))


async def test_campaigns_of_tenants_share_by_the_tenants_weight_first() -> None:
    world = PaceWorld(1, {PUSH: 400.0}, {"shop": 1.0, "bank": 2.0})
    world.accept("one", full_pages(20_000), tenant="shop", weight=3)
    world.accept("two", full_pages(20_000), tenant="shop", weight=1)
    world.accept("only", full_pages(20_000), tenant="bank", weight=1)
    await world.run(30)
    check_shares(world, PUSH, {"one": 3, "two": 1, "only": 8})


async def test_bulk_singles_of_a_tenant_share_the_lane_as_one_campaign_of_it_would() -> None:
    world = PaceWorld(2, {PUSH: 400.0}, {"shop": 1.0, "bank": 1.0})
    world.accept("spring", full_pages(20_000), tenant="shop", weight=2)
    world.accept("credit", full_pages(20_000), tenant="bank")
    world.singles = {"shop": world.lane(PUSH)}
    await world.run(30)
    check_shares(world, PUSH, {"spring": 2, "singles of shop": 1, "credit": 3})
    check_pace(world, PUSH, 2, 30)


async def test_a_campaign_on_two_channels_shares_each_of_them_with_those_on_one() -> None:
    world = PaceWorld(3, {PUSH: 400.0, EMAIL: 400.0})
    world.accept("mails", full_pages(20_000), (EMAIL,))
    world.accept("pushes", full_pages(20_000), (PUSH,))
    world.accept("both", full_pages(20_000), (PUSH, EMAIL))
    await world.run(30)
    check_shares(world, PUSH, {"both": 1, "pushes": 1})
    check_shares(world, EMAIL, {"both": 1, "mails": 1})
    for channel in (PUSH, EMAIL):
        check_pace(world, channel, 2, 30)


async def test_a_slow_second_channel_slows_down_only_who_uses_it() -> None:
    world = PaceWorld(4, {PUSH: 1_000.0, SMS: 50.0})
    world.accept("texts", full_pages(20_000), (SMS,))
    world.accept("pushes", full_pages(40_000), (PUSH,))
    world.accept("both", full_pages(20_000), (PUSH, SMS))
    await world.run(30)
    check_shares(world, SMS, {"both": 1, "texts": 1})
    check_pace(world, SMS, 2, 30)
    check_pace(world, PUSH, 2, 30)


async def test_what_a_campaign_with_a_pace_of_its_own_leaves_goes_to_the_others_by_their_weights() -> None:
    world = PaceWorld(5, {PUSH: 400.0})
    world.accept("slow", full_pages(20_000), weight=5, pace_per_s=20)
    world.accept("a", full_pages(20_000), weight=1)
    world.accept("b", full_pages(20_000), weight=2)
    await world.run(30)
    check_shares(world, PUSH, {"a": 1, "b": 2})
    check_pace(world, PUSH, 2, 30)
    assert summed(world.sent[world.lane(PUSH)][10:])["slow"] == pytest.approx(20 * 20, rel=0.1)


@pytest.mark.parametrize("rate", [150.0, 1_000.0, 5_000.0])
async def test_two_hundred_behind_a_large_campaign_are_done_within_ten_seconds(rate: float) -> None:
    world = PaceWorld(6, {PUSH: rate})
    world.accept("large", full_pages(rate * 40))
    await world.run(7.1)
    world.accept("small", [200])
    await world.run(10)
    assert summed(world.sent[world.lane(PUSH)])["small"] == 200


async def test_a_transactional_campaign_leaves_half_of_the_reserve_and_a_short_queue_to_singles() -> None:
    world = PaceWorld(7, {PUSH: 1_000.0})
    world.accept("recall", full_pages(20_000), is_urgent=True)
    await world.run(30)
    lane = world.lane(PUSH, Priority.TRANSACTIONAL)
    for begin, end in pairwise(range(2, 30, 4)):
        assert summed(world.sent[lane][begin:end]).total() <= 0.15 * 1_000 * 4.5, (
            "four seconds, and a look's unevenness"
        )
    assert summed(world.sent[lane]).total() == pytest.approx(0.15 * 1_000 * 30, rel=0.05)
    assert max(world.backlogs[lane]) <= 0.15 * 1_000


async def test_a_transactional_campaign_waits_where_singles_wait() -> None:
    world = PaceWorld(8, {PUSH: 1_000.0})
    lane = world.lane(PUSH, Priority.TRANSACTIONAL)
    world.lanes[lane].stuck = set(range(4))
    world.accept("recall", full_pages(20_000), is_urgent=True)
    await world.run(20)
    assert world.let_go["recall"] <= 0.15 * 1_000


async def test_while_fan_out_stands_still_no_more_than_five_seconds_of_pages_are_let_go() -> None:
    """N11."""
    world = PaceWorld(9, {PUSH: 1_000.0})
    world.fan_out_s = lambda: 10_000.0
    world.accept("spring", full_pages(100_000))
    await world.run(120)
    assert 4.5 * 700 <= world.let_go["spring"] <= 5 * 700


async def test_one_partition_that_stands_still_does_not_idle_the_others() -> None:
    world = PaceWorld(10, {PUSH: 200.0})
    world.accept("spring", full_pages(20_000))
    await world.run(5)
    lane = world.lanes[world.lane(PUSH)]
    lane.stuck = {2}
    await world.run(60)
    for sent in world.sent[lane.name][5:65]:
        assert sent.total() >= 0.97 * 140 - 1


async def test_records_that_wait_in_tiers_hold_the_lane_back_beyond_five_seconds_of_rate() -> None:
    world = PaceWorld(11, {PUSH: 100.0})
    world.lanes[world.lane(PUSH)].in_tiers = 10 * 70
    world.accept("spring", full_pages(20_000))
    await world.run(5)
    assert world.let_go["spring"] == 0
    world.lanes[world.lane(PUSH)].in_tiers = 5 * 70
    await world.run(5)
    assert world.let_go["spring"] >= 5 * 70


async def test_nothing_goes_to_a_lane_while_no_provider_is_usable_and_all_goes_on_afterwards() -> None:
    world = PaceWorld(12, {PUSH: 0.0})
    world.accept("spring", full_pages(20_000))
    await world.run(20)
    assert world.let_go["spring"] == 0
    world.rates[PUSH] = 1_000.0
    await world.run(10)
    check_pace(world, PUSH, 22, 30)
