"""The size of things: a file is a story one can read, a function a step one can see at once."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("schemas", "retry_topics", "producers", "streams", "consumers", "deploy", "tests", "benchmarks")
FILE_MAX = 600
FUNCTION_MAX = 60
FUNCTION_P90 = 30
FUNCTION_MEDIAN = 12


def source_files() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def functions(path: Path) -> Iterator[tuple[int, str]]:
    """(lines, name) of every function, signature and docstring included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.name}"


def test_no_file_is_too_long_to_read() -> None:
    lengths = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in source_files()}
    assert {name: lines for name, lines in lengths.items() if lines > FILE_MAX} == {}


def test_functions_stay_small() -> None:
    sized = [sized for path in source_files() for sized in functions(path)]
    lengths = sorted(lines for lines, _ in sized)
    assert [named for named in sized if named[0] > FUNCTION_MAX] == []
    assert lengths[int(len(lengths) * 0.9)] <= FUNCTION_P90
    assert statistics.median(lengths) <= FUNCTION_MEDIAN
