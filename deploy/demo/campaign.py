"""A campaign of 20,000 with live progress, its push worker killed in the middle; every answer checked on the way."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from deploy.demo import outside, people, programs
from deploy.demo.door import Door, must
from deploy.demo.outside import Outside
from deploy.demo.place import Place
from deploy.settings import Settings

CAMPAIGN_ID = "spring-sale"
LANE = "push.bulk"
KILL_FROM, KILL_TO = 0.25, 0.75
KILL_AT = 0.4
RECHECK_S = 0.2
TIMEOUT_S = 600
STALL_S = 90
SETTLE_GRACE_S = 1.0
FINISHED = frozenset({"processed", "partially_processed", "expired", "cancelled"})
_NEVER_FALLS = ("released", "sent", "delivered")


@dataclass(slots=True)
class Killed:
    """The kill: at which share of the campaign, and how many calls it left without an answer."""

    share: float = 0.0
    in_flight: int = 0


class Watch:
    """Asks for the campaign again and again; every answer must be true at its moment."""

    def __init__(self, door: Door, world: Outside, mail_and_push_before: int) -> None:
        self._door = door
        self._world = world
        self._before = mail_and_push_before
        self._last: dict[str, Any] = {}
        self._moved_s = time.monotonic()
        self.sends = 0

    async def look(self) -> dict[str, Any]:
        """The campaign now. First Tidings is asked, then the ledger: nothing can be told sent that did not arrive."""
        told = await self._door.campaign(CAMPAIGN_ID)
        ledger = await self._world.ledger()
        self.sends = self._reached(ledger) - self._before
        progress, outcomes = told["progress"], sum(told["outcomes"].values())
        must(told["expected"] == people.AUDIENCE, f"a campaign of {people.AUDIENCE} expects {told['expected']}")
        must(progress["sent"] <= self.sends, f"{progress['sent']} told sent, {self.sends} arrived")
        must(progress["delivered"] <= progress["sent"], "more delivered than sent")
        must(outcomes <= told["expected"], f"{outcomes} outcomes for {told['expected']} recipients")
        must(
            told["status"] != "processed" or outcomes == told["expected"], "processed, but not everybody has an outcome"
        )
        for word in _NEVER_FALLS:
            before = self._last.get("progress", {}).get(word, 0)
            must(progress[word] >= before, f"{word} fell from {before} to {progress[word]}")
        self._check_moves(told)
        self._last = told
        return told

    def _check_moves(self, told: dict[str, Any]) -> None:
        """Standing still is the failure, not being slow."""
        now_s = time.monotonic()
        if told["progress"] != self._last.get("progress") or told["outcomes"] != self._last.get("outcomes"):
            self._moved_s = now_s
        must(now_s - self._moved_s < STALL_S, f"nothing moved for {STALL_S} s: {told}")

    def _reached(self, ledger: dict[str, Any]) -> int:
        return sum(outside.of(ledger, service)["distinct_keys"] for service in (outside.PUSH, outside.MAIL))


async def start(door: Door) -> None:
    """Its 202, and what GET says right after it."""
    wish = {
        "campaign_id": CAMPAIGN_ID,
        "template": "newsletter",
        "params": {"title": "Spring sale", "offer": "a third off every kettle"},
    }
    answer = await door.start_campaign(wish, people.audience_lines)
    must(answer["expected"] == people.AUDIENCE, f"the 202 expects {answer['expected']} recipients")
    told = await door.campaign(CAMPAIGN_ID)
    must(told["status"] not in FINISHED, f"right after its 202 a campaign is {told['status']}")


async def follow(watch: Watch, place: Place, settings: Settings, console: Console) -> Killed:
    """Until every recipient has an outcome. Raises TimeoutError when that takes too long."""
    killed, counting = Killed(), None
    with _bars(console) as bars:
        totals = {"sent": people.expected().reached, "delivered": people.expected().push}
        shown = {word: bars.add_task(word, total=total) for word, total in totals.items()}
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                told = await watch.look()
                for word, bar in shown.items():
                    bars.update(bar, completed=told["progress"][word])
                if counting is None and watch.sends >= KILL_AT * people.AUDIENCE:
                    counting = asyncio.create_task(_kill(watch, place, settings, killed, bars.console))
                if told["status"] in FINISHED and counting is not None:
                    break
                await asyncio.sleep(RECHECK_S)
    await counting
    return killed


async def _kill(watch: Watch, place: Place, settings: Settings, killed: Killed, console: Console) -> None:
    """Kills the worker, then counts what it had in flight, once the living ones have settled theirs."""
    killed.share = watch.sends / people.AUDIENCE
    must(KILL_FROM < killed.share < KILL_TO, f"too late for a kill: {killed.share:.0%} were sent")
    pid = programs.kill_worker(place, LANE)
    lease_s, deadline_s = settings.sending.lease_s, settings.sending.deadline_s
    console.print(
        f"  [red]kill -9 {pid}[/red]: the push worker, at {killed.share:.0%} sent; its claims last {lease_s:g} s"
    )
    open_at_kill = await outside.open_calls(place.redis_url)
    await asyncio.sleep(deadline_s + SETTLE_GRACE_S)
    killed.in_flight = await outside.left_open(place.redis_url, open_at_kill)
    console.print(f"  it left {killed.in_flight} calls in flight")


async def await_reports(watch: Watch) -> dict[str, Any]:
    """Until the providers' reports are all counted: every push is reported as delivered, mail is not reported."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            told = await watch.look()
            if told["progress"]["delivered"] >= people.expected().push:
                return told
            await asyncio.sleep(RECHECK_S)


async def check_recipients(door: Door, told: dict[str, Any]) -> None:
    """The list of those who got nothing names each of them, with the reason."""
    expected = people.expected()
    listed = await door.recipients(CAMPAIGN_ID, "suppressed")
    must(len(listed) == expected.opted_out + expected.unreachable, f"{len(listed)} people are listed as suppressed")
    must(sum(told["outcomes"].values()) == people.AUDIENCE, f"the outcomes are {told['outcomes']}")


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("  {task.description:<10}"), BarColumn(bar_width=50), MofNCompleteColumn(), console=console
    )
