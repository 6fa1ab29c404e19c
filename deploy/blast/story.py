"""A blast from beginning to end: start everything, offer, upload, watch, kill, wait, judge, stop.

Exit code 0 only when everything that was judged holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from rich.console import Console

from deploy import cost
from deploy.blast import audience, judging, place, plot, report, wishes
from deploy.blast.facts import Arrived, Facts, arrived
from deploy.blast.judging import AFTER_KILL_S
from deploy.blast.kills import Killer
from deploy.blast.plan import ANSWER_MS, CODE, LARGE_ID, SMALL, SMALL_ID, Plan
from deploy.blast.view import View
from deploy.blast.watching import Watch
from deploy.blast.wishes import Wishes
from deploy.demo import narrating, outside, programs
from deploy.demo.door import Door, Untrue, must
from deploy.demo.narrating import Narrator
from deploy.demo.outside import Outside
from deploy.demo.place import Place
from deploy.local import stack
from schemas.errors import Transient

REQUEST_TIMEOUT_S = 60
WIDTH = 150
SMALL_AT = 0.5
SMALL_WITHIN_S = 30.0
"""The next kill waits no longer for the small campaign."""
LEFT_WITHIN_S = 60.0
CALM_BEFORE_S = 3.0
"""Login codes alone, so that no connection is opened when the campaign begins."""


def run(plan: Plan, as_json: bool, picture: Path | None) -> int:
    """The exit code. as_json: the report on standard output, the story on standard error."""
    plan.check()
    narrator = Narrator(_console(as_json))
    with place.alone():
        facts = _facts(plan, narrator)
    if facts is None:
        return 1
    judgements = judging.judge(facts)
    report.show(facts, judgements, narrator.console)
    if as_json:
        print(json.dumps(report.as_json(facts, judgements)))
    if picture is not None:
        picture.write_text(plot.svg(facts))
        narrator.say(f"plot: {picture}")
    return 1 if judging.failed(judgements) else 0


def _facts(plan: Plan, narrator: Narrator) -> Facts | None:
    """None when it did not come to its end; why was told."""
    folder = place.empty_folder()
    narrator.say("Tidings blast. Starting Kafka and Redis of its own (the first time this fetches them)")
    try:
        with stack.running(folder, {}) as servers:
            return asyncio.run(_whole(plan, place.prepare(folder, servers, plan), narrator, servers))
    except Untrue as wrong:
        narrator.say(f"{wrong}\nLogs: {folder}")
        return None
    finally:
        place.clear(folder)


def _console(to_stderr: bool) -> Console:
    """Wide enough for the report where there is no terminal."""
    console = Console(stderr=to_stderr)
    return console if console.is_terminal else Console(stderr=to_stderr, width=WIDTH)


async def _whole(plan: Plan, chosen: Place, narrator: Narrator, servers: stack.Stack) -> Facts:
    fate = f'{{"answer_ms": {ANSWER_MS}}}'
    async with (
        programs.running(chosen, "simulate", "--smtp-port", "0", "--faults", fate) as simulator,
        programs.running(chosen, "up") as up,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)) as client,
    ):
        narrator.say(f"Tidings runs. API: {chosen.api}/docs")
        door = Door(client, chosen.api, forgives=plan.kills)
        watch = Watch(plan, chosen, client, door, up)
        others = {"simulator": simulator, **_processes(servers)}
        try:
            async with asyncio.timeout(plan.within_s):
                return await Blast(plan, chosen, door, watch, others, narrator).run()
        except (Untrue, TimeoutError) as wrong:
            narrating.show_logs(chosen, narrator.console)
            raise Untrue(str(wrong) or f"not over after {plan.within_s:,.0f} s") from None


def _processes(servers: stack.Stack) -> dict[str, int | None]:
    kafka = int(servers.kafka_bootstrap.rpartition(":")[2])
    return {"kafka": cost.listener(kafka), "redis": cost.listener(urlsplit(servers.redis_url).port or 0)}


@dataclass(slots=True)
class Blast:
    """One run. others: processes that are not Tidings'."""

    plan: Plan
    chosen: Place
    door: Door
    watch: Watch
    others: dict[str, int | None]
    narrator: Narrator

    async def run(self) -> Facts:
        """What was found. Raises Untrue when nothing moves any more or the API says something that cannot be."""
        await self.door.load(map(audience.customer, range(audience.CUSTOMERS)))
        killer = Killer(self.chosen, self.plan.seed) if self.plan.kills else None
        view, over, offered = View(self.plan, self.narrator), asyncio.Event(), Wishes()
        try:
            async with asyncio.TaskGroup() as group:
                with view.shown():
                    watching = group.create_task(self.watch.run(killer, view))
                    offering = group.create_task(offered.offer(self.door, over))
                    seen = await self._campaigns(group, killer)
                    over.set()
                    await offering
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LEFT_WITHIN_S):
                            await self.watch.until(lambda: self.watch.code.distinct >= len(offered.ids))
                    watching.cancel()
                return await self._told(seen, offered, killer)
        except* (Untrue, Transient) as wrong:
            raise Untrue(str(wrong.exceptions[0])) from None

    async def _campaigns(self, group: asyncio.TaskGroup, killer: Killer | None) -> _Seen:
        """The large one, the small one amid it, and the kills beside them, until both are finished."""
        watch = self.watch
        await asyncio.sleep(CALM_BEFORE_S)
        uploaded_s = await self._start(LARGE_ID, self.plan.recipients)
        self.narrator.say(f"campaign of {self.plan.recipients:,} accepted after {uploaded_s:.0f} s")
        await watch.until(lambda: watch.share > 0)
        meter = cost.Meter({**programs.roles(self.chosen), **self.others})
        before, begun_s = meter.read(), time.monotonic()
        if killer is not None:
            group.create_task(killer.run(watch.reached, self.narrator.say))
        await watch.reached(SMALL_AT)
        small_begun_s = await self._small(killer)
        await watch.until(lambda: watch.share >= 1 or watch.finished())
        took_s = time.monotonic() - begun_s
        cores = {name: max(0.0, after - before[name]) / took_s for name, after in meter.read().items()}
        await watch.until(watch.finished)
        if killer is not None:
            await watch.until(killer.is_over)
        return _Seen(uploaded_s, small_begun_s, {} if killer else cores)

    async def _start(self, campaign_id: str, count: int) -> float:
        """Seconds until its 202."""
        begun_s = time.monotonic()
        lines = partial(audience.lines, campaign_id, count)
        answer = await self.door.start_campaign(audience.campaign(campaign_id), lines)
        must(answer["expected"] == count, f"a campaign of {count} expects {answer['expected']}")
        self.watch.asked.add(campaign_id)
        return time.monotonic() - begun_s

    async def _small(self, killer: Killer | None) -> float:
        """Starts it, when nothing has been killed lately; the time at which that was asked for.

        Kills wait for it. A short blast would be over before that, and does not judge it.
        """
        is_long = self.plan.recipients * (1 - SMALL_AT) > self.plan.bulk_per_s * (AFTER_KILL_S + SMALL_WITHIN_S)
        if killer is not None and is_long:
            await killer.until_calm()
        begun_s = time.time()
        self.narrator.say(f"campaign of {SMALL} behind it, at {self.watch.share:.0%}")
        await self._start(SMALL_ID, SMALL)
        if killer is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SMALL_WITHIN_S):
                    await self.watch.until(lambda: self.watch.small.distinct >= SMALL)
            killer.may.set()
        return begun_s

    async def _told(self, seen: _Seen, offered: Wishes, killer: Killer | None) -> Facts:
        """Asks the ledger for all of it, and the API for every login code."""
        world = Outside(self.watch.client, self.chosen.outside)
        marks, ledger = await world.marks(), await world.ledger()
        large, small, code = (
            arrived(marks[name]) if name in marks else Arrived() for name in (LARGE_ID, SMALL_ID, CODE)
        )
        campaigns = {LARGE_ID: large, SMALL_ID: small}
        self.narrator.say(f"asking for the status of {len(offered.ids):,} login codes")
        statuses = await wishes.told(self.door, offered.ids)
        return Facts(
            plan=self.plan,
            large=large,
            small=small,
            code=code,
            most_in_a_second=ledger["services"][outside.PUSH]["most_in_a_second"],
            told={name: await self.door.owned_up(name, came.repeats) for name, came in campaigns.items()},
            small_begun_s=seen.small_begun_s,
            codes=len(offered.ids),
            codes_sent=statuses.sent,
            codes_possible=statuses.possible_duplicates,
            uploaded_s=seen.uploaded_s,
            kinds=len(killer.planned) if killer else 0,
            kills=tuple(killer.made) if killer else (),
            pids=self.watch.pids,
            peaks_mb=self.watch.peaks_mb,
            cores=seen.cores,
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """uploaded_s: seconds until the large campaign's 202. small_begun_s: since 1970."""

    uploaded_s: float
    small_begun_s: float
    cores: dict[str, float]
