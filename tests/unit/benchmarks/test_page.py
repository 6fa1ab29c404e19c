"""What the page says of results: medians with their spread, references beside them, and what was not measured."""

from __future__ import annotations

from benchmarks import figures, page
from benchmarks.results import Result, Run


def measured(case: str, *runs: dict[str, float]) -> Result:
    made = tuple(Run(values, {"limit": "the worker"}, 60.0, 0.1) for values in runs)
    return Result(case, "2026-11-29 20:00 UTC", "abc1234", 1.0, {"cores": "2"}, made)


def row(text: str, what: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"| {what} |"))


def test_a_row_shows_the_median_its_spread_the_ratio_to_its_reference_and_what_limits_it() -> None:
    runs = ({"per_s": 9_000.0, "bare_per_s": 20_000.0}, {"per_s": 12_000.0, "bare_per_s": 24_000.0})
    text = page.page([measured("sender", *runs, {"per_s": 11_000.0, "bare_per_s": 22_000.0})])
    shown = row(text, figures.of("sender")[0].what)
    assert "11,000 /s [9,000-12,000]" in shown
    assert "bare loop on the same client: 22,000 /s [20,000-24,000] (0.50 x)" in shown
    assert "| yes | the worker |" in shown


def test_a_goal_that_was_missed_is_plain_to_see() -> None:
    assert "**no**" in row(page.page([measured("kill", {"lost": 1.0})]), "kill -9 at half: lost")


def test_what_falls_short_names_its_next_step_and_what_is_reached_does_not() -> None:
    text = page.page([measured("fan_out", {"per_core_s": 9_000.0}), measured("status", {"per_core_s": 90_000.0})])
    _, _, short = text.partition("## What falls short, and the next step\n")
    assert short.lstrip().startswith(f"- fan-out, a core (fan_out): {figures.NEXT_STEPS['fan_out', 'per_core_s']}.\n")
    assert "status rows" not in short.partition("\n## ")[0]


def test_next_steps_are_of_figures_with_a_goal() -> None:
    known = {(figure.case, figure.value) for figure in figures.FIGURES if figure.goal != "-"}
    assert known >= figures.NEXT_STEPS.keys()


def test_a_reference_that_was_away_and_a_row_that_was_not_run_are_named() -> None:
    text = page.page([measured("email", {"per_s": 3_000.0})])
    assert "BullMQ: not present" in row(text, "mail by SMTP")
    assert "Not measured yet: sender," in text


def test_every_figure_belongs_to_a_case_that_is_run() -> None:
    assert {figure.case for figure in figures.FIGURES} == {case.name for case in figures.CASES}
