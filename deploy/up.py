"""`tidings up`: every role as a process of its own on one machine, restarted when it dies, stopped together.

`fork_server.py` starts them. Each role's log is a file of its own, kept short (`role_logs.py`); `processes.json`
beside them names the running process ids, and `metrics.json` where those that work show their numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy import ready, role_logs, roles, running
from deploy.fork_client import Child, ForkClient
from deploy.local import places
from schemas.errors import Misconfigured, Transient

log = logging.getLogger(__name__)

BACKOFF_MOST_S = 15.0
CALM_AFTER_S = 30.0
STOP_WITHIN_S = running.STOP_WITHIN_S + 10
"""Of the supervisor itself: longer than it waits for a role, which is longer than a role's own patience."""


@dataclass(frozen=True, slots=True)
class Waits:
    """backoff_first_s: the first pause before a restart, and again after a role has lasted calm_after_s.

    stop_within_s: longer than a role's own patience. logs_every_s: how often logs are looked at for their length.
    """

    backoff_first_s: float = 0.5
    calm_after_s: float = CALM_AFTER_S
    stop_within_s: float = running.STOP_WITHIN_S + 5
    logs_every_s: float = 60.0


class Supervisor:
    """Keeps a list of roles running. forks: is entered already. is_ready: by name, set when the role first works."""

    def __init__(
        self,
        wanted: Sequence[roles.Role],
        options: Sequence[str],
        logs: Path,
        forks: ForkClient,
        waits: Waits | None = None,
    ) -> None:
        self._wanted = tuple(wanted)
        self._options = tuple(options)
        self._logs = logs
        self._forks = forks
        self._waits = waits or Waits()
        self._running: dict[str, int] = {}
        self._metrics: dict[str, str] = {}
        self.is_ready = {role.name: asyncio.Event() for role in wanted}

    async def run(self, ready_within_s: float) -> None:
        """Until cancelled. Raises Misconfigured when a role refuses to start or is not ready in time."""
        self._logs.mkdir(parents=True, exist_ok=True)
        try:
            async with asyncio.TaskGroup() as group:
                for role in self._wanted:
                    group.create_task(self._keep(role))
                logs = [self._log_of(role.name) for role in self._wanted]
                group.create_task(role_logs.keep_short(logs, self._waits.logs_every_s))
                await self._await_ready(ready_within_s)
                log.info("up.ready", extra={"processes": len(self._wanted), "logs": str(self._logs)})
                ready.tell()
        except* Misconfigured as refused:
            raise Misconfigured(str(refused.exceptions[0])) from None

    async def _await_ready(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                for event in self.is_ready.values():
                    await event.wait()
        except TimeoutError:
            late = [name for name, event in self.is_ready.items() if not event.is_set()]
            tails = "\n".join(f"--- {name}\n{places.tail(self._log_of(name), 15)}" for name in late[:3])
            raise Misconfigured(f"not ready within {within_s:g} s: {', '.join(late)}\n{tails}") from None

    async def _keep(self, role: roles.Role) -> None:
        """One child after the other; a pause between them that grows until one of them lasts."""
        loop = asyncio.get_running_loop()
        backoff_s = self._waits.backoff_first_s
        while True:
            began = loop.time()
            code = await self._once(role)
            if code == running.MISCONFIGURED:
                raise Misconfigured(f"{role.name} refused to start:\n{_why(places.tail(self._log_of(role.name), 100))}")
            if loop.time() - began > self._waits.calm_after_s:
                backoff_s = self._waits.backoff_first_s
            said = places.tail(self._log_of(role.name), 1)
            told = {"child": role.name, "code": code, "again_in_s": backoff_s, "said": said}
            log.warning("up.process_ended", extra=told)
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MOST_S)

    async def _once(self, role: roles.Role) -> int:
        """Runs one child to its end; ends it when this task is cancelled."""
        pipe = ready.Pipe()
        try:
            child = await self._spawn(role, pipe)
        except Transient as error:
            log.error("up.process_not_started", extra={"child": role.name, "error": str(error)})
            return running.TRY_LATER
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._note_ready(role, pipe))
            try:
                code = await child.wait()
            finally:
                listening.cancel()
                await self._end(child)
                self._note(role.name, None)
        return code

    async def _spawn(self, role: roles.Role, pipe: ready.Pipe) -> Child:
        path = self._log_of(role.name)
        try:
            with path.open("ab") as output:
                words = (*role.words, *self._options)
                child = await self._forks.start(words, output.fileno(), pipe.give, role.environment)
        finally:
            pipe.started()
        self._note(role.name, child.pid)
        return child

    async def _end(self, child: Child) -> None:
        child.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._waits.stop_within_s):
                await child.wait()
        except TimeoutError:
            child.send(signal.SIGKILL)
            await child.wait()

    async def _note_ready(self, role: roles.Role, pipe: ready.Pipe) -> None:
        if await pipe.wait():
            log.info("up.process_ready", extra={"child": role.name})
            self._metrics[role.name] = pipe.metrics_url
            pid = self._running.get(role.name)
            self._note(role.name, pid)
            if role.nice and pid is not None:  # not before: it has its own session only by now
                _step_back(pid, os.getpriority(os.PRIO_PROCESS, 0) + role.nice)
            self.is_ready[role.name].set()

    def _log_of(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _note(self, name: str, pid: int | None) -> None:
        """Keeps processes.json and metrics.json true."""
        if pid is None:
            self._running.pop(name, None)
            self._metrics.pop(name, None)
        else:
            self._running[name] = pid
        self._write("processes.json", self._running)
        shown = {name: {"pid": self._running[name], "metrics": url} for name, url in self._metrics.items() if url}
        self._write("metrics.json", shown)

    def _write(self, name: str, content: Mapping[str, object]) -> None:
        """Readers never see half a file."""
        unfinished = self._logs / f"{name}.part"
        unfinished.write_text(json.dumps(content, indent=1))
        unfinished.replace(self._logs / name)


def _step_back(pid: int, nice: int) -> None:
    """Each role has a session of its own; where Linux groups by sessions, it weighs the groups and no process."""
    with contextlib.suppress(ProcessLookupError):  # it may have ended by now
        os.setpriority(os.PRIO_PROCESS, pid, nice)
    with contextlib.suppress(OSError):  # no Linux, or no such groups
        Path(f"/proc/{pid}/autogroup").write_text(str(min(nice, 19)))


def _why(tail: str) -> str:
    """What a process said to people as it ended, without its log's own lines; all of the tail when it said nothing."""
    said = ("\n" + tail).rpartition(f"\n{running.SAYS}")[2]
    return said or tail
