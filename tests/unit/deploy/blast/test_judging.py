"""A blast passes only what was promised, and says what it could not judge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.blast import judging
from deploy.blast.facts import Arrived, Facts, Kill
from deploy.blast.plan import LARGE_ID, SMALL, SMALL_ID
from tests.unit.deploy.blast.found import BEGAN_S, CODES, PLAN, SECONDS, SMALL_BEGUN_S, WELL, but, codes, large, told


def verdicts(facts: Facts) -> dict[str, bool | None]:
    return {one.name: one.holds for one in judging.judge(facts)}


def figure(facts: Facts, beginning: str) -> float | None:
    [found] = [one.figure for one in judging.judge(facts) if one.name.startswith(beginning)]
    return found


def test_all_is_well_when_every_promise_is_kept() -> None:
    assert set(verdicts(WELL).values()) == {True}
    assert figure(WELL, "bulk's share") == pytest.approx(1.0)
    assert figure(WELL, "campaign of 200") == pytest.approx(3.0)


LATE_SMALL = replace(WELL.small, last_new_s=SMALL_BEGUN_S + 10.5)
ONE_SHORT = replace(WELL.large, distinct=PLAN.recipients - 1)


@pytest.mark.parametrize(
    ("facts", "broken"),
    [
        (but(most_in_a_second=2_201), ["calls in the provider's fullest second"]),
        (but(large=large(per_s=1_350)), ["bulk's share of the rate, used"]),
        (but(code=codes(0.05)), ["transactional, request to provider, p50, ms"]),
        (but(small=LATE_SMALL), ["campaign of 200 behind the large one, s"]),
        (but(peaks_mb={"api": 300.0}), ["the largest Tidings process, MB"]),
        (but(large=ONE_SHORT), ["counts of campaign large, off by", "lost", "repeats"]),
        (but(codes=CODES + 1, codes_sent=CODES + 1), ["lost"]),
        (but(codes_sent=CODES - 1), ["login codes whose status says something else than sent"]),
        (but(code=replace(codes(), sends=CODES + 1)), ["repeats"]),
        (but(pids={"api": {1, 5}}), ["processes that ended without being killed"]),
    ],
    ids=[
        "limit",
        "idle",
        "latency",
        "small",
        "memory",
        "one missing",
        "a code lost",
        "status wrong",
        "repeat",
        "restart",
    ],
)
def test_each_broken_promise_is_named(facts: Facts, broken: list[str]) -> None:
    assert [one.name for one in judging.failed(judging.judge(facts))] == broken


def test_one_slow_code_in_a_hundred_breaks_the_p99_and_not_the_p50() -> None:
    waits = codes().waits
    slow = waits[: -CODES // 50] + [(came_s, 0.3) for came_s, _ in waits[-CODES // 50 :]]
    facts = but(code=replace(codes(), waits=slow))
    assert [one.name for one in judging.failed(judging.judge(facts))] == ["transactional, request to provider, p99, ms"]


def test_a_campaign_that_counts_one_person_twice_is_found_out() -> None:
    outcomes = {"delivered": PLAN.recipients, "sent": 1}
    facts = but(told={LARGE_ID: told(PLAN.recipients, outcomes=outcomes), SMALL_ID: told(SMALL)})
    assert [one.name for one in judging.failed(judging.judge(facts))] == ["counts of campaign large, off by"]


def test_a_repeat_that_was_counted_as_possible_is_forgiven() -> None:
    twice = replace(WELL.large, sends=PLAN.recipients + 1)
    possible = {LARGE_ID: told(PLAN.recipients, possible_duplicates=1), SMALL_ID: told(SMALL)}
    assert verdicts(but(large=twice, told=possible))["repeats"]
    assert not verdicts(but(large=twice))["repeats"]


def killed(facts: Facts, at_s: float) -> Facts:
    kills = (Kill("work-push.bulk", 1, at_s),)
    return replace(facts, plan=replace(PLAN, kills=True), kinds=1, kills=kills)


def test_after_a_kill_nothing_is_judged_that_a_kill_may_delay() -> None:
    troubled = killed(but(large=large(per_s=100), code=codes(44.0), small=LATE_SMALL), BEGAN_S)
    found = verdicts(troubled)
    assert [name for name, holds in found.items() if holds is None] == [
        "bulk's share of the rate, used",
        "transactional, request to provider, p50, ms",
        "transactional, request to provider, p99, ms",
        "campaign of 200 behind the large one, s",
    ]
    assert found["the latest transactional message, s"] and found["kinds of process killed once"]


def test_what_was_long_before_or_after_a_kill_is_judged() -> None:
    idle = large(per_s=100)
    after = killed(but(large=idle), BEGAN_S - judging.AFTER_KILL_S - 0.5)
    before = killed(but(large=idle), BEGAN_S + SECONDS - 1.5)
    assert verdicts(after)["bulk's share of the rate, used"] is False
    assert verdicts(before)["bulk's share of the rate, used"] is False


def test_a_code_later_than_any_kill_explains_is_too_late() -> None:
    assert not verdicts(killed(but(code=codes(45.5)), BEGAN_S))["the latest transactional message, s"]


def test_a_process_that_was_killed_is_replaced_once() -> None:
    replaced = killed(but(pids={"work-push.bulk": {1, 2}}), BEGAN_S)
    again = replace(replaced, pids={"work-push.bulk": {1, 2, 3}})
    assert verdicts(replaced)["processes that ended without being killed"]
    assert not verdicts(again)["processes that ended without being killed"]


def test_a_kind_that_was_not_killed_is_missed() -> None:
    assert not verdicts(replace(killed(WELL, BEGAN_S), kinds=2))["kinds of process killed once"]


def test_a_small_campaign_that_did_not_run_beside_the_large_one_says_nothing() -> None:
    alone = Arrived(SMALL, SMALL, BEGAN_S + SECONDS + 2, BEGAN_S + SECONDS + 3, {})
    found = verdicts(but(small=alone, small_begun_s=BEGAN_S + SECONDS + 1))
    assert found["campaign of 200 behind the large one, s"] is None
