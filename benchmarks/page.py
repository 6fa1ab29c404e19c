"""docs/benchmarks.md, written from the raw results; and the same figures as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from benchmarks import figures
from benchmarks.figures import Figure
from benchmarks.results import Result

HEAD = """\
# Benchmarks

Written by `make bench` from `benchmarks/results`; not edited by hand. Kafka, Redis, the providers' stand-ins, the load
and Tidings share the machine, unless a row says "a core". References ran in turn with Tidings, in the same run.
Each figure is the median of its runs, with the least and the most in brackets.

`make bench` measures all rows three times; `make bench ROWS=sender,accept RUNS=1` some of them, once. `PEERS=` names a
folder with other queues' harness, `CAMPAIGN=1000000` makes the large campaigns larger, `CAP=` is the provider's rate in
the row `cap`, `SCALE=0.02` shows in a minute that all of it runs.
Rows: {rows}.
"""
WORDS = {True: "yes", False: "**no**", None: ""}


def page(results: Sequence[Result]) -> str:
    """The whole page."""
    by_case = {result.case: result for result in results}
    found = [by_case[case.name] for case in figures.CASES if case.name in by_case]
    parts = [
        HEAD.format(rows=", ".join(case.name for case in figures.CASES)),
        *_machines(found),
        _figures(found),
        *_short(found),
    ]
    parts += [_details(result) for result in found]
    missing = [case.name for case in figures.CASES if case.name not in by_case]
    if missing:
        parts.append(f"Not measured yet: {', '.join(missing)}.\n")
    return "\n".join(parts)


def table(result: Result) -> Table:
    """For people at a terminal."""
    shown = Table(title=f"{result.case}: {len(result.runs)} runs", title_justify="left", caption_justify="left")
    for name in ("what", "goal", "measured", "references", "met"):
        shown.add_column(name)
    for *row, limit in _rows(result):
        shown.add_row(*(cell.replace("**", "") for cell in row))
        shown.caption = shown.caption or limit
    return shown


def _machines(results: Sequence[Result]) -> Iterator[str]:
    """Each machine once; mostly there is one."""
    for machine in {tuple(result.machine.items()): None for result in results}:
        yield "- " + "\n- ".join(f"{name}: {value}" for name, value in machine) + "\n"


def _figures(results: Sequence[Result]) -> str:
    lines = [
        "| what | goal | measured | references of the same run | met | what limits it |",
        "|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(row)} |" for result in results for row in _rows(result)]
    return "\n".join(lines) + "\n"


def _short(results: Sequence[Result]) -> Iterator[str]:
    """What is not met, and what would be done about it."""
    lines = [
        f"- {figure.what} ({result.case}): {figures.NEXT_STEPS.get((result.case, figure.value), 'not known yet')}."
        for result in results
        for figure in figures.of(result.case)
        if (spread := result.spread(figure.value)) is not None and figure.is_met(spread[0]) is False
    ]
    if lines:
        yield "\n".join(["## What falls short, and the next step", "", *lines]) + "\n"


def _rows(result: Result) -> Iterator[tuple[str, ...]]:
    shown = figures.of(result.case)
    limit = str(result.typical(shown).notes.get("limit", ""))
    for figure in shown:
        spread = result.spread(figure.value)
        if spread is None:
            yield figure.what, figure.goal, "not measured", "", "", ""
            continue
        measured, met = _shown(figure, spread), WORDS[figure.is_met(spread[0])]
        yield figure.what, figure.goal, measured, _beside(figure, result), met, limit if figure is shown[0] else ""


def _shown(figure: Figure, spread: tuple[float, float, float]) -> str:
    median, least, most = (f"{value:,.{figure.digits}f}" for value in spread)
    return f"{median} {figure.unit} [{least}-{most}]".replace("  ", " ")


def _beside(figure: Figure, result: Result) -> str:
    """What the references reached, and how many times that Tidings reaches."""
    ours = result.spread(figure.value)
    told = []
    for value, whose in figure.references:
        theirs = result.spread(value)
        if theirs is None:
            told.append(f"{whose}: not present")
        elif ours is not None:
            ratio = f" ({ours[0] / theirs[0]:.2f} x)" if theirs[0] else ""
            told.append(f"{whose}: {_shown(figure, theirs)}{ratio}")
    return "; ".join(told)


def _details(result: Result) -> str:
    """The run in the middle, in full."""
    title = next(case.title for case in figures.CASES if case.name == result.case)
    run = result.typical(figures.of(result.case))
    lines = [f"## {result.case}: {title}", ""]
    lines.append(
        f"Measured {result.at} at commit {result.commit}, {len(result.runs)} runs of {run.took_s:.0f} s"
        f"{'' if result.scale == 1 else f', in a scale of {result.scale:g}'}; load of the machine before them: "
        f"{', '.join(f'{one.load_before:g}' for one in result.runs)}.\n"
    )
    lines += [f"- {name}: {_told(value)}" for name, value in run.notes.items()]
    return "\n".join(lines) + "\n"


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_told(one)}" for name, one in value.items())
    return f"{value:,}" if isinstance(value, int | float) else str(value)
