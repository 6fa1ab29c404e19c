"""The whole sender with a provider that costs nothing: what Tidings itself takes for a delivery."""

from __future__ import annotations

from benchmarks import measuring, programs, provider
from benchmarks.bench import Bench, Outcome
from benchmarks.cases import sender
from deploy.local import places
from schemas.messages import Channel

LANE = "push.bulk"


async def run(bench: Bench) -> Outcome:
    """Deliveries a second of CPU of the worker, librdkafka's threads in it included."""
    count, port = bench.size(sender.COUNT), places.free_port()
    bench.say(f"{count:,} sends to a provider that costs nothing")
    async with sender.filled(bench, Channel.PUSH, count) as (here, _):
        words = ("benchmarks.null_sender", LANE, str(port), str(here.config))
        async with (
            programs.running("null_sender", words, here.folder) as worker,
            provider.asked("nothing", worker.pid, port) as nothing,
        ):
            meter = here.meter(work=worker.pid)
            spent = await measuring.between(nothing, round(count * sender.WARM_SHARE), count, meter)
    values = {"per_core_s": 1e6 / spent.cpu_us["work"], "per_s": spent.per_s}
    return Outcome(values, {"CPU us a delivery": sender.rounded(spent.cpu_us), "limit": spent.limit()})
