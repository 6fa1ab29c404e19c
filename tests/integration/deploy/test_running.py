"""A role that failed ends, whatever its libraries have left running: only then is it started again."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio
from deploy import running

running.END_WITHIN_S = 0.2


async def stubborn():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


async def main():
    main.left = asyncio.ensure_future(stubborn())
    await asyncio.sleep(0)
    raise ValueError("a record that nobody can read")


running.run("status", main)
"""


def test_a_failed_role_ends_although_a_task_will_not_stop() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    written = ended.stdout + ended.stderr
    assert "process.failing" in written
    assert "a record that nobody can read" in written
    assert "stubborn" in written, "it says what would not stop"


WITH_A_THREAD = """
import threading
from deploy import running

running.END_WITHIN_S = 0.2


async def main():
    threading.Thread(target=threading.Event().wait, name="heartbeats").start()
    raise ValueError("a record that nobody can read")


running.run("status", main)
"""


def test_a_failed_role_ends_although_a_thread_will_not_stop() -> None:
    """K08: a consumer's thread that is left alone keeps its partitions from everybody else."""
    ended = subprocess.run(
        [sys.executable, "-c", WITH_A_THREAD], capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 1
    written = ended.stdout + ended.stderr
    assert "a record that nobody can read" in written
    assert "heartbeats" in written, "it says what would not stop"
