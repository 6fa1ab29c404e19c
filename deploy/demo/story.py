"""The demo from beginning to end: start everything, send, kill, wait, judge, stop.

Exit code 0 only when nothing was lost, and every repeat was owned up to and explained by the kill.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import aiohttp
from rich.console import Console
from rich.table import Table

from deploy import settings
from deploy.demo import campaign, judge, narrating, outside, people, place, programs, singles
from deploy.demo.door import Door, Untrue
from deploy.demo.narrating import Narrator
from deploy.demo.outside import Outside
from deploy.demo.place import Place
from deploy.local import stack

REQUEST_TIMEOUT_S = 60


def run() -> int:
    """The exit code."""
    narrator = Narrator(Console())
    folder = place.empty_folder("demo")
    narrator.say("Tidings demo. Starting Kafka and Redis (the first time this fetches them)")
    try:
        with stack.running(folder, os.environ) as running:
            chosen = place.prepare(folder, running)
            os.environ.update(chosen.environment)
            verdict = asyncio.run(_whole(chosen, narrator))
    except (Untrue, TimeoutError) as wrong:
        narrator.say(f"{type(wrong).__name__}: {wrong}\nLogs: {folder}")
        return 1
    narrator.say(f"everything is stopped again; logs: {folder}")
    if not verdict.holds():
        narrator.say(f"this is not as promised: {verdict}")
    narrator.console.print(verdict.line(), highlight=False)
    return 0 if verdict.holds() else 1


async def _whole(chosen: Place, narrator: Narrator) -> judge.Verdict:
    fate = f'{{"answer_ms": {place.ANSWER_MS}}}'
    async with programs.running(chosen, "simulate", "--faults", fate), programs.running(chosen, "up"):
        narrator.say(f"Tidings runs. API and its documentation: {chosen.api}/docs")
        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as client:
            try:
                return await _story(chosen, Door(client, chosen.api), Outside(client, chosen.outside), narrator)
            except (Untrue, TimeoutError):
                narrating.show_logs(chosen, narrator.console)
                raise


async def _story(chosen: Place, door: Door, world: Outside, narrator: Narrator) -> judge.Verdict:
    stored = await door.load(_profiles())
    narrator.say(f"{stored:,} people are stored, with devices, languages and opt-outs")
    sent = singles.Singles()
    await singles.send_all(door, sent)
    await singles.await_ends(door, sent)
    await singles.check_inboxes(door)
    calm_s = await singles.latencies_s(world, sent.codes)
    narrator.say(f"{sent.deliveries} single deliveries by SMS, push, mail and in the app: all sent")
    before = await world.ledger()
    killed = await _campaign(chosen, door, world, sent, narrator)
    await singles.await_ends(door, sent)
    rush_s = await singles.latencies_s(world, sent.rush)
    ledger = await world.ledger()
    told = await door.owned_up(campaign.CAMPAIGN_ID, ledger["repeats"] - sent.possible_duplicates)
    narrator.console.print(_table(told, sent, {"calm": calm_s, "during the campaign": rush_s}, ledger))
    return _judge(told, sent, killed, before, ledger)


def _profiles() -> list[dict[str, Any]]:
    return [*map(people.customer, range(people.CUSTOMERS)), *map(people.reader, range(people.STORED))]


async def _campaign(
    chosen: Place, door: Door, world: Outside, sent: singles.Singles, narrator: Narrator
) -> campaign.Killed:
    """The campaign, with login codes going on beside it."""
    ledger, over = await world.ledger(), asyncio.Event()
    before = sum(outside.of(ledger, service)["distinct_keys"] for service in (outside.PUSH, outside.MAIL))
    watch = campaign.Watch(door, world, before)
    await campaign.start(door)
    narrator.say(f"campaign of {people.AUDIENCE:,} accepted")
    rush = asyncio.create_task(singles.rush(door, sent, over))
    try:
        killed = await campaign.follow(watch, chosen, settings.load(chosen.settings), narrator.console)
    finally:
        over.set()
    await rush
    await campaign.check_recipients(door, await campaign.await_reports(watch))
    return killed


def _judge(
    told: dict[str, Any], sent: singles.Singles, killed: campaign.Killed, before: dict[str, Any], ledger: dict[str, Any]
) -> judge.Verdict:
    expected = people.expected()
    wanted = {outside.PUSH: expected.push, outside.MAIL: expected.email, outside.SMS: len(sent.rush)}
    services = (outside.PUSH, outside.MAIL, outside.SMS)
    reached = {s: outside.of(ledger, s)["distinct_keys"] - outside.of(before, s)["distinct_keys"] for s in services}
    lost, unasked = judge.lost_and_unasked(wanted, reached)
    possible = told["possible_duplicates"] + sent.possible_duplicates
    return judge.Verdict(ledger["repeats"], possible, killed.in_flight, lost, unasked)


def _table(told: dict[str, Any], sent: singles.Singles, latencies_s: dict[str, Any], ledger: dict[str, Any]) -> Table:
    table = Table(title="What became of everything", show_header=False)
    rows = {"accepted": f"{told['expected']:,} in the campaign, {len(sent.ids):,} single"}
    rows["sent"] = f"{told['progress']['sent']:,} in the campaign, {sent.deliveries:,} single deliveries"
    rows["delivered"] = f"{told['progress']['delivered']:,} reported by the push gateway; mail is not reported"
    rows |= {f"suppressed: {reason}": f"{count:,}" for reason, count in sorted(told["reasons"].items())}
    for when, values in latencies_s.items():
        p50, p99 = (judge.percentile(values, share) * 1000 for share in (0.5, 0.99))
        rows[f"login code, request to provider, {when}"] = f"p50 {p50:.0f} ms, p99 {p99:.0f} ms ({len(values)} codes)"
    for service, book in sorted(ledger["services"].items()):
        rows[f"{service}: most in one second"] = f"{book['max_per_second']:,}"
    for name, value in rows.items():
        table.add_row(name, value)
    return table
