"""Child processes that end when their parent ends, however it ends. Used by the local stack and by `tidings up`."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

STOP_TIMEOUT_S = 20.0
_PR_SET_PDEATHSIG = 1


def spawn(argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Starts a child whose output is appended to `log`. Call it from the main thread.

    Linux ends the child when the *thread* that started it ends, so a short-lived thread would take it down.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else None,
            start_new_session=True,
            preexec_fn=end_with_parent(),
        )


async def begin(*argv: str, **how: Any) -> asyncio.subprocess.Process:
    """A child on the running loop; `how` as of `asyncio.create_subprocess_exec`.

    uvloop runs Python in the child before it becomes the other program. Were garbage collected there, Kafka clients
    among it would be closed in a process that has none of their threads, and it would crash instead of starting.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return await asyncio.create_subprocess_exec(*argv, **how)
    finally:
        if was_on:
            gc.enable()


def stop(child: subprocess.Popen[bytes], timeout_s: float = STOP_TIMEOUT_S) -> int:
    """Asks the child to end, then makes it; its exit code."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()


def ended_within(child: subprocess.Popen[bytes], moment_s: float) -> bool:
    """Gives the child a moment, and whether it ended in it."""
    try:
        child.wait(moment_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def end_with_parent() -> Callable[[], None] | None:
    """For `preexec_fn`: the kernel kills the child when this process is gone. None where only Linux could do it."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def in_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return in_child
