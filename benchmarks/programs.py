"""Child processes: Tidings' roles, stand-ins, references. Awaited until they work, stopped or killed in the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy import children, ready
from deploy.local import places

READY_WITHIN_S = 240
STOP_WITHIN_S = 60
OURS = ("KAFKA_BOOTSTRAP", "REDIS_URL", "TIDINGS_")
"""Variables that would win over the settings that the bench writes."""


class NotMeasured(Exception):
    """Something that has to work for a figure did not; the text is for the person who started the bench."""


@dataclass(frozen=True, slots=True)
class Program:
    """A running child. log: what it printed."""

    name: str
    child: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.child.pid

    def kill(self) -> None:
        """As a machine would lose it; its end is then as wished."""
        os.kill(self.pid, signal.SIGKILL)


@contextlib.asynccontextmanager
async def running(name: str, command: Sequence[str], folder: Path) -> AsyncIterator[Program]:
    """The command (after the interpreter), ready; ended with SIGTERM on the way out. Call it from the main thread.

    Raises NotMeasured with the end of its log when it does not come up or does not end cleanly.
    """
    log = folder / f"{name}.log"
    hear, tell = os.pipe()
    child = _spawn(command, log, tell)
    os.close(tell)
    try:
        if not await asyncio.to_thread(_heard, hear):
            raise NotMeasured(f"{name} did not come up:\n{places.tail(log)}")
        yield Program(name, child, log)
    finally:
        os.close(hear)
        code = await asyncio.to_thread(children.stop, child, STOP_WITHIN_S)
    if code not in (0, -signal.SIGTERM, -signal.SIGKILL):
        raise NotMeasured(f"{name} ended with {code}:\n{places.tail(log)}")


def _spawn(command: Sequence[str], log: Path, tell: int) -> subprocess.Popen[bytes]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**kept, ready.VARIABLE: str(tell)},
            pass_fds=(tell,),
            start_new_session=True,
            preexec_fn=children.end_with_parent(),
        )


def _heard(hear: int) -> bool:
    """Whether the child said that it can work, and not merely ended."""
    return bool(select.select([hear], [], [], READY_WITHIN_S)[0]) and os.read(hear, 1) == b"1"
