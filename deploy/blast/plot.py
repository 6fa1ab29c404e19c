"""A blast as a picture: sends a second of each campaign above, how long login codes took below, on one axis of time."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from deploy.blast import drawing
from deploy.blast.drawing import Panel
from deploy.blast.facts import Arrived, Facts
from deploy.blast.judging import P50_MS, P99_MS
from deploy.blast.plan import CODES_PER_S, LARGE_ID, SMALL, SMALL_ID
from deploy.demo.judge import percentile

WIDTH, HEIGHT = 1200, 760
LEFT, RIGHT, PANEL = 80, 130, 280
LATENCY_MS = (1.0, 100_000.0)
POINTS = 400
"""At most so many on a line: a long blast is drawn in steps of several seconds."""
LARGE, SMALL_COLOR, CODE, SLOW, KILL, LIMIT = "#2563eb", "#ea580c", "#16a34a", "#9333ea", "#dc2626", "#6b7280"


def svg(facts: Facts) -> str:
    """The file's text. Time begins with the first thing that arrived."""
    began_s = min((came.first_s for came in _all(facts) if came.distinct), default=0.0)
    ends_s = max(came.last_new_s for came in _all(facts))
    whole_s = max(1, ceil(ends_s - began_s))
    step_s = max(1, ceil(whole_s / POINTS))
    return drawing.picture(WIDTH, HEIGHT, _parts(facts, began_s, whole_s, step_s))


def _all(facts: Facts) -> tuple[Arrived, Arrived, Arrived]:
    return facts.large, facts.small, facts.code


def _parts(facts: Facts, began_s: float, whole_s: int, step_s: int) -> Iterator[str]:
    plan = facts.plan
    width = WIDTH - LEFT - RIGHT
    pace = Panel(LEFT, 90, width, PANEL, whole_s, 0, plan.rate_per_s * 1.25)
    took = Panel(LEFT, 450, width, PANEL - 20, whole_s, *LATENCY_MS, is_log=True)
    title = f"{plan.recipients:,} recipients, a provider of {plan.rate_per_s:,}/s, {CODES_PER_S} login codes/s"
    yield drawing.text(LEFT, 30, title, size=16, bold=True)
    names = ((f"campaign {LARGE_ID}", LARGE), (f"campaign {SMALL_ID} ({SMALL})", SMALL_COLOR), ("login codes", CODE))
    yield drawing.legend(LEFT, 56, (*names, ("login codes, p99", SLOW), ("kill -9", KILL)))
    yield pace.axes("sends a second", "")
    yield pace.level(plan.rate_per_s, "rate", LIMIT) + pace.level(plan.bulk_per_s, "bulk's share", LIMIT)
    for came, color in zip(_all(facts), (LARGE, SMALL_COLOR, CODE), strict=True):
        yield pace.curve(per_second(came, began_s, whole_s, step_s), color)
    yield took.axes("login codes: request to provider, ms", "seconds")
    yield took.level(P50_MS, f"p50 < {P50_MS:g} ms", CODE) + took.level(P99_MS, f"p99 < {P99_MS:g} ms", SLOW)
    yield took.curve(latency_ms(facts.code, began_s, step_s, 0.99), SLOW)
    yield took.curve(latency_ms(facts.code, began_s, step_s, 0.5), CODE)
    kills = [(kill.at_s - began_s, kill.role) for kill in facts.kills]
    for panel in (pace, took):
        yield from (panel.moment(at_s, KILL) for at_s, _ in kills)
    yield took.names(kills, KILL)


def per_second(came: Arrived, began_s: float, whole_s: int, step_s: int) -> list[tuple[float, float]]:
    """(seconds since the beginning, sends a second), averaged over each step; nothing before its first and last."""
    if not came.distinct:
        return []
    first, last = int(came.first_s - began_s), min(whole_s, int(came.last_new_s - began_s))
    begin, points = int(began_s), []
    for start in range(first - first % step_s, last + 1, step_s):
        counts = [came.per_second.get(begin + second, 0) for second in range(start, start + step_s)]
        points.append((start + step_s / 2, sum(counts) / step_s))
    return points


def latency_ms(came: Arrived, began_s: float, step_s: int, share: float) -> list[tuple[float, float]]:
    """(seconds since the beginning, percentile) of what was wished for in each step."""
    steps: dict[int, list[float]] = {}
    for came_s, wait_s in came.waits:
        steps.setdefault(int((came_s - wait_s - began_s) // step_s), []).append(wait_s * 1000)
    return [((step + 0.5) * step_s, percentile(waits, share)) for step, waits in sorted(steps.items())]
