"""A long campaign with the provider at its cap: its pace, login codes beside it, a small campaign behind it."""

from __future__ import annotations

import asyncio
import time

from benchmarks import client, load, log, measuring, peers, provider, site
from benchmarks.bench import Bench, Outcome
from benchmarks.cases import sender
from benchmarks.measuring import Span
from benchmarks.provider import Provider
from benchmarks.site import BULK_SHARE, Outside, Site
from deploy.settings import DEFAULT_TENANT

RAMP_S, WARM_S, WHOLE_S = 5.0, 2.0, 20.0
CODES_PER_S = 20
SMALL = 200
SMALL_WITHIN_S = 60.0
LARGE_ID, SMALL_ID = "large", "small"
LOOK_S = 0.1
PEER = "bullmq-1/blast"


async def run(bench: Bench) -> Outcome:
    """Four figures of one campaign, which is left alone before its end."""
    rate, phase_s = bench.cap_per_s, bench.seconds(WHOLE_S)
    least = round(rate * BULK_SHARE * (RAMP_S + 2 * phase_s + SMALL_WITHIN_S / 3))
    count = max(bench.size(bench.campaign), least)
    async with (
        provider.http(bench.folder, sender.ANSWER_MS) as outside,
        site.opened(bench, Outside(push=outside.url, per_s=rate), campaigns=2) as here,
        here.running("up"),
    ):
        stored = await load.store_people(here, count)
        bench.say(f"a campaign of {count:,} at a provider of {rate:,} a second")
        await client.start_campaign(here, LARGE_ID, count, stored)
        await outside.reached(round(rate * BULK_SHARE * RAMP_S))
        from_s = time.time()
        outcome = await _pace(bench, here, outside, rate, phase_s)
        await _codes(bench, here, outside, phase_s, outcome)
        await _small(bench, here, outside, outcome)
        all_of_it = await outside.ask("between", from_s=from_s, to_s=time.time())
        allowed = rate + Outside(per_s=rate).burst
        outcome.values["most_in_a_second"] = float(all_of_it["most_in_a_second"])
        outcome.values["over_rate"] = float(max(0, all_of_it["most_in_a_second"] - allowed))
        left = count - await outside.distinct()
        outcome.notes["left of the large campaign"] = left
    await _peer(bench, outcome)
    return outcome


async def _pace(bench: Bench, here: Site, outside: Provider, rate: int, phase_s: float) -> Outcome:
    """How much of its share bulk uses while nothing else is sent."""
    bench.say(f"its pace for {phase_s:g} s")
    span, from_s = Span(here.roles_meter()), time.time()
    await asyncio.sleep(phase_s)
    to_s = time.time()
    seen = await outside.ask("between", from_s=from_s, to_s=to_s)
    spent = span.end(max(1, seen["calls"]))
    per_s = seen["calls"] / (to_s - from_s)
    notes = {"CPU us a delivery": sender.rounded(spent.cpu_us), "limit": spent.limit()}
    return Outcome({"bulk_busy": per_s / (rate * BULK_SHARE)}, notes)


async def _codes(bench: Bench, here: Site, outside: Provider, phase_s: float, outcome: Outcome) -> None:
    """Login codes, from the time of the wish to the provider."""
    bench.say(f"{CODES_PER_S} login codes a second beside it for {phase_s:g} s")
    await client.offer(here, "warm", CODES_PER_S, WARM_S)
    await _until_codes_are_sent(here)
    warm = len(await outside.waits_ms())
    answers = await client.offer(here, "code", CODES_PER_S, phase_s)
    await _until_codes_are_sent(here)
    waits = (await outside.waits_ms())[warm:]
    outcome.values["code_p50_ms"] = measuring.percentile(waits, 0.5)
    outcome.values["code_p99_ms"] = measuring.percentile(waits, 0.99)
    outcome.values["codes_missing"] = float(len(answers) - len(waits))
    outcome.notes["login codes, request to provider, ms"] = measuring.shown_ms(waits)


async def _until_codes_are_sent(here: Site) -> None:
    watch = log.Watch(here.kafka, here.topics.group("work push.transactional"))
    lane = here.topics.lane("push", "transactional")
    entry = here.topics.requests(DEFAULT_TENANT)
    try:
        await log.until(
            lambda: watch.ends(lane) >= watch.ends(entry) and not watch.left(lane), "every code is sent", 60
        )
    finally:
        watch.close()


async def _small(bench: Bench, here: Site, outside: Provider, outcome: Outcome) -> None:
    """From its request until the last of it is with the provider."""
    bench.say(f"a campaign of {SMALL} behind it")
    begun_s = time.monotonic()
    await client.start_campaign(here, SMALL_ID, SMALL, SMALL, site.order(1))
    while (arrived := await outside.ask("containing", word=f"/{SMALL_ID}/")) < SMALL:
        if time.monotonic() - begun_s > SMALL_WITHIN_S:
            outcome.notes["small campaign"] = f"{arrived} of {SMALL} within {SMALL_WITHIN_S:g} s"
            break
        await asyncio.sleep(LOOK_S)
    outcome.values["small_s"] = time.monotonic() - begun_s


async def _peer(bench: Bench, outcome: Outcome) -> None:
    found = await peers.measured(bench, PEER)
    if "p50" in found:
        outcome.values["bullmq_code_p50_ms"] = found["p50"] * 1000
        outcome.values["bullmq_code_p99_ms"] = found["p99"] * 1000
    else:
        outcome.notes["bullmq not present"] = found["absent"]
