"""Runs many seeds, repeats some, or shows that a planted fault is found.

python -m tests.simulation --runs 200 --first-seed 1      many, on all cores; --json for a machine
python -m tests.simulation --seed 7                       one, with what went wrong in it; or several
python -m tests.simulation --mutate claim                 until a checker finds the planted fault
python -m tests.simulation --runs 1000 --keep             adds up in results.json, and keeps seeds that failed
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial

from tests.simulation import results
from tests.simulation.mutants import MUTANTS
from tests.simulation.run import Result, run

SEEDS_AT_ONCE = 5
COLLECTED_EVERY = 10
"""Runs whose garbage is left lying: looking for it all the time costs a tenth of everything."""


def main() -> None:
    """Exits with 1 when a promise was broken; with --mutate, when none was."""
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], _with_hash_seed())
    if options.seed:
        found = [one_seed(seed, options.mutate) for seed in options.seed]
    else:
        found = list(_shown(_many(options), options))
    _report(found, options)
    is_broken = any(result.broken for result in found)
    sys.exit(is_broken != bool(options.mutate))


def one_seed(seed: int, mutant: str | None = None) -> Result:
    """One run, quietly. mutant: the fault planted in the product."""
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        with MUTANTS[mutant]() if mutant else nullcontext():
            return run(seed)
    finally:
        logging.disable(logging.NOTSET)
        if not seed % COLLECTED_EVERY:
            gc.collect()
        gc.enable()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="seeded runs of the whole road")
    parser.add_argument("--runs", type=int, default=100, help="how many seeds (100)")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--seed", type=int, nargs="+", help="repeats these")
    parser.add_argument("--mutate", choices=MUTANTS, help="plants a fault, and runs until it is found")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (one a core)")
    parser.add_argument("--keep", action="store_true", help="adds the runs to results.json")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _with_hash_seed() -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "0"}


def _many(options: argparse.Namespace) -> Iterator[Result]:
    seeds = range(options.first_seed, options.first_seed + options.runs)
    work = partial(one_seed, mutant=options.mutate)
    if options.jobs < 2 or options.mutate:
        yield from map(work, seeds)
        return
    with ProcessPoolExecutor(options.jobs, initializer=gc.freeze) as pool:
        yield from pool.map(work, seeds, chunksize=SEEDS_AT_ONCE)


def _shown(found: Iterator[Result], options: argparse.Namespace) -> Iterator[Result]:
    """Says at once what was broken; a planted fault needs finding once."""
    for result in found:
        if result.broken and not options.json:
            print(f"seed {result.seed}: {result.broken[0]}", flush=True)
        yield result
        if result.broken and options.mutate:
            return


def _report(found: list[Result], options: argparse.Namespace) -> None:
    broken = [result for result in found if result.broken]
    if options.keep:
        results.keep(found)
    if options.json:
        print(json.dumps([result.told() for result in found], indent=1))
        return
    if options.seed:
        for result in found:
            _tell_one(result)
    calls = sum(result.calls for result in found)
    print(f"{len(found)} runs, {len(broken)} broken, {calls} calls, {time.process_time():.1f} s of this process")
    for result in broken[:10]:
        print(f"  again: python -m tests.simulation --seed {result.seed}")


def _tell_one(result: Result) -> None:
    for window in result.faults:
        print(f"  {window.began_s:6.2f} - {window.ended_s:6.2f} s  {window.struck.text}")
    print(f"  {result.took_s:.0f} s, {result.recipients} recipients, {result.calls} calls, trace {result.trace}")
    for text in result.broken:
        print(f"  BROKEN {text}")


if __name__ == "__main__":
    main()
