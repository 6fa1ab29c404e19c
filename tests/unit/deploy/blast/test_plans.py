"""What a blast sets out to do: numbers, settings, people, kills that a seed repeats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy import settings
from deploy.blast import ages, audience, kills, place, report
from deploy.blast.facts import Kill
from deploy.blast.judging import AFTER_KILL_S
from deploy.blast.plan import BULK_SHARE, SMALL_ID, Plan
from deploy.local import stack
from schemas import policies
from schemas.errors import Misconfigured
from tests.unit.deploy.blast.found import WELL

ROLES = ["api", "dispatch", "work-push.bulk", "work-push.bulk-2", "streams-status"]


def test_a_seed_repeats_the_kills_and_another_one_does_not() -> None:
    assert kills.schedule(ROLES, 7) == kills.schedule(reversed(ROLES), 7) != kills.schedule(ROLES, 8)


def test_one_process_of_each_kind_is_killed_while_the_campaign_runs() -> None:
    planned = kills.schedule(ROLES, 1)
    assert sorted(role for _, role in planned) == ["api", "dispatch", "streams-status", "work-push.bulk"]
    assert all(kills.FROM <= share <= kills.TO for share, _ in planned)


def test_of_those_that_every_code_passes_the_next_one_waits_until_the_last_one_is_back() -> None:
    made = [Kill("api", 1, 100.0), Kill("route-requests", 2, 150.0), Kill("dispatch", 3, 170.0)]
    assert kills.calm_from_s(made, kills.ON_THE_WAY) == 150.0 + AFTER_KILL_S + 1
    assert kills.calm_from_s(made, ["forward"]) == 0.0


def test_its_settings_and_templates_are_accepted(tmp_path: Path) -> None:
    plan = Plan(rate_per_s=3_000)
    chosen = place.prepare(tmp_path, stack.Stack("127.0.0.1:1", "redis://127.0.0.1:2/0"), plan)
    read = settings.load(chosen.settings, {})
    assert (read.providers["gateway"].rate_per_s, read.providers["gateway"].burst) == (3_000, 300)
    assert read.sending.bulk_share == BULK_SHARE
    assert set(policies.read_policies(read.templates.path)) == {"code", "order"}


def test_everybody_of_an_audience_is_somebody_else() -> None:
    lines = [json.loads(line) for campaign in ("a", "b") for line in audience.lines(campaign, 100)]
    assert len({line["user_id"] for line in lines}) == len({str(line["to"]) for line in lines}) == 200


@pytest.mark.parametrize("plan", [Plan(recipients=10), Plan(rate_per_s=1), Plan(seconds=-1)])
def test_a_blast_about_which_nothing_can_be_said_is_refused(plan: Plan) -> None:
    with pytest.raises(Misconfigured, match="--"):
        plan.check()


def test_the_age_of_a_lane_is_that_of_its_oldest_partition() -> None:
    shown = (
        'tidings_engine_oldest_seconds{partition="0",topic="push.bulk"} 0.25\n'
        'tidings_engine_oldest_seconds{partition="1",topic="push.bulk"} 2.5\n'
        'tidings_engine_oldest_seconds{partition="0",topic="push.transactional"} 0.0\n'
    )
    assert ages.read(shown) == {"push.bulk": 2.5, "push.transactional": 0.0}


def test_the_report_for_machines_says_whether_all_of_it_holds() -> None:
    found = report.as_json(WELL, [])
    assert json.loads(json.dumps(found))["holds"] is True
    assert found["figures"]["sends a second, on average"] == 1_400
    assert found["peaks_mb"] == {"streams-status": 200, "api": 90} and SMALL_ID in found["campaigns"]
