"""Each process is killed in each of its gaps, in the middle of a flow: nothing is lost, and repeats are told."""

from __future__ import annotations

import pytest

from tests.acceptance.world import World
from tests.kills.flow import caught
from tests.kills.traps import Trap, Traps

FAILING = {"errors": {"500": 0.1}}
"""So that records pass the waiting rooms."""
WORK, FORWARD = "work-push.bulk", "forward"
NO_DOUBT = [
    ("api", "before_answer", 5),
    ("api", "after_audience", 1),
    ("api", "after_request", 1),
    ("callbacks", "after_callback", 30),
    ("route-requests", "after_route_plan", 3),
    ("route-requests", "before_publish", 3),
    ("route-requests", "after_publish", 3),
    ("route-requests", "before_commit", 1),
    ("route-callbacks", "before_publish", 2),
    ("route-callbacks", "after_publish", 2),
    ("dispatch", "before_release", 1),
    ("dispatch", "after_release", 1),
    ("streams-fan_out", "after_page_plan", 1),
    ("streams-fan_out", "after_fan_out", 1),
    (WORK, "after_settle", 3),
    (WORK, "before_publish", 2),
    (WORK, "after_publish", 2),
    (WORK, "before_commit", 1),
    ("streams-status", "after_state", 3),
    ("streams-status", "before_changelog", 3),
    ("streams-status", "after_changelog", 3),
    ("streams-status", "after_rows", 3),
]
"""(role, gap, at which passing): no call is open there whose outcome could be doubtful."""


@pytest.mark.parametrize(("role", "gap", "passing"), NO_DOUBT)
async def test_a_death_between_two_steps_repeats_no_call_and_loses_nobody(
    world: World, traps: Traps, role: str, gap: str, passing: int
) -> None:
    flow, dead = await caught(world, traps, role, Trap(gap, passing=passing))
    ended = await flow.ended()
    assert await world.running(role, besides=dead)
    assert ended.repeats == 0
