"""The benchmarks' plumbing, at a size that says nothing about speed: it must run when somebody wants to know it."""

from __future__ import annotations

from pathlib import Path

from benchmarks import figures, guard_costs, page, results
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


async def test_each_guard_of_a_send_has_its_price_in_the_worker_and_in_redis(redis_url: str) -> None:
    in_worker, in_redis = await guard_costs.by_guard(database(redis_url, DATABASE), SMALLEST)
    assert in_worker.keys() == in_redis.keys() == {"claim", "settle", "look-alikes", "cap"}
    assert min(in_worker["claim"], in_worker["settle"], in_redis["settle"]) > 0
