"""What many runs came to, kept in the repository: counts by commit, and the seeds that once failed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.simulation.run import Result

RESULTS = Path(__file__).parent / "results.json"
SEEDS = Path(__file__).parent / "seeds.txt"


def keep(found: Sequence[Result]) -> None:
    """Adds them up; a seed that failed joins those that are run first from now on."""
    known: list[dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    known.append(_entry(found))
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    failed = {result.seed for result in found if result.broken} - set(failed_before())
    if failed:
        with SEEDS.open("a") as file:
            file.writelines(f"{seed}\n" for seed in sorted(failed))


def failed_before() -> list[int]:
    """Seeds that once broke a promise, oldest first; a line may say after the number what it was."""
    lines = SEEDS.read_text().splitlines() if SEEDS.exists() else []
    return [int(line.split()[0]) for line in lines if line and line[0].isdigit()]


def _entry(found: Sequence[Result]) -> dict[str, Any]:
    seeds = sorted(result.seed for result in found)
    return {
        "commit": _commit(),
        "first_seed": seeds[0],
        "last_seed": seeds[-1],
        "runs": len(found),
        "recipients": sum(result.recipients for result in found),
        "faults": sum(len(result.faults) for result in found),
        "calls": sum(result.calls for result in found),
        "broken": [result.seed for result in found if result.broken],
    }


def _commit() -> str:
    asked = ["git", "-C", str(RESULTS.parent), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
