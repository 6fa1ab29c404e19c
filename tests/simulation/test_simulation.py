"""Seeded runs of the whole road: no promise is broken, a seed repeats itself, and a planted fault is found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.simulation import results
from tests.simulation.__main__ import one_seed
from tests.simulation.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
RUNS, LONG_RUNS = 200, 1_000
"""The same seeds each time: a red run is the change's, not chance's. `make simulate-faults FIRST=` goes further."""
AT_ONCE = 50
"""Runs of one test: several processes of pytest share them."""
FOUND_WITHIN = 200


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1, RUNS + 1, AT_ONCE))
def test_no_promise_is_broken_whatever_goes_wrong(first: int) -> None:
    _all_kept("--seed", *map(str, range(first, first + AT_ONCE)))


def test_no_promise_is_broken_where_one_once_was() -> None:
    _all_kept("--seed", *map(str, results.failed_before()))


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_no_promise_is_broken_in_a_thousand_runs() -> None:
    _all_kept("--first-seed", str(RUNS + 1), "--runs", str(LONG_RUNS))


def test_a_run_has_the_size_that_its_results_speak_of() -> None:
    result = one_seed(1)
    assert result.recipients >= 200
    assert len(result.faults) >= 5


def test_a_seed_always_gives_the_same_run() -> None:
    """Also in another process, or a seed that failed could not be looked at again."""
    first, again, elsewhere = one_seed(5), one_seed(5), _elsewhere("--seed", "5")
    assert first.trace == again.trace
    assert elsewhere == _elsewhere("--seed", "5")


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_fault_planted_in_a_mechanism_is_found(mutant: str) -> None:
    assert any(one_seed(seed, mutant).broken for seed in range(1, FOUND_WITHIN + 1))


def _all_kept(*which: str) -> None:
    broken = [
        f"python -m tests.simulation --seed {result['seed']}: {result['broken'][0]}"
        for result in _elsewhere(*which)
        if result["broken"]
    ]
    assert not broken, "\n".join(broken)


def _elsewhere(*which: str) -> Any:
    """In a process of its own, whose sets have the order that every repetition finds."""
    command = [sys.executable, "-m", "tests.simulation", *which, "--json"]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    return json.loads(told.stdout)
