"""Pages of a campaign to deliveries, by the real process; people are stored, so their profiles are read."""

from __future__ import annotations

import contextlib
import json
import os
import signal

from benchmarks import load, log, measuring, programs, site
from benchmarks.bench import Bench, Outcome
from benchmarks.cases import sender
from benchmarks.measuring import Span
from benchmarks.site import Outside, Site
from deploy import cost
from schemas.messages import Channel, Priority

COUNT = 200_000
SAMPLED = 100_000
WARM = 10_000
WITHIN_S = 300
FUNCTIONS = 15


async def run(bench: Bench) -> Outcome:
    """Deliveries a second of CPU of the process, the log's threads in it included; and where its main thread is."""
    count, warm = bench.size(COUNT), bench.size(WARM)
    bench.say(f"{count:,} recipients fanned out")
    async with site.opened(bench, Outside()) as here, here.running("route", "recipients"):
        people = await load.store_people(here, count)
        with contextlib.closing(log.Watch(here.kafka)) as watch:
            async with here.running("streams", "fan_out") as process:
                done = await _campaigns(here, watch, "warm", min(warm, people), people, 0)
                span = Span(here.meter(fan_out=process.pid))
                done_after = await _campaigns(here, watch, "bench", count, people, done)
                spent = span.end(done_after - done)
            functions = await _functions(bench, here, watch, people, done_after)
    values = {"per_core_s": 1e6 / spent.cpu_us["fan_out"], "per_s": spent.per_s}
    notes = {"CPU us a delivery": sender.rounded(spent.cpu_us), "innermost functions": functions}
    return Outcome(values, {**notes, "limit": spent.limit()})


async def _functions(bench: Bench, here: Site, watch: log.Watch, people: int, done: int) -> dict[str, float]:
    """CPU us a delivery by innermost function of the main thread, of another process with a sampler in it."""
    count, warm, result = bench.size(SAMPLED), bench.size(WARM), bench.folder / "fan-out-profile.json"
    bench.say(f"{count:,} more with a sampler beside them")
    words = ("benchmarks.profiled", str(result), "streams", "fan_out", "--config", str(here.config))
    async with programs.running("profiled", words, here.folder) as process:
        begun = await _campaigns(here, watch, "again", min(warm, people), people, done)
        os.kill(process.pid, signal.SIGUSR1)
        before = cost.threads_s(process.pid)["main"]
        ended = await _campaigns(here, watch, "sampled", count, people, begun)
        os.kill(process.pid, signal.SIGUSR1)
        used_us = (cost.threads_s(process.pid)["main"] - before) / (ended - begun) * 1e6
    seen = json.loads(result.read_text())
    total = max(1, sum(seen["parts"].values()))
    shares = {name: used_us * samples / total for name, samples in seen["functions"].items()}
    return {name: round(share_us, 1) for name, share_us in list(measuring.by_size(shares))[:FUNCTIONS]}


async def _campaigns(here: Site, watch: log.Watch, name: str, count: int, people: int, before: int) -> int:
    """Campaigns of everybody, one after the other, until `count` deliveries are in the lane; how many are there."""
    lane = here.topics.lane(Channel.PUSH, Priority.BULK)
    for number, first in enumerate(range(0, count, people)):
        await log.fill(here.kafka, load.pages(here, f"{name}-{number}", min(people, count - first), people))
    await log.until(lambda: watch.ends(lane) >= before + count, "every delivery is in the lane", WITHIN_S)
    return watch.ends(lane)
