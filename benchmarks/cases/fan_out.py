"""Pages of a campaign to deliveries, by the real process; people are stored, so their profiles are read."""

from __future__ import annotations

from benchmarks import load, log, site
from benchmarks.bench import Bench, Outcome
from benchmarks.cases import sender
from benchmarks.measuring import Span
from benchmarks.site import Outside, Site
from schemas.messages import Channel, Priority

COUNT = 200_000
WARM = 10_000
WITHIN_S = 300


async def run(bench: Bench) -> Outcome:
    """Deliveries a second of CPU of the process, the log's threads in it included."""
    count, warm = bench.size(COUNT), bench.size(WARM)
    bench.say(f"{count:,} recipients fanned out")
    async with site.opened(bench, Outside()) as here, here.running("route", "recipients"):
        people = await load.store_people(here, count)
        async with here.running("streams", "fan_out") as process:
            watch = log.Watch(here.kafka)
            try:
                done = await _campaigns(here, watch, "warm", min(warm, people), people, 0)
                span = Span(here.meter(fan_out=process.pid))
                done_after = await _campaigns(here, watch, "bench", count, people, done)
                spent = span.end(done_after - done)
            finally:
                watch.close()
    values = {"per_core_s": 1e6 / spent.cpu_us["fan_out"], "per_s": spent.per_s}
    return Outcome(values, {"CPU us a delivery": sender.rounded(spent.cpu_us), "limit": spent.limit()})


async def _campaigns(here: Site, watch: log.Watch, name: str, count: int, people: int, before: int) -> int:
    """Campaigns of everybody, one after the other, until `count` deliveries are in the lane; how many are there."""
    lane = here.topics.lane(Channel.PUSH, Priority.BULK)
    for number, first in enumerate(range(0, count, people)):
        await log.fill(here.kafka, load.pages(here, f"{name}-{number}", min(people, count - first), people))
    await log.until(lambda: watch.ends(lane) >= before + count, "every delivery is in the lane", WITHIN_S)
    return watch.ends(lane)
