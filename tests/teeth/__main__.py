"""`python -m tests.teeth`: breaks one promise after the other in scratch copies and looks whether its test notices."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from deploy.local import stack
from tests.teeth import catalogue, scratch, trial
from tests.teeth.patch import NoLongerApplies, Patch
from tests.teeth.trial import Ending

out = Console(stderr=True, highlight=False)
WIDE = 160
"""Columns where there is no terminal that says how many it has."""


class Result(StrEnum):
    """CAUGHT is the only good one."""

    CAUGHT = "caught"
    NOT_CAUGHT = "NOT CAUGHT"
    MOVED = "no longer applies"
    NOT_GREEN = "red without it"
    BROKEN = "did not run"


@dataclass(frozen=True, slots=True)
class Bite:
    """What came of a patch. said: the test's words, or why there was no proper run."""

    patch: Patch
    result: Result
    seconds: float = 0.0
    said: str = ""


def main(
    only: Annotated[
        list[str] | None, typer.Option(help="Part of a patch's name or file; may be given several times.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Applies each patch to a scratch copy of the tree; the test named for it must turn red. Ends with 1 otherwise."""
    chosen = _chosen(only or [])
    with (
        tempfile.TemporaryDirectory(prefix="tidings-stack-") as folder,
        stack.running(Path(folder), os.environ) as servers,
        scratch.first_copy() as tree,
    ):
        scratch.check_that_copies_are_run(tree)
        bites = list(_tried(chosen, tree, servers.environment()))
    if as_json:
        print(json.dumps([_told(bite) for bite in bites], indent=1))
    else:
        Console(width=None if sys.stdout.isatty() else WIDE).print(_table(bites))
    raise typer.Exit(any(bite.result is not Result.CAUGHT for bite in bites))


def _chosen(only: Sequence[str]) -> list[Patch]:
    """The patches whose name or file holds one of these texts; all of them when there is none."""
    chosen = [
        patch
        for patch in catalogue.PATCHES
        if not only or any(text in patch.name or text in patch.file for text in only)
    ]
    if not chosen:
        raise typer.BadParameter("no patch's name or file holds this")
    return chosen


def _tried(chosen: Sequence[Patch], tree: Path, servers: Mapping[str, str]) -> Iterator[Bite]:
    """Each patch with its test. Tests that need no server run beside those that share one."""
    halves = [[patch for patch in chosen if patch.needs_servers is needed] for needed in (False, True)]
    pools = [ThreadPoolExecutor(1) for _ in halves]
    try:
        before = [pool.submit(_unbroken, half, tree, servers) for pool, half in zip(pools, halves, strict=True)]
        bites = [
            pools[patch.needs_servers].submit(_bite, patch, tree, servers, before[patch.needs_servers])
            for patch in chosen
        ]
        yield from (bite.result() for bite in bites)
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


def _unbroken(patches: Sequence[Patch], tree: Path, servers: Mapping[str, str]) -> Mapping[str, Ending]:
    """How these tests end without any patch: green, or they can say nothing."""
    tests = list(dict.fromkeys(patch.test for patch in patches))
    if not tests:
        return {}
    out.print(f"{len(tests)} tests in the tree as it is ...")
    with scratch.copy_of(tree) as whole:
        tried = trial.run(whole, tests, servers, trial.LONGEST_S * 2)
    if not_green := [test for test, ending in tried.endings.items() if ending is not Ending.GREEN]:
        out.print(tried.output, "not green without any patch:", *not_green, sep="\n", markup=False, soft_wrap=True)
    return tried.endings


def _bite(patch: Patch, tree: Path, servers: Mapping[str, str], before: Future[Mapping[str, Ending]]) -> Bite:
    bite = (
        _broken(patch, tree, servers) if before.result()[patch.test] is Ending.GREEN else Bite(patch, Result.NOT_GREEN)
    )
    out.print(f"{bite.result.value:18} {bite.seconds:5.1f} s  {patch.name}", markup=False, soft_wrap=True)
    return bite


def _broken(patch: Patch, tree: Path, servers: Mapping[str, str]) -> Bite:
    """The patch in a copy of its own."""
    with scratch.copy_of(tree) as broken:
        try:
            patch.apply(broken)
        except NoLongerApplies as moved:
            return Bite(patch, Result.MOVED, said=str(moved))
        tried = trial.run(broken, [patch.test], servers)
    results = {Ending.RED: Result.CAUGHT, Ending.GREEN: Result.NOT_CAUGHT, Ending.BROKEN: Result.BROKEN}
    result = results[tried.endings[patch.test]]
    if result is Result.BROKEN:
        out.print(tried.output, markup=False, soft_wrap=True)
    return Bite(patch, result, tried.seconds, tried.said)


def _told(bite: Bite) -> dict[str, object]:
    return {**asdict(bite.patch), "result": bite.result.value, "seconds": round(bite.seconds, 1), "said": bite.said}


def _table(bites: Sequence[Bite]) -> Table:
    caught = sum(bite.result is Result.CAUGHT for bite in bites)
    table = Table(title=f"{caught} of {len(bites)} patches caught")
    for column in ("#", "a Tidings that ...", "must fail", "result", "s"):
        table.add_column(column, overflow="fold", justify="right" if column in "#s" else "left")
    for bite in bites:
        colour = "green" if bite.result is Result.CAUGHT else "bold red"
        path, _, test = bite.patch.test.partition("::")
        where = f"{test.removeprefix('test_')} [dim]{path}[/dim]"
        result = f"[{colour}]{bite.result.value}[/{colour}]"
        table.add_row(str(bite.patch.promise), bite.patch.name, where, result, f"{bite.seconds:.1f}")
    return table


if __name__ == "__main__":
    typer.run(main)
