"""Bulk sends through the whole sender, and through the bare loop beside it: HTTP, TLS, and where the CPU time goes."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator
from typing import Any

import orjson

from benchmarks import guard_costs, load, log, measuring, peers, programs, provider, site
from benchmarks.bench import Bench, Outcome
from benchmarks.measuring import Spent
from benchmarks.provider import Provider
from benchmarks.site import Outside, Site
from deploy import cost
from schemas.messages import Channel
from schemas.records import Outgoing

COUNT, BARE_COUNT, GUARDED_COUNT = 100_000, 200_000, 4_000
WARM_SHARE = 0.1
ANSWER_MS = 10
GOAL_OF_BARE = 0.6
PARTITIONS = 4
PEERS = {"bullmq": "bullmq-1/drain", "peer_python": "barepy-raw/drain", "peer_go": "barego/drain"}


async def http(bench: Bench) -> Outcome:
    """Ours, the bare loop, the bare loop with the guards' commands, ours by a worker for each core, the peers."""
    outcome = await _both(bench, is_secure=False)
    guarded = await _guarded(bench)
    outcome.values["guarded_per_s"] = guarded.per_s
    outcome.values["guarded_of_bare"] = guarded.per_s / outcome.values["bare_per_s"]
    outcome.values["guarded_cpu_us"] = guarded.cpu_us["guarded loop"]
    outcome.notes["CPU us a delivery of the bare loop with the guards' commands"] = rounded(guarded.cpu_us)
    outcome.notes["limit of the bare loop with the guards' commands"] = guarded.limit()
    pair = await _by_two(bench)
    outcome.values["pair_per_s"] = pair.per_s
    outcome.notes["CPU us a delivery by two workers"] = rounded(pair.cpu_us)
    outcome.notes["limit of two workers"] = pair.limit()
    for name, case in PEERS.items():
        found = await peers.measured(bench, case)
        if "rate" in found:
            outcome.values[f"{name}_per_s"] = found["rate"]
        else:
            outcome.notes[f"{name} not present"] = found["absent"]
    if "bullmq_per_s" in outcome.values:
        outcome.values["of_bullmq"] = outcome.values["per_s"] / outcome.values["bullmq_per_s"]
    return outcome


async def tls(bench: Bench) -> Outcome:
    """The same without peers: none was made ready for TLS."""
    return await _both(bench, is_secure=True)


async def _both(bench: Bench, is_secure: bool) -> Outcome:
    ours = await _ours(bench, is_secure)
    bare = await _bare(bench, is_secure)
    values = {
        "per_s": ours.per_s,
        "bare_per_s": bare.per_s,
        "of_bare": ours.per_s / bare.per_s,
        "bare_cpu_us": bare.cpu_us["bare loop"],
        "room_us": _room_us(ours, bare),
    }
    cpu = {"CPU us a delivery": rounded(ours.cpu_us), "CPU us a delivery of the bare loop": rounded(bare.cpu_us)}
    return Outcome(values, {**cpu, "limit": ours.limit(), "limit of the bare loop": bare.limit()})


def _room_us(ours: Spent, bare: Spent) -> float:
    """CPU a delivery that this machine leaves the worker at the goal: the rest goes to Redis, provider and Kafka."""
    everybody_us = (os.cpu_count() or 1) * 1e6 / (GOAL_OF_BARE * bare.per_s)
    return everybody_us - (sum(ours.cpu_us.values()) - ours.cpu_us["work"])


async def _ours(bench: Bench, is_secure: bool) -> Spent:
    count = bench.size(COUNT)
    bench.say(f"{count:,} sends through `tidings work`{' over TLS' if is_secure else ''}")
    async with (
        filled(bench, Channel.PUSH, count, is_secure) as (here, outside),
        here.running("work", "push.bulk") as worker,
    ):
        meter = here.meter(work=worker.pid, provider=outside.pid)
        return await measuring.between(outside, round(count * WARM_SHARE), count, meter)


async def _guarded(bench: Bench) -> Spent:
    """The same lane through the loop that asks Redis and the log for the same, and decides nothing."""
    count = bench.size(COUNT)
    bench.say(f"{count:,} sends through the bare loop with the guards' commands")
    async with filled(bench, Channel.PUSH, count) as (here, outside):
        words = ("benchmarks.guarded_loop", str(here.config), outside.url)
        async with programs.running("guarded_loop", words, here.folder) as guarded:
            meter = here.meter(**{"guarded loop": guarded.pid, "provider": outside.pid})
            return await measuring.between(outside, round(count * WARM_SHARE), count, meter)


async def _by_two(bench: Bench) -> Spent:
    """The same lane, a worker for each core."""
    count = bench.size(COUNT)
    bench.say(f"{count:,} sends through two `tidings work`")
    async with (
        filled(bench, Channel.PUSH, count) as (here, outside),
        here.running("work", "push.bulk") as first,
        here.running("work", "push.bulk") as second,
    ):
        meter = here.meter(**{"one worker": first.pid, "the other": second.pid, "provider": outside.pid})
        return await measuring.between(outside, round(count * WARM_SHARE), count, meter)


@contextlib.asynccontextmanager
async def filled(
    bench: Bench, channel: Channel, count: int, is_secure: bool = False
) -> AsyncIterator[tuple[Site, Provider]]:
    """A lane with so many deliveries to stored people, its provider, and nobody who works it yet."""
    folder = bench.folder
    made = provider.smtp(folder) if channel is Channel.EMAIL else provider.http(folder, ANSWER_MS, is_secure)
    async with made as outside:
        where = Outside(mail=outside.url) if channel is Channel.EMAIL else Outside(push=outside.url, ca=outside.ca)
        async with site.opened(bench, where, load.campaigns(count)) as here, here.running("route", "recipients"):
            people = await load.store_people(here, count)
            await log.fill(here.kafka, load.deliveries(here, channel, count, people))
            yield here, outside


async def _bare(bench: Bench, is_secure: bool) -> Spent:
    count, topic = bench.size(BARE_COUNT), f"bench-bare-{secrets.token_hex(3)}"
    bench.say(f"{count:,} sends through the bare loop{' over TLS' if is_secure else ''}")
    kafka = bench.stack.kafka_bootstrap
    async with (
        provider.http(bench.folder, ANSWER_MS, is_secure) as outside,
        log.topic_of_its_own(kafka, topic, PARTITIONS),
    ):
        await log.fill(kafka, (_wish(topic, number) for number in range(count)))
        words = ("benchmarks.bare_loop", kafka, topic, outside.url, *([outside.ca] if outside.ca else []))
        async with programs.running("bare_loop", words, bench.folder) as bare:
            meter = cost.Meter({"bare loop": bare.pid, "provider": outside.pid, **bench.servers()})
            return await measuring.between(outside, round(count * WARM_SHARE), count, meter)


def _wish(topic: str, number: int) -> Outgoing:
    key = f"b{number}"
    wish = {
        "key": key,
        "name": f"Recipient {number}",
        "order": f"A{100_000 + number}",
        "to": f"user{number}@example.org",
    }
    return Outgoing(topic, key.encode(), orjson.dumps(wish))


async def parts(bench: Bench) -> Outcome:
    """CPU a delivery by part of the worker, by sampling it while it works; and what each guard costs by itself."""
    count, result = bench.size(COUNT), bench.folder / "profile.json"
    bench.say(f"{count:,} sends with a sampler beside them")
    async with filled(bench, Channel.PUSH, count) as (here, outside):
        words = ("benchmarks.profiled", str(result), "work", "push.bulk", "--config", str(here.config))
        async with programs.running("profiled", words, here.folder) as worker:
            first = round(count * WARM_SHARE)
            begun = await outside.reached(first)
            os.kill(worker.pid, signal.SIGUSR1)
            before = cost.threads_s(worker.pid)
            ended = await outside.reached(count)
            os.kill(worker.pid, signal.SIGUSR1)
            after = cost.threads_s(worker.pid)
    spent_us = {name: (after[name] - before.get(name, 0.0)) / (ended - begun) * 1e6 for name in after}
    outcome = _by_part(json.loads(result.read_text()), spent_us)
    bench.say("the commands of each guard by themselves")
    in_worker, in_redis = await guard_costs.by_guard(bench.stack.redis_url, bench.size(GUARDED_COUNT))
    outcome.notes["guards, CPU us a delivery in the worker"] = rounded(in_worker)
    outcome.notes["guards, CPU us a delivery in Redis"] = rounded(in_redis)
    return outcome


def _by_part(seen: dict[str, Any], spent_us: dict[str, float]) -> Outcome:
    """The main thread's CPU time shared out by samples; other threads by their names."""
    total = max(1, sum(seen["parts"].values()))
    main_us = spent_us.pop("main")
    shares = {part: main_us * samples / total for part, samples in seen["parts"].items()}
    others = {f"thread {name}": used_us for name, used_us in spent_us.items() if used_us >= 0.5}
    functions = {name: round(main_us * samples / total, 1) for name, samples in seen["functions"].items()}
    notes = {"CPU us a delivery by part": rounded({**shares, **others}), "innermost functions": functions}
    return Outcome({"worker_us": main_us + sum(spent_us.values())}, notes)


def rounded(costs: dict[str, float]) -> dict[str, float]:
    """For notes: the largest first."""
    return {name: round(used_us, 1) for name, used_us in measuring.by_size(costs)}
