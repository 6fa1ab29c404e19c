"""Processes that stand still and wake up, and second ones that go on in their place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.acceptance.deployment import SETTINGS, program
from tests.acceptance.world import World
from tests.kills import deployment as with_traps
from tests.kills.role import FOLDER


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """It has stopped by itself; goes on afterwards."""
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def second(world: World, *words: str) -> Iterator[Path]:
    """Another process of a role beside the deployment's own, ready, in a folder of its own."""
    folder = world.deployment.folder / f"second-{world.token}"
    folder.mkdir()
    settings = shutil.copy(world.deployment.folder / SETTINGS, folder)
    (folder / FOLDER).symlink_to(world.deployment.folder / FOLDER)
    with program(folder, (*words, "--config", str(settings)), command=with_traps.ROLE):
        yield folder


async def until_logged(world: World, log: Path, event: str, behind: int = 0) -> None:
    """behind: so many bytes were there before."""

    async def look() -> str:
        return (await asyncio.to_thread(log.read_bytes))[behind:].decode()

    await world.until(look, lambda text: event in text, f"{log.name} tells of {event}")


def log_of(world: World, pid: int) -> Path:
    """Of a process that the supervisor started."""
    found = json.loads((world.deployment.logs / "processes.json").read_text())
    [name] = [name for name, running in found.items() if running == pid]
    return world.deployment.logs / f"{name}.log"
