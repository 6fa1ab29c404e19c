"""What is counted call by call and told once a batch is in the metrics as if each had been told by itself."""

from __future__ import annotations

import random

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest

from consumers.tally import Tally


def numbers(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#") and "_created" not in line]


def test_a_batch_told_together_shows_what_each_told_alone_shows() -> None:
    alone, together, tally, rng = CollectorRegistry(), CollectorRegistry(), Tally(), random.Random(3)
    counters = [Counter("calls", "x", ["by"], registry=one).labels("a") for one in (alone, together)]
    seen = [
        Histogram("seconds", "x", ["by"], buckets=(0.5, 1, 2), registry=one).labels("a") for one in (alone, together)
    ]
    for _ in range(2):
        for amount in (0.0, 0.5, 1.0, 2.0, 7.0, *(rng.randrange(16) / 4 for _ in range(50))):
            counters[0].inc()
            seen[0].observe(amount)
            tally.count(counters[1])
            tally.observe(seen[1], amount)
        tally.tell()
        assert numbers(together) == numbers(alone)
    tally.tell()
    assert numbers(together) == numbers(alone)
