"""The benchmarks' plumbing, at a size that says nothing about speed: it must run when somebody wants to know it."""

from __future__ import annotations

from pathlib import Path

from benchmarks import figures, page, results
from benchmarks.bench import SMALLEST, Bench
from benchmarks.cases import sender
from benchmarks.results import Result, Run
from deploy.local.stack import Stack
from tests.acceptance.deployment import database

DATABASE = 11
"""Emptied by the bench; no other test uses it."""
RATES = ("per_s", "bare_per_s", "of_bare")


async def test_a_small_bench_fills_its_row_beside_the_bare_loop_and_says_which_peers_are_away(
    kafka_bootstrap: str, redis_url: str, tmp_path: Path
) -> None:
    said: list[str] = []
    bench = Bench(Stack(kafka_bootstrap, database(redis_url, DATABASE)), tmp_path, said.append, scale=0.001)
    outcome = await sender.http(bench)
    assert all(outcome.values[name] > 0 for name in RATES), outcome
    assert {"work", "provider"} <= outcome.notes["CPU us a delivery"].keys()
    assert said[0].startswith(f"{SMALLEST} sends")
    result = Result("sender", results.now_text(), "abc1234", 0.001, {"cores": "2"}, (Run.of(outcome, 1.0, 0.0),))
    results.write(tmp_path / "results", result)
    text = page.page(results.read_all(tmp_path / "results"))
    assert figures.of("sender")[0].what in text
    assert "BullMQ: not present" in text
