"""Looks at everything once a second while a blast runs: what arrived, what is told, ages, memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiohttp

from deploy import cost
from deploy.blast import ages
from deploy.blast.facts import Arrived, arrived
from deploy.blast.kills import Killer
from deploy.blast.plan import CODE, LARGE_ID, SMALL_ID, Plan
from deploy.demo import programs
from deploy.demo.door import Door, must
from deploy.demo.outside import Outside
from deploy.demo.place import Place

LOOK_S = 1.0
ASK_S = 2.0
LATELY_S = 10.0
STALL_S = 150.0
"""Longer than any role takes to be itself again after a kill."""
FINISHED = frozenset({"processed", "partially_processed", "expired", "cancelled"})


class Watch:
    """The newest look. up: the supervisor's process. large, small, code: sends and waits of the last seconds only."""

    def __init__(self, plan: Plan, chosen: Place, client: aiohttp.ClientSession, door: Door, up: int) -> None:
        self._plan = plan
        self._place = chosen
        self.client = client
        self._door = door
        self._world = Outside(client, chosen.outside)
        self._supervisor = {"up": up, "fork server": cost.children(up)[0]}
        self._moved = (0, time.monotonic())
        self._looked = asyncio.Event()
        self.large, self.small, self.code = Arrived(), Arrived(), Arrived()
        self.told: dict[str, dict[str, Any]] = {}
        self.ages_s: dict[str, float] = {}
        self.pids: dict[str, set[int]] = {}
        self.peaks_mb: dict[str, float] = {}
        self.asked: set[str] = set()

    @property
    def share(self) -> float:
        """Of the large campaign that has arrived."""
        return self.large.distinct / self._plan.recipients

    def sends_per_s(self, came: Arrived) -> float:
        """In the last whole seconds."""
        now = int(time.time())
        return sum(came.per_second.get(second, 0) for second in range(now - 5, now)) / 5

    async def run(self, killer: Killer | None, show: Callable[[Watch], None]) -> None:
        """Until cancelled. Raises Untrue when nothing arrives any more."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ask())
            while True:
                await self._look(killer)
                show(self)
                done, self._looked = self._looked, asyncio.Event()
                done.set()
                await asyncio.sleep(LOOK_S)

    async def reached(self, share: float) -> None:
        """Of the large campaign."""
        await self.until(lambda: self.share >= share)

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._looked.wait()

    async def _look(self, killer: Killer | None) -> None:
        marks = await self._world.marks(since_s=time.time() - LATELY_S)
        found = {name: arrived(shown) for name, shown in marks.items()}
        self.large, self.small, self.code = (found.get(name, Arrived()) for name in (LARGE_ID, SMALL_ID, CODE))
        self.ages_s = await ages.of_lanes(self.client, self._place)
        for role, pid in (*programs.roles(self._place).items(), *self._supervisor.items()):
            self.pids.setdefault(role, set()).add(pid)
            self.peaks_mb[role] = max(self.peaks_mb.get(role, 0.0), cost.peak_mb(pid))
        if killer is not None:
            killer.note_back()
        self._check_moves()

    def _check_moves(self) -> None:
        """Standing still is the failure, not being slow; login codes move all the time and say nothing."""
        moved, at_s = self._moved
        now = self.large.distinct + self.small.distinct
        if now != moved or not self.asked or self.finished():
            self._moved = (now, time.monotonic())
        must(time.monotonic() - at_s < STALL_S, f"nothing moved for {STALL_S:g} s: {self.told}")

    async def _ask(self) -> None:
        while True:
            for campaign_id in sorted(self.asked):
                self.told[campaign_id] = await self._door.campaign(campaign_id)
            await asyncio.sleep(ASK_S)

    def finished(self) -> bool:
        """Both campaigns say so."""
        known = [self.told.get(campaign_id, {}).get("status") for campaign_id in (LARGE_ID, SMALL_ID)]
        return all(status in FINISHED for status in known)
