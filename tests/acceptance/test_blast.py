"""A small blast from the command line: its report adds up, and says what the ledger says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

from deploy.blast import place
from deploy.local import places

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_200)]

RECIPIENTS, RATE, WITHIN_S = 20_000, 2_000, 1_000
ON_ANY_MACHINE = (
    "calls in the provider's fullest second",
    "counts of campaign large, off by",
    "counts of campaign small, off by",
    "lost",
    "login codes whose status says something else than sent",
    "repeats",
)
"""What a busy machine is no excuse for."""


class Blast(NamedTuple):
    code: int
    report: dict[str, Any]
    picture: ElementTree.Element

    def judged(self) -> dict[str, dict[str, Any]]:
        return {one["name"]: one for one in self.report["judgements"]}


def blast(folder: Path, *options: str) -> Blast:
    """The command, as a person gives it; what it printed and drew."""
    picture = folder / "blast.svg"
    words = ("blast", "--recipients", str(RECIPIENTS), "--rate", str(RATE), "--json", "--plot", str(picture), *options)
    command = [sys.executable, "-m", "deploy.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.stdout, done.stderr
    return Blast(done.returncode, json.loads(done.stdout), ElementTree.parse(picture).getroot())


def test_the_report_of_a_blast_adds_up(tmp_path: Path) -> None:
    found = blast(tmp_path)
    report, judged = found.report, found.judged()
    assert {name: judged[name]["holds"] for name in ON_ANY_MACHINE} == dict.fromkeys(ON_ANY_MACHINE, True)
    assert (found.code == 0) == report["holds"] == all(one["holds"] is not False for one in judged.values())
    large = report["campaigns"]["large"]
    assert sum(large["outcomes"].values()) == large["expected"] == large["progress"]["sent"] == RECIPIENTS
    figures = report["figures"]
    mean = RECIPIENTS / figures["seconds from its first send to its last"]
    assert figures["sends a second, on average"] == pytest.approx(mean, rel=0.02)
    assert figures["cores used, everything together"] == pytest.approx(sum(report["cores_used"].values()), abs=0.1)
    assert judged["the largest Tidings process, MB"]["figure"] == pytest.approx(max(report["peaks_mb"].values()), abs=1)
    assert {"api", "streams-status", "work-push.bulk", "up"} <= set(report["peaks_mb"])
    assert len(found.picture.findall("{*}polyline")) == 5
    assert not any((places.home() / place.NAME / data).exists() for data in place.DATA)


def test_nothing_is_lost_when_every_kind_of_process_is_killed(tmp_path: Path) -> None:
    found = blast(tmp_path, "--kill", "--seed", "5")
    report, judged = found.report, found.judged()
    promised = (*ON_ANY_MACHINE, "kinds of process killed once")
    assert {name: judged[name]["holds"] for name in promised} == dict.fromkeys(promised, True)
    assert {kill["role"] for kill in report["kills"]} >= {"api", "dispatch", "streams-status", "work-push.bulk"}
    assert [kill["role"] for kill in report["kills"] if kill["disk"]] == ["streams-status"]
    assert all(kill["back_after_s"] is not None for kill in report["kills"])
    drawn = [element.text for element in found.picture.findall("{*}text")]
    assert {kill["role"] for kill in report["kills"]} <= set(drawn)
