"""Campaigns and tenants get their weight's share of a lane, over any stretch of turns."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import fairness
from streams.fairness import Claimant, Flow, RoundRobin

weights = st.lists(st.integers(1, 10), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(weights, st.integers(0, 100), st.data())
def test_over_any_window_each_waiting_flow_gets_its_share(weights: list[int], start: int, data: st.DataObject) -> None:
    robin = RoundRobin()
    flows = {str(n): Flow(weight, 250) for n, weight in enumerate(weights)}
    turns = [robin.take(flows) for _ in range(start + 300)][start:]
    begin = data.draw(st.integers(0, 150))
    window = turns[begin : begin + data.draw(st.integers(1, 150))]
    for name, flow in flows.items():
        fair = len(window) * flow.weight / sum(weights)
        assert abs(window.count(name) - fair) <= max(0.1 * fair, 2), "within 10 %, or two pages"


@settings(max_examples=40, deadline=None)
@given(weights, st.lists(st.integers(20, 250), min_size=6, max_size=6))
def test_shares_are_of_recipients_not_of_pages(weights: list[int], costs: list[int]) -> None:
    robin = RoundRobin()
    flows = {str(n): Flow(weight, costs[n]) for n, weight in enumerate(weights)}
    served = dict.fromkeys(flows, 0)
    while sum(served.values()) < 30_000:
        name = robin.take(flows)
        assert name is not None
        served[name] += flows[name].cost
    for name, flow in flows.items():
        fair = sum(served.values()) * flow.weight / sum(weights)
        assert served[name] == pytest.approx(fair, rel=0.1, abs=600)


def test_what_one_flow_cannot_use_goes_to_the_others() -> None:
    robin = RoundRobin()
    alone = {"small": Flow(1, 250)}
    assert [robin.take(alone) for _ in range(5)] == ["small"] * 5


def test_a_flow_that_comes_later_is_owed_nothing_for_the_past() -> None:
    robin = RoundRobin()
    first = {"early": Flow(1, 250)}
    for _ in range(1_000):
        robin.take(first)
    both = {**first, "late": Flow(1, 250)}
    turns = [robin.take(both) for _ in range(10)]
    assert turns.count("late") == 5


def test_a_flow_is_owed_nothing_for_the_time_it_did_not_wait() -> None:
    robin = RoundRobin()
    both = {"a": Flow(1, 250), "b": Flow(9, 250)}
    for _ in range(50):
        robin.take(both)
        robin.take({"a": Flow(1, 250)})
    turns = [robin.take({"a": Flow(1, 250), "b": Flow(1, 250)}) for _ in range(20)]
    assert turns.count("b") <= 11


def test_nobody_waiting_is_nobodys_turn() -> None:
    assert RoundRobin().take({}) is None


def test_a_tenant_with_many_campaigns_gets_no_more_than_one_with_a_single_one() -> None:
    claimants = [Claimant("a1", "a", 1, 250), Claimant("a2", "a", 3, 250), Claimant("b1", "b", 5, 250)]
    flows = fairness.spread(claimants, {})
    assert flows["b1"].weight == flows["a1"].weight + flows["a2"].weight
    assert flows["a2"].weight == 3 * flows["a1"].weight


def test_tenants_share_by_their_own_weights() -> None:
    flows = fairness.spread([Claimant("a1", "a", 7, 1), Claimant("b1", "b", 1, 1)], {"a": 1, "b": 4})
    assert flows["b1"].weight == 4 * flows["a1"].weight
