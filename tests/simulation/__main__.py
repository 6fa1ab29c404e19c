"""`python -m tests.simulation --runs 200 --first-seed 1 [--seed 7] [--json]`."""

from __future__ import annotations

import argparse
import contextlib
import logging
import time

from tests.simulation.mutants import MUTANTS
from tests.simulation.run import run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mutate", choices=MUTANTS)
    parser.add_argument("--stop", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    seeds = [options.seed] if options.seed is not None else range(options.first_seed, options.first_seed + options.runs)
    began = time.process_time()
    bad = ran = 0
    with MUTANTS[options.mutate]() if options.mutate else contextlib.nullcontext():
        for seed in seeds:
            result = run(seed)
            ran += 1
            if options.seed is not None:
                for at_s, text in result.faults:
                    print(f"  {at_s:6.1f} {text}")
            if result.broken or options.seed is not None:
                bad += 1
                print(
                    seed,
                    f"{result.took_s:.0f}",
                    result.calls,
                    result.trace,
                    len(result.broken),
                    *result.broken[:4],
                    sep="\n  " if options.seed is not None else " | ",
                    flush=True,
                )
                if options.stop:
                    break
    print(options.mutate, "bad", bad, "of", ran, (time.process_time() - began) / ran, flush=True)


main()
