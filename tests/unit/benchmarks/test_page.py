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


def test_a_reference_that_was_away_and_a_row_that_was_not_run_are_named() -> None:
    text = page.page([measured("email", {"per_s": 3_000.0})])
    assert "BullMQ: not present" in row(text, "mail by SMTP")
    assert "Not measured yet: sender," in text


def test_every_figure_belongs_to_a_case_that_is_run() -> None:
    assert {figure.case for figure in figures.FIGURES} == {case.name for case in figures.CASES}
