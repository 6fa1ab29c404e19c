"""The processes of one run: started, killed, stopped and gone on with, and started again by their supervisor."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from schemas.errors import Transient
from tests.simulation.loop import Process
from tests.simulation.roles import ROLES, Ground
from tests.simulation.site import SESSION_S, Site

INSTANCES = {"work email.bulk": 2, "dispatch": 2, "status": 2, "fan_out": 2}
"""Of every other role there is one."""


class Deployment:
    """deaths: what processes died of by themselves. crashes: (time s, process) of those that were killed."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._rng = random.Random(site.rng.random())
        self._running: dict[str, Process] = {}
        self._grounds: dict[str, Ground] = {}
        self.deaths: list[tuple[str, BaseException]] = []
        self.crashes: list[tuple[float, str]] = []
        self.starts = 0

    def start_all(self) -> None:
        for role in ROLES:
            for number in range(INSTANCES.get(role, 1)):
                self._site.network.in_world(self._rng.uniform(0, 0.5), self._start, f"{role}/{number}")

    def names(self) -> list[str]:
        return list(self._running)

    def kill(self, name: str) -> None:
        self._running[name].die()

    def kill_all(self) -> None:
        for process in list(self._running.values()):
            process.die()

    def kill_soon(self, name: str, after_steps: int) -> None:
        """After so many more steps of it."""
        process = self._running[name]
        process.dies_at_step = process.steps + max(1, after_steps)

    def kill_in(self, name: str, gap: str, passed_first: int) -> None:
        """When it passes this gap, after having passed it so many times."""
        self._grounds[name].dies_in = (gap, passed_first)

    def leader(self) -> str:
        """The dispatch that leads: it works, the other one waits."""
        return max((name for name in self._running if name.startswith("dispatch/")), key=self._steps)

    def _steps(self, name: str) -> int:
        return self._running[name].steps if self._running[name].alive else 0

    def stop_soon(self, name: str, after_steps: int, for_s: float) -> None:
        """After so many more steps of it, so in the middle of what it does."""
        process = self._running[name]
        process.stop = lambda: self.stop(name, for_s)
        process.stops_at_step = process.steps + max(1, after_steps)

    def stop_in(self, name: str, gap: str, for_s: float, then: Callable[[], None] = lambda: None) -> None:
        """When it passes this gap next; then: what else happens at that moment."""
        ground = self._grounds[name]

        def stop() -> None:
            self.stop(name, for_s)
            then()

        ground.stop = stop
        ground.stops_in = gap

    def stop(self, name: str, for_s: float) -> None:
        """It stands still for a while; others get its partitions when that is longer than a session."""
        process = self._running[name]
        if not process.alive or process.still:
            return
        self._site.loop.stall(process)
        self._site.network.in_world(SESSION_S, self._session_ends, process, True)
        self._site.network.in_world(for_s, self._site.loop.wake, process)

    def _start(self, name: str) -> None:
        site = self._site
        process = site.loop.process(name)
        process.on_death.append(lambda: self._died(process))
        ground = Ground(site, process, random.Random(self._rng.random()))
        self._grounds[name] = ground
        self._running[name] = process
        self.starts += 1
        main = ROLES[name.partition("/")[0]]
        process.context.run(self._begin, main(ground), process)

    def _begin(self, main: object, process: Process) -> None:
        task = self._site.loop.create_task(main)
        task.add_done_callback(lambda ended: self._ended(ended, process))

    def _ended(self, task: asyncio.Task[None], process: Process) -> None:
        if process.alive and not task.cancelled():
            error = task.exception()
            if error is not None and not isinstance(error, Transient):
                self.deaths.append((process.name, error))
            process.die()

    def _died(self, process: Process) -> None:
        site = self._site
        self.crashes.append((site.loop.time(), process.name))
        site.network.in_world(SESSION_S, self._session_ends, process, False)
        site.network.in_world(self._rng.uniform(0.2, 2.0), self._start, process.name)

    def _session_ends(self, process: Process, only_if_still: bool) -> None:
        if only_if_still and not process.still:
            return
        for member in self._site.sessions.pop(process, []):
            member.silent()
