"""The supervisor's side of `fork_server.py`: asks for roles, hears when they end.

The server begins to import when the client is entered, so other work can go on meanwhile. One that died took its
roles with it; the next role asked for gets a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from deploy import children
from deploy.local import places
from schemas.errors import Misconfigured, Transient

log = logging.getLogger(__name__)

READ_BYTES = 4096


class Child:
    """A running role. Only its parent, the server, can tell when it ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        """Its exit code; the negative number of the signal that ended it."""
        return await asyncio.shield(self._ended)

    def send(self, number: signal.Signals) -> None:
        """Does nothing to one that has ended."""
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def ended(self, code: int) -> None:
        self._ended.set_result(code)


class ForkClient:
    """Starts roles. program, needed: names of modules, see `fork_server`. log: what the server itself has to say."""

    def __init__(self, program: str, needed: Sequence[str], log: Path) -> None:
        self._modules = (program, *needed)
        self._log = log
        self._turn = asyncio.Lock()
        self._line: _Line | None = None
        self._has_worked = False

    async def __aenter__(self) -> Self:
        self._line = await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends whatever still runs."""
        if self._line is not None:
            await self._line.close()

    async def start(
        self, words: Sequence[str], output: int, ready: int, environment: Mapping[str, str] | None = None
    ) -> Child:
        """A role with these words; gives it copies of the descriptors. environment: on top of the server's.

        Raises Transient when the server is gone, Misconfigured when it never worked.
        """
        async with self._turn:
            line = await self._working_line()
            child = await line.ask({"words": list(words), "environment": dict(environment or {})}, output, ready)
        if child is None:
            kind = Transient if self._has_worked else Misconfigured
            raise kind(f"the process that starts the roles ended:\n{places.tail(self._log, 12)}")
        self._has_worked = True
        return child

    async def _working_line(self) -> _Line:
        if self._line is not None and self._line.is_lost:
            await self._line.close()
            self._line = None
        if self._line is None:
            self._line = await self._open()
        return self._line

    async def _open(self) -> _Line:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with theirs, self._log.open("wb") as output:
            server = await children.begin(
                *(sys.executable, "-P", "-m", "deploy.fork_server", str(theirs.fileno()), *self._modules),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                preexec_fn=children.end_with_parent(),
            )
        return _Line(server, ours)


class _Line:
    """To one running server. is_lost: it is gone, and every child of it."""

    def __init__(self, server: asyncio.subprocess.Process, door: socket.socket) -> None:
        self._server = server
        self._door = door
        self._running: dict[int, Child] = {}
        self._asked: asyncio.Future[Child | None] | None = None
        self._listening = asyncio.create_task(self._listen())
        self.is_lost = False

    async def ask(self, request: Mapping[str, Any], output: int, ready: int) -> Child | None:
        """One at a time. None when the server is gone."""
        self._asked = asyncio.get_running_loop().create_future()
        try:
            socket.send_fds(self._door, [json.dumps(request).encode()], [output, ready])
        except ConnectionError:
            return None
        return await self._asked

    async def close(self) -> None:
        """The server ends its forks and itself when the door closes."""
        self._listening.cancel()
        await asyncio.wait([self._listening])
        self._door.close()
        await self._server.wait()

    async def _listen(self) -> None:
        loop, unfinished = asyncio.get_running_loop(), b""
        with contextlib.suppress(ConnectionError):
            while heard := await loop.sock_recv(self._door, READ_BYTES):
                *lines, unfinished = (unfinished + heard).split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
        self._lose()

    def _hear(self, answer: dict[str, int]) -> None:
        if "ended" in answer:
            self._running.pop(answer["ended"]).ended(answer["code"])
            return
        child = self._running[answer["began"]] = Child(answer["began"])
        if self._asked is None or self._asked.done():  # who asked was cancelled meanwhile
            child.send(signal.SIGKILL)
        else:
            self._asked.set_result(child)

    def _lose(self) -> None:
        self.is_lost = True
        log.error("up.fork_server_ended", extra={"with_it": len(self._running)})
        for child in self._running.values():
            child.send(signal.SIGKILL)  # where the kernel has not done it
            child.ended(-signal.SIGKILL)
        self._running.clear()
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(None)
