"""kill -9 of one process of each kind, at moments that follow from the seed; the supervisor starts them again."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from deploy.blast import place
from deploy.blast.facts import Kill
from deploy.blast.judging import AFTER_KILL_S
from deploy.demo import programs
from deploy.demo.place import Place

FROM, TO = 0.05, 0.9
"""Of the large campaign: all kills fall between these shares of its arrivals."""
ROBBED = "streams-status"
"""It is started again with an empty disk, as when its machine is lost."""
LOOK_S = 0.2
ON_THE_WAY = ("api", "route-requests", "work-push.transactional")
"""Every login code passes them. Each is back before the next one goes: what is promised is one death at a time."""


def schedule(roles: Iterable[str], seed: int) -> list[tuple[float, str]]:
    """(share of the large campaign, role), in the order of time; one role of each kind."""
    chance = random.Random(seed)
    kinds = sorted(role for role in roles if not re.search(r"-\d+$", role))
    return sorted((chance.uniform(FROM, TO), role) for role in kinds)


def calm_from_s(made: Sequence[Kill], roles: Sequence[str]) -> float:
    """When the last kill among these roles is long enough ago; 0.0 without one."""
    return max((kill.at_s + AFTER_KILL_S + 1 for kill in made if kill.role in roles), default=0.0)


class Killer:
    """made: the kills so far. `calm` is set while it may kill."""

    def __init__(self, chosen: Place, seed: int) -> None:
        self._place = chosen
        self.planned = schedule(programs.roles(chosen), seed)
        self.made: list[Kill] = []
        self.may = asyncio.Event()
        self.may.set()

    async def run(self, reached: Callable[[float], Awaitable[None]], say: Callable[[str], None]) -> None:
        """reached: returns once this share of the large campaign has arrived."""
        for share, role in self.planned:
            await reached(share)
            await self.may.wait()
            if role in ON_THE_WAY:
                await self._until_calm(ON_THE_WAY)
            kill = self._kill(role, await self._running(role))
            self.made.append(kill)
            say(f"kill -9 {kill.pid}: {role}{', its disk emptied' if kill.disk else ''}, after {share:.0%}")

    async def _running(self, role: str) -> int:
        """Its process; it may just be started again for another reason."""
        async with asyncio.timeout(AFTER_KILL_S):
            while True:
                pid = programs.roles(self._place).get(role)
                if pid is not None:
                    return pid
                await asyncio.sleep(LOOK_S)

    def _kill(self, role: str, pid: int) -> Kill:
        os.kill(pid, signal.SIGKILL)
        kill = Kill(role, pid, time.time(), disk=role == ROBBED)
        if kill.disk:
            shutil.rmtree(place.tables(self._place), ignore_errors=True)
        return kill

    async def until_calm(self) -> None:
        """Holds further kills back, and returns once the last one is long enough ago. `may.set()` lets them go on."""
        self.may.clear()
        await self._until_calm([role for _, role in self.planned])

    def is_over(self) -> bool:
        """All are killed, and at work again."""
        return len(self.made) == len(self.planned) and all(kill.back_after_s is not None for kill in self.made)

    async def _until_calm(self, roles: Sequence[str]) -> None:
        await asyncio.sleep(max(0.0, calm_from_s(self.made, roles) - time.time()))

    def note_back(self) -> None:
        """Writes down who is at work again."""
        at_work = programs.at_work(self._place)
        for kill in self.made:
            if kill.back_after_s is None and at_work.get(kill.role, {"pid": kill.pid})["pid"] != kill.pid:
                kill.back_after_s = time.time() - kill.at_s
