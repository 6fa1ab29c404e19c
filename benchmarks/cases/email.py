"""Mail by SMTP through the whole sender: connections kept, commands pipelined."""

from __future__ import annotations

from benchmarks import measuring, peers
from benchmarks.bench import Bench, Outcome
from benchmarks.cases import sender
from schemas.messages import Channel

COUNT = 50_000
PEER = "bullmq-1/mail"


async def run(bench: Bench) -> Outcome:
    """Ours, then BullMQ with nodemailer."""
    count = bench.size(COUNT)
    bench.say(f"{count:,} mails through `tidings work`")
    async with (
        sender.filled(bench, Channel.EMAIL, count) as (here, outside),
        here.running("work", "email.bulk") as worker,
    ):
        meter = here.meter(work=worker.pid, provider=outside.pid)
        spent = await measuring.between(outside, round(count * sender.WARM_SHARE), count, meter)
    notes = {"CPU us a delivery": sender.rounded(spent.cpu_us), "limit": spent.limit()}
    outcome = Outcome({"per_s": spent.per_s, "per_core_s": 1e6 / spent.cpu_us["work"]}, notes)
    found = await peers.measured(bench, PEER)
    if "rate" in found:
        outcome.values["bullmq_per_s"] = found["rate"]
    else:
        outcome.notes["bullmq not present"] = found["absent"]
    return outcome
