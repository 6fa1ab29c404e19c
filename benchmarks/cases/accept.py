"""500 requests a second, offered whatever the answers take, with everything behind the door at work."""

from __future__ import annotations

from benchmarks import client, log, measuring, provider, site
from benchmarks.bench import Bench, Outcome
from benchmarks.cases import sender
from benchmarks.measuring import Span
from benchmarks.site import Outside, Site
from deploy.settings import DEFAULT_TENANT

PER_S = 500
WARM_S, WHOLE_S = 3.0, 20.0


async def run(bench: Bench) -> Outcome:
    """p50 and p99 of the 202, from the time at which each request was meant to go; whether the log has them all."""
    async with (
        provider.http(bench.folder, sender.ANSWER_MS) as outside,
        site.opened(bench, Outside(push=outside.url)) as here,
        here.running("up"),
    ):
        bench.say(f"{PER_S} requests a second")
        await client.offer(here, "warm", PER_S, WARM_S)
        await outside.reached(round(PER_S * WARM_S))
        before = _in_log(here)
        await outside.ask("reset")
        span = Span(here.roles_meter())
        answers = await client.offer(here, "bench", PER_S, bench.seconds(WHOLE_S))
        spent = span.end(len(answers))
        accepted = sum(answer.status == client.ACCEPTED for answer in answers)
        logged = _in_log(here) - before
        await outside.reached(accepted)
        to_provider = await outside.waits_ms()
    waits = [answer.wait_ms for answer in answers]
    values = {
        "p50_ms": measuring.percentile(waits, 0.5),
        "p99_ms": measuring.percentile(waits, 0.99),
        "not_accepted": float(len(answers) - accepted),
        "accepted_and_not_in_the_log": float(max(0, accepted - logged)),
    }
    notes = {
        "max ms": round(max(waits), 1),
        "request to provider, ms": measuring.shown_ms(to_provider),
        "CPU us a request": sender.rounded(spent.cpu_us),
        "limit": spent.limit(),
    }
    return Outcome(values, notes)


def _in_log(here: Site) -> int:
    watch = log.Watch(here.kafka)
    try:
        return watch.ends(here.topics.requests(DEFAULT_TENANT))
    finally:
        watch.close()
