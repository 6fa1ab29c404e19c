"""Seeded runs of the whole road: no promise is broken, a seed repeats itself, and a planted fault is found."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.simulation import results
from tests.simulation.__main__ import one_seed
from tests.simulation.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
RUNS, LONG_RUNS = 40, 1_000
"""The same seeds each time: a red run is the change's, not chance's. `make simulate-faults FIRST=` goes further."""
FOUND_WITHIN = 200


@pytest.mark.timeout(600)
def test_no_promise_is_broken_whatever_goes_wrong() -> None:
    """Seeds that once failed come first."""
    _all_kept([*results.failed_before(), *range(1, RUNS + 1)])


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_no_promise_is_broken_in_a_thousand_runs() -> None:
    _all_kept([*range(RUNS + 1, RUNS + LONG_RUNS + 1)])


def test_a_run_has_the_size_that_its_results_speak_of() -> None:
    result = one_seed(1)
    assert result.recipients >= 200
    assert len(result.faults) >= 5


def test_a_seed_always_gives_the_same_run() -> None:
    """Also in another process, or a seed that failed could not be looked at again."""
    first, again, elsewhere = one_seed(5), one_seed(5), _elsewhere(5)
    assert first.trace == again.trace
    assert elsewhere == _elsewhere(5)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_fault_planted_in_a_mechanism_is_found(mutant: str) -> None:
    assert any(one_seed(seed, mutant).broken for seed in range(1, FOUND_WITHIN + 1))


def _all_kept(seeds: list[int]) -> None:
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), initializer=gc.freeze) as pool:
        found = list(pool.map(one_seed, seeds, chunksize=5))
    broken = [
        f"python -m tests.simulation --seed {result.seed}: {result.broken[0]}" for result in found if result.broken
    ]
    assert not broken, "\n".join(broken)


def _elsewhere(seed: int) -> Any:
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--json"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(told.stdout)
