"""`make bench`: measures all rows, or some, and writes the page. Needs an otherwise idle machine with Linux."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from benchmarks import machine, page, results, run, site
from benchmarks.bench import Bench
from benchmarks.figures import Case
from benchmarks.programs import NotMeasured
from benchmarks.results import Result
from deploy.local import places, stack

PAGE = machine.ROOT / "docs" / "benchmarks.md"
FAILED = 1
LEAST_PART = 0.3
"""Of a row's time is spent on starting and ending things, however small its scale."""


def main(
    rows: Annotated[str, typer.Option(help="Names separated by commas; all when left out.")] = "",
    runs: Annotated[int, typer.Option(min=1, help="Of each row, in turn.")] = 3,
    scale: Annotated[float, typer.Option(min=0.001, max=10, help="Of counts and durations; 1 for the page.")] = 1.0,
    campaign: Annotated[int, typer.Option(help="Recipients of the large campaigns.")] = 100_000,
    cap: Annotated[int, typer.Option(help="The provider's rate in the row `cap`.")] = 1_500,
    peers: Annotated[
        Path | None, typer.Option(envvar="BENCH_PEERS", help="Folder of the other queues' run.sh.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The results on standard output.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Only name the rows.")] = False,
) -> None:
    """Measure Tidings beside its references."""
    narrator = Console(stderr=as_json)
    try:
        cases = run.chosen(rows)
        measured, failed = ([], {}) if show else _measure(narrator, cases, runs, scale, campaign, cap, peers)
    except NotMeasured as wrong:
        narrator.print(str(wrong), markup=False)
        raise typer.Exit(FAILED) from None
    if show:
        for case in cases:
            narrator.print(f"{case.name:10} {case.minutes:4.1f} min  {case.title}", highlight=False)
        return
    for result in measured:
        narrator.print(page.table(result))
    if as_json:
        print(json.dumps([asdict(result) for result in measured]))
    for name, why in failed.items():
        narrator.print(f"not measured: {name}: {why}", style="red", markup=False, highlight=False)
    sys.exit(FAILED if failed else 0)


def _measure(
    narrator: Console, cases: Sequence[Case], runs: int, scale: float, campaign: int, cap: int, peers: Path | None
) -> tuple[list[Result], dict[str, str]]:
    """(results, case -> why it was not measured). What is measured is written down at once."""
    begun_s, folder, newest = time.monotonic(), _empty_folder(), dict[str, Result]()
    kept_in = results.FOLDER if scale == 1 else folder / "results"
    with _progress(narrator) as shown, stack.running(folder, os.environ) as servers:
        task = shown.add_task("", total=len(cases) * runs)

        def say(text: str) -> None:
            shown.print(f"{time.monotonic() - begun_s:6.0f} s  {text}", highlight=False, markup=False)
            shown.refresh()

        def keep(result: Result) -> None:
            newest[result.case] = result
            results.write(kept_in, result)
            shown.advance(task)

        about = run.minutes(cases, runs, peers is not None) * min(1.0, scale + LEAST_PART)
        say(f"{len(cases)} rows, {runs} runs each: about {about:.0f} minutes")
        run.warn_if_busy(say)
        bench = Bench(servers, folder, say, scale, campaign, cap, peers)
        site.check_empty(servers.redis_url)
        failed = run.measure(bench, cases, runs, keep)
    if newest:
        written = PAGE if kept_in == results.FOLDER else kept_in / PAGE.name
        written.write_text(page.page(results.read_all(kept_in)))
        narrator.print(f"results: {kept_in}, page: {written}", highlight=False, markup=False)
    return list(newest.values()), failed


def _progress(narrator: Console) -> Progress:
    """Drawn only when something is told: what is measured must not be disturbed."""
    return Progress(
        TextColumn("        rows measured"), BarColumn(), MofNCompleteColumn(), console=narrator, auto_refresh=False
    )


def _empty_folder() -> Path:
    """`.tidings/bench`, without anything of an earlier run."""
    folder = places.home() / "bench"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    typer.run(main)
