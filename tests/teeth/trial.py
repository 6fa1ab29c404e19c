"""A test run in a copy of the tree, and what it said."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

from tests.teeth import scratch

LONGEST_S = 600
"""Every test has a time-out of its own; this ends a run that hangs outside of its test."""


class Ending(StrEnum):
    """How a test ended. BROKEN: in an error before or after what it tests, or not at all."""

    GREEN = "green"
    RED = "red"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Trial:
    """endings: by test. said: the first failure's last line. output: the end of what pytest printed."""

    endings: Mapping[str, Ending]
    said: str
    output: str
    seconds: float


def run(tree: Path, tests: Collection[str], servers: Mapping[str, str], longest_s: float = LONGEST_S) -> Trial:
    """Runs these tests (node ids) in this tree."""
    report = tree / "report.xml"
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--hypothesis-profile=teeth",
        f"--junitxml={report}",
        *tests,
    ]
    began_s = time.monotonic()
    try:
        ended = subprocess.run(
            words,
            cwd=tree,
            env=scratch.environment(tree, servers),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=longest_s,
            check=False,
        )
        output = ended.stdout
    except subprocess.TimeoutExpired:
        output = f"no end within {longest_s:g} s"
    seconds = time.monotonic() - began_s
    cases = _cases(report)
    endings = {test: _ending([case for case in cases if _is_of(case, test)]) for test in tests}
    said = next((_said(case) for case in cases if case.find("failure") is not None), "")
    return Trial(endings, said, "\n".join(output.splitlines()[-40:]), seconds)


def _cases(report: Path) -> list[ElementTree.Element]:
    """Every test case of a run; none when it did not get that far. The report is pytest's own."""
    return list(ElementTree.parse(report).iter("testcase")) if report.exists() else []


def _is_of(case: ElementTree.Element, test: str) -> bool:
    """Whether a case is this test, or one of its parameters."""
    path, *classes, name = test.split("::")
    place = ".".join([path.removesuffix(".py").replace("/", "."), *classes])
    named = case.get("name", "")
    return case.get("classname") == place and name in (named, named.partition("[")[0])


def _ending(cases: list[ElementTree.Element]) -> Ending:
    if any(case.find("failure") is not None for case in cases):
        return Ending.RED
    is_green = cases and not any(case.find(word) is not None for case in cases for word in ("error", "skipped"))
    return Ending.GREEN if is_green else Ending.BROKEN


def _said(case: ElementTree.Element) -> str:
    failure = case.find("failure")
    return "" if failure is None else (failure.get("message") or "").strip().partition("\n")[0][:200]
