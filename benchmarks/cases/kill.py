"""The push worker of a running campaign dies by kill -9 when half of it is sent."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from benchmarks import claims_seen, client, load, peers, provider, site
from benchmarks.bench import Bench, Outcome
from benchmarks.cases import sender
from benchmarks.site import Outside

COUNT = 20_000
ROLE = "work-push.bulk"
CAMPAIGN = "killed"
PEER = "bullmq-1/kill"


async def run(bench: Bench) -> Outcome:
    """Lost, repeated, owned up to, in flight, and how long until everybody had it."""
    count = bench.size(COUNT)
    async with (
        provider.http(bench.folder, sender.ANSWER_MS) as outside,
        site.opened(bench, Outside(push=outside.url)) as here,
        here.running("up"),
    ):
        stored = await load.store_people(here, count)
        bench.say(f"kill -9 at half of {count:,}")
        await client.start_campaign(here, CAMPAIGN, count, stored)
        at_kill = await outside.reached(count // 2)
        killed_s = time.time()
        os.kill(here.role(ROLE), signal.SIGKILL)
        in_flight = await asyncio.to_thread(claims_seen.open_calls, here.redis_url)
        told = await client.until_finished(here, CAMPAIGN)
        totals = await outside.totals()
        lease_s = here.settings.sending.lease_s
    values = {
        "lost": count - totals["distinct"],
        "repeats": totals["repeats"],
        "in_flight": float(in_flight),
        "repeats_beyond": max(0.0, totals["repeats"] - in_flight),
        "not_owned_up_to": max(0.0, totals["repeats"] - told["possible_duplicates"]),
        "whole_after_s": totals["last_new_s"] - killed_s,
    }
    notes = {
        "sent at the kill": at_kill,
        "possible duplicates told": told["possible_duplicates"],
        "status": told["status"],
        "lease s": lease_s,
    }
    outcome = Outcome(values, notes)
    found = await peers.measured(bench, PEER)
    if "lost" in found:
        outcome.values.update({"bullmq_lost": found["lost"], "bullmq_repeats": found["dup"]})
        if found["whole_after"] is not None:
            outcome.values["bullmq_whole_after_s"] = found["whole_after"]
    else:
        outcome.notes["bullmq not present"] = found["absent"]
    return outcome
