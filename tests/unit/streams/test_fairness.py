"""Campaigns and tenants get their weight's share of a lane, over any stretch of turns."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.fairness import Flow, Turns

LANE = "push.bulk"
weights = st.lists(st.integers(1, 10), min_size=1, max_size=6)


def flow(weight: float = 1, tenant: str = "default", lanes: tuple[str, ...] = (LANE,)) -> Flow:
    return Flow(tenant, weight, lanes)


def let_go(turns: Turns, flows: Mapping[str, Flow], pieces: int, cost: int = 250) -> list[str]:
    """Who goes, piece after piece, while all of these wait."""
    found = []
    for _ in range(pieces):
        name = turns.next(flows)
        assert name is not None
        turns.pay(name, flows[name], cost)
        found.append(name)
    return found


@settings(max_examples=30, deadline=None)
@given(weights, st.integers(0, 100), st.data())
def test_over_any_window_each_waiting_flow_gets_its_share(weights: list[int], start: int, data: st.DataObject) -> None:
    flows = {str(n): flow(weight) for n, weight in enumerate(weights)}
    turns = let_go(Turns({}), flows, start + 300)[start:]
    begin = data.draw(st.integers(0, 150))
    window = turns[begin : begin + data.draw(st.integers(1, 150))]
    for name, waits in flows.items():
        share = waits.weight / sum(weights)
        most_off = 1 - share + (len(flows) - 1) * share
        assert abs(window.count(name) - len(window) * share) <= most_off + 1e-6


@settings(max_examples=20, deadline=None)
@given(weights, st.lists(st.integers(1, 250), min_size=6, max_size=6))
def test_shares_are_of_recipients_not_of_pages(weights: list[int], costs: list[int]) -> None:
    turns, served = Turns({}), Counter[str]()
    flows = {str(n): flow(weight) for n, weight in enumerate(weights)}
    while served.total() < 15_000:
        name = turns.next(flows)
        assert name is not None
        turns.pay(name, flows[name], costs[int(name)])
        served[name] += costs[int(name)]
    for name, waits in flows.items():
        fair = served.total() * waits.weight / sum(weights)
        assert served[name] == pytest.approx(fair, rel=0.1, abs=600)


def test_what_one_flow_cannot_use_goes_to_the_others() -> None:
    assert let_go(Turns({}), {"small": flow()}, 5) == ["small"] * 5


def test_a_flow_that_comes_later_is_owed_nothing_for_the_past() -> None:
    turns = Turns({})
    let_go(turns, {"early": flow()}, 1_000)
    assert let_go(turns, {"early": flow(), "late": flow()}, 10).count("late") == 5


def test_a_flow_is_owed_nothing_for_the_time_it_did_not_wait() -> None:
    turns, one, both = Turns({}), {"a": flow()}, {"a": flow(), "b": flow(9)}
    for _ in range(50):
        let_go(turns, both, 1)
        let_go(turns, one, 1)
    assert let_go(turns, {"a": flow(), "b": flow()}, 20).count("b") <= 11


def test_nobody_waiting_is_nobodys_turn() -> None:
    assert Turns({}).next({}) is None


def test_a_tenant_with_many_campaigns_gets_no_more_than_one_with_a_single_one() -> None:
    flows = {"a1": flow(1, "a"), "a2": flow(3, "a"), "b1": flow(5, "b")}
    assert Counter(let_go(Turns({}), flows, 800)) == {"a1": 100, "a2": 300, "b1": 400}


def test_tenants_share_by_their_own_weights() -> None:
    flows = {"a1": flow(7, "a"), "b1": flow(1, "b")}
    assert Counter(let_go(Turns({"a": 1, "b": 4}), flows, 500)) == {"a1": 100, "b1": 400}


def test_what_a_campaign_leaves_goes_to_its_own_tenant_first() -> None:
    turns = Turns({})
    let_go(turns, {"a1": flow(1, "a"), "a2": flow(1, "a"), "b1": flow(1, "b")}, 40)
    assert Counter(let_go(turns, {"a1": flow(1, "a"), "b1": flow(1, "b")}, 100)) == {"a1": 50, "b1": 50}


def test_the_share_foretold_is_the_share_that_turns_give() -> None:
    flows = {"a1": flow(1, "a"), "a2": flow(3, "a"), "b1": flow(5, "b")}
    turns = Turns({"b": 2.0})
    shares = turns.shares(flows)
    assert shares == {"a1": pytest.approx(1 / 12), "a2": pytest.approx(3 / 12), "b1": pytest.approx(8 / 12)}
    went = Counter(let_go(turns, flows, 1_200))
    assert {name: count / 1_200 for name, count in went.items()} == pytest.approx(shares, abs=0.002)


def test_the_share_of_a_campaign_on_two_channels_is_that_of_the_busier_one() -> None:
    flows = {"both": flow(lanes=(LANE, "email.bulk")), "mail": flow(3, lanes=("email.bulk",))}
    assert Turns({}).shares(flows) == {"both": 0.25, "mail": 0.75}


def test_a_campaign_on_two_channels_gets_its_share_where_it_meets_others() -> None:
    flows = {"both": flow(lanes=(LANE, "email.bulk")), "push": flow(), "mail": flow(lanes=("email.bulk",))}
    assert Counter(let_go(Turns({}), flows, 300)) == {"both": 100, "push": 100, "mail": 100}


def test_a_campaign_held_back_by_a_slow_channel_is_owed_nothing_by_those_of_the_fast_one() -> None:
    turns = Turns({})
    held, push = {"both": flow(lanes=(LANE, "sms.bulk"))}, {"push": flow()}
    for _ in range(50):
        let_go(turns, held | push, 1)
        let_go(turns, push, 9)
    late = {"late": flow()}
    assert let_go(turns, push | late, 20).count("late") == 10, "nor is anybody who comes then"
    assert let_go(turns, {"both": flow()} | push, 20).count("both") <= 11
