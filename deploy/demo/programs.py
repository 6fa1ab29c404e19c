"""The demo's child programs: `tidings up` and `tidings simulate`, awaited until they work, stopped in the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from deploy import children, ready
from deploy.demo.place import Place
from deploy.local import places
from schemas.errors import Misconfigured

START_TIMEOUT_S = 150
STOP_TIMEOUT_S = 60


@contextlib.asynccontextmanager
async def running(place: Place, *words: str) -> AsyncIterator[int]:
    """`tidings <words>` with the place's settings, ready; its process id. Ended with SIGTERM on the way out.

    Raises Misconfigured with the end of its log when it does not come up or does not end cleanly.
    """
    log = place.folder / f"{words[0]}.log"
    pipe = ready.Pipe()
    child = await _spawn(place, log, pipe, *words)
    try:
        if not await asyncio.wait_for(pipe.wait(), START_TIMEOUT_S):
            raise Misconfigured(f"`tidings {words[0]}` did not start:\n{places.tail(log)}")
        yield child.pid
    finally:
        code = await _stop(child)
    if code != 0:
        raise Misconfigured(f"`tidings {words[0]}` did not end cleanly ({code}):\n{places.tail(log)}")


async def _spawn(place: Place, log: Path, pipe: ready.Pipe, *words: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "deploy.cli", *words, "--config", str(place.settings))
    with log.open("ab") as output:
        child = await children.begin(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **place.environment, ready.VARIABLE: str(pipe.give)},
            pass_fds=(pipe.give,),
            start_new_session=True,
            preexec_fn=children.end_with_parent(),
        )
    pipe.started()
    return child


async def _stop(child: asyncio.subprocess.Process) -> int:
    if child.returncode is None:
        child.terminate()
    try:
        return await asyncio.wait_for(asyncio.shield(child.wait()), STOP_TIMEOUT_S)
    except TimeoutError:
        child.kill()
        return await child.wait()


def kill_worker(place: Place, lane: str) -> int:
    """SIGKILL to the sender of this lane, as a machine would lose it; its process id."""
    pid = roles(place)[f"work-{lane}"]
    os.kill(pid, signal.SIGKILL)
    return pid


def roles(place: Place) -> dict[str, int]:
    """Every role that runs now, and its process."""
    found: dict[str, int] = json.loads((place.logs / "processes.json").read_text())
    return found


def at_work(place: Place) -> dict[str, dict[str, Any]]:
    """Those of them that said that they can work: `pid`, and `metrics`, where their numbers are."""
    found: dict[str, dict[str, Any]] = json.loads((place.logs / "metrics.json").read_text())
    return found
