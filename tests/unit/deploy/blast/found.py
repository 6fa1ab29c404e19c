"""What a blast finds when all is well: 14,000 recipients in ten seconds at the cap, a code every 50 ms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deploy.blast.facts import Arrived, Facts
from deploy.blast.plan import CODES_PER_S, LARGE_ID, SMALL, SMALL_ID, Plan

PLAN = Plan(recipients=14_000, rate_per_s=2_000)
BEGAN_S, SECONDS = 1_000, 10
SMALL_BEGUN_S = BEGAN_S + 5.0
CODES = CODES_PER_S * SECONDS


def codes(wait_s: float = 0.02) -> Arrived:
    """One at each twentieth of a second, all as late."""
    waits = [(BEGAN_S + number / CODES_PER_S + wait_s, wait_s) for number in range(CODES)]
    return Arrived(CODES, CODES, waits[0][0], waits[-1][0], {}, waits)


def large(per_s: int = 1_400) -> Arrived:
    seconds = {BEGAN_S + second: per_s for second in range(SECONDS)}
    return Arrived(PLAN.recipients, PLAN.recipients, BEGAN_S, BEGAN_S + SECONDS, seconds)


def told(recipients: int, **other: Any) -> dict[str, Any]:
    found = {"status": "processed", "expected": recipients, "outcomes": {"delivered": recipients}}
    return {**found, "possible_duplicates": 0, **other}


WELL = Facts(
    plan=PLAN,
    large=large(),
    small=Arrived(SMALL, SMALL, SMALL_BEGUN_S + 1, SMALL_BEGUN_S + 3, {}),
    code=codes(),
    most_in_a_second=1_800,
    told={LARGE_ID: told(PLAN.recipients), SMALL_ID: told(SMALL)},
    small_begun_s=SMALL_BEGUN_S,
    codes=CODES,
    codes_sent=CODES,
    codes_possible=0,
    uploaded_s=1.0,
    pids={"api": {1}, "streams-status": {2}},
    peaks_mb={"api": 90.0, "streams-status": 200.0},
)


def but(**other: Any) -> Facts:
    """All is well, but for this."""
    return replace(WELL, **other)
