"""The raw results, one JSON file a case: every run, what it ran on, when, and at which commit."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.bench import Outcome
from benchmarks.figures import Figure

FOLDER = Path(__file__).with_name("results")


@dataclass(frozen=True, slots=True)
class Run:
    """load_before: of the machine, before it; above some tenths others were at work as well."""

    values: dict[str, float]
    notes: dict[str, Any]
    took_s: float
    load_before: float

    @classmethod
    def of(cls, outcome: Outcome, took_s: float, load_before: float) -> Run:
        return cls(outcome.values, outcome.notes, round(took_s, 1), round(load_before, 2))


@dataclass(frozen=True, slots=True)
class Result:
    """One case, measured some times."""

    case: str
    at: str
    commit: str
    scale: float
    machine: dict[str, str]
    runs: tuple[Run, ...]

    def spread(self, value: str) -> tuple[float, float, float] | None:
        """(median, least, most) over the runs; None when no run has it."""
        found = [run.values[value] for run in self.runs if value in run.values]
        return (statistics.median(found), min(found), max(found)) if found else None

    def typical(self, figures: list[Figure]) -> Run:
        """The run in the middle, by the first figure."""
        ordered = sorted(self.runs, key=lambda run: run.values.get(figures[0].value, 0.0))
        return ordered[len(ordered) // 2]


def now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def write(folder: Path, result: Result) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.case}.json"
    path.write_text(json.dumps(asdict(result), indent=1) + "\n")
    return path


def read_all(folder: Path) -> list[Result]:
    """Everything that lies there, in no particular order."""
    return [_read(path) for path in sorted(folder.glob("*.json"))]


def _read(path: Path) -> Result:
    found = json.loads(path.read_text())
    return Result(**{**found, "runs": tuple(Run(**run) for run in found["runs"])})
