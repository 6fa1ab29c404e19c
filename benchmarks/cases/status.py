"""Status events to rows, public state and counts, by the real process, in batches as a real campaign makes them."""

from __future__ import annotations

from benchmarks import load, log, site
from benchmarks.bench import Bench, Outcome
from benchmarks.cases import sender
from benchmarks.measuring import Span
from benchmarks.site import Outside, Site

COUNT = 100_000
WARM = 5_000
WITHIN_S = 300
SIZES = "status batch sizes"
USUAL_SIZES = {"planned": 125.0, "sent": 40.0, "delivered": 20.0}
"""Events a record in a campaign of 100,000 at some thousand a second; the campaign case measures them anew."""


async def run(bench: Bench) -> Outcome:
    """Each recipient is planned, sent and delivered: three transitions."""
    count, warm = bench.size(COUNT), bench.size(WARM)
    sizes: dict[str, float] = bench.seen.get(SIZES, USUAL_SIZES)
    bench.say(f"{count * 3:,} transitions to rows")
    async with site.opened(bench, Outside()) as here, here.running("streams", "status") as process:
        progress = log.Progress(here.kafka, here.topics.progress)
        watch = log.Watch(here.kafka)
        try:
            await _campaign(here, progress, "warm", warm, sizes)
            told_before = watch.ends(here.topics.state)
            span = Span(here.meter(status=process.pid))
            await _campaign(here, progress, "bench", count, sizes)
            spent = span.end(count * len(load.STEPS))
            told = watch.ends(here.topics.state) - told_before
        finally:
            progress.close()
            watch.close()
    values = {"per_core_s": 1e6 / spent.cpu_us["status"], "per_s": spent.per_s}
    notes = {
        "CPU us a transition": sender.rounded(spent.cpu_us),
        "limit": spent.limit(),
        "events a batch": sizes,
        "public records a recipient": round(told / count, 2),
    }
    return Outcome(values, notes)


async def _campaign(here: Site, progress: log.Progress, name: str, count: int, sizes: dict[str, float]) -> None:
    """Until its counts say that everybody got it."""
    await log.fill(here.kafka, load.transitions(here, name, count, sizes))
    await log.until(lambda: progress.delivered(name) >= count, f"{count} are told delivered", WITHIN_S)
