"""The whole road: a campaign through `tidings up`, every role and report on, with the simulators as providers."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import suppress
from typing import Any

import aiohttp

from benchmarks import claims_seen, client, load, log, site
from benchmarks.bench import Bench, Outcome
from benchmarks.cases import sender
from benchmarks.cases.status import SIZES
from benchmarks.measuring import Span
from benchmarks.site import Outside, Site
from deploy import cost
from deploy.local import places
from schemas import codec
from schemas.messages import StatusBatch

PER_S = 20_000
CAMPAIGN = "whole"
FAULTS = '{"answer_ms": 10}'
LOOK_S = 0.1
WARM_SHARE = 0.1
STILL_S = 120.0
SERVERS = ("kafka", "redis", "simulate")
"""Not Tidings' own processes."""


async def run(bench: Bench) -> Outcome:
    """Deliveries a second, CPU and memory by process, and what a claim takes in Redis."""
    count, port = bench.size(bench.campaign), places.free_port()
    outside = Outside(push=f"http://127.0.0.1:{port}/send", per_s=PER_S)
    async with site.opened(bench, outside) as here:
        async with here.running("simulate", "--faults", FAULTS, "--smtp-port", "0") as world, here.running("up"):
            stored = await load.store_people(here, count)
            bench.say(f"a campaign of {count:,}, the whole road")
            span, begun_s = Span(here.roles_meter(simulate=world.pid)), time.monotonic()
            await client.start_campaign(here, CAMPAIGN, count, stored)
            accepted_s = time.monotonic() - begun_s
            seen = await _until_arrived(f"http://127.0.0.1:{port}/ledger", count)
            told = await client.until_finished(here, CAMPAIGN)
            finished_s = time.monotonic() - begun_s
            await _until_reported(here, count)
            spent = span.end(count)
            peaks = {name: cost.peak_mb(pid) for name, pid in here.roles_meter(simulate=world.pid).pids.items()}
            bench.seen[SIZES] = sizes = await asyncio.to_thread(_batch_sizes, here)
        claim_bytes = await asyncio.to_thread(claims_seen.bytes_each, here.redis_url)
    values = {
        "per_s": _rate(seen, count),
        "end_to_end_per_s": count / finished_s,
        "cpu_us": sum(spent.cpu_us.values()),
        "largest_mb": max(peak for name, peak in peaks.items() if name not in SERVERS),
        "claim_bytes": claim_bytes,
        "wrong_counts": float(abs(sum(told["outcomes"].values()) - count)),
    }
    notes = {
        "CPU us a delivery": sender.rounded(spent.cpu_us),
        "limit": spent.limit(),
        "peak MB": sender.rounded(peaks),
        "seconds to the 202": round(accepted_s, 1),
        "seconds to the last outcome": round(finished_s, 1),
        "status": told["status"],
        "events a batch": sizes,
    }
    return Outcome(values, notes)


async def _until_arrived(ledger: str, count: int) -> list[tuple[float, int]]:
    """(time, people who have it) again and again, until all have it."""
    seen: list[tuple[float, int]] = []
    async with aiohttp.ClientSession() as session:
        while not seen or seen[-1][1] < count:
            async with session.get(ledger) as answer:
                seen.append((time.monotonic(), (await answer.json())["distinct_keys"]))
            long_ago = next((arrived for at_s, arrived in seen if at_s > seen[-1][0] - STILL_S), 0)
            if seen[-1][0] - seen[0][0] > STILL_S and long_ago == seen[-1][1]:
                break  # the campaign's own end says what is wrong
            await asyncio.sleep(LOOK_S)
    return seen


async def _until_reported(here: Site, count: int) -> None:
    """Until the provider's reports are counted as well; they are part of the road's cost."""
    with suppress(TimeoutError):
        async with asyncio.timeout(STILL_S):
            told = await client.campaign(here, CAMPAIGN)
            while told["progress"]["delivered"] < count:
                await asyncio.sleep(client.LOOK_S)
                told = await client.campaign(here, CAMPAIGN)


def _rate(seen: list[tuple[float, int]], count: int) -> float:
    """Between the first tenth and the last."""
    first = next(sample for sample in seen if sample[1] >= count * WARM_SHARE)
    last = seen[-1]
    return (last[1] - first[1]) / max(last[0] - first[0], LOOK_S)


def _batch_sizes(here: Site) -> dict[str, float]:
    """Events a record of `delivery.status`, by their kind."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    watch = log.Watch(here.kafka)
    try:
        for raw in watch.records(here.topics.status):
            batch: Any = codec.decode(raw, StatusBatch)
            found[batch.events[0].kind].append(len(batch.events))
    finally:
        watch.close()
    return {str(kind): round(sum(sizes) / len(sizes), 1) for kind, sizes in found.items()}
