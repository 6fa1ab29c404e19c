"""Cases in turn, run after run: every case once, then every case again, so that a drift of the machine meets all."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import uvloop

from benchmarks import figures, machine, results
from benchmarks.bench import Bench
from benchmarks.figures import Case
from benchmarks.programs import NotMeasured
from benchmarks.results import Result, Run

BUSY = 0.7
"""A load from which on somebody else is at work on the machine."""


def chosen(names: str) -> list[Case]:
    """The cases of these names, separated by commas; all for none. Raises NotMeasured for a name that is none."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = [case.name for case in figures.CASES]
    for name in wanted:
        if name not in known:
            raise NotMeasured(f"there is no row {name!r}; there are {', '.join(known)}")
    return [case for case in figures.CASES if not wanted or case.name in wanted]


def minutes(cases: Sequence[Case], runs: int, has_peers: bool) -> float:
    """About how long it takes in full."""
    return runs * sum(case.minutes + case.peers_minutes * has_peers for case in cases)


def measure(bench: Bench, cases: Sequence[Case], runs: int, keep: Callable[[Result], None]) -> dict[str, str]:
    """Case -> why it was not measured. keep: gets each case's result again after each of its runs."""
    described, commit = machine.described(bench.stack), machine.commit()
    found: defaultdict[str, list[Run]] = defaultdict(list)
    failed: dict[str, str] = {}
    for number in range(1, runs + 1):
        for case in cases:
            if case.name in failed:
                continue
            bench.say(f"run {number} of {runs}: {case.name}")
            try:
                found[case.name].append(_measured(bench, case))
            except Exception as error:  # an hour's other figures are not lost for it
                failed[case.name] = f"{type(error).__name__}: {error}"
                bench.say(f"{case.name} was not measured: {failed[case.name]}")
                continue
            made = tuple(found[case.name])
            keep(Result(case.name, results.now_text(), commit, bench.scale, described, made))
    return failed


def _measured(bench: Bench, case: Case) -> Run:
    """One run of a case, on a loop of its own."""
    load, begun_s = machine.load(), time.monotonic()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        outcome = runner.run(case.run(bench))
    return Run.of(outcome, time.monotonic() - begun_s, load)


def warn_if_busy(say: Callable[[str], None]) -> None:
    """The figures mean something on a machine that has nothing else to do."""
    if (load := machine.load()) > BUSY:
        say(f"the load of this machine is {load:.1f}: others are at work, the figures will be too low")
