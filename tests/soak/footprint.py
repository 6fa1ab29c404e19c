"""What a role's process holds: memory, open files, asyncio tasks."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.acceptance.world import World

TASKS = "tidings_tasks"
CACHED_BYTES = "tidings_status_rows_memory_bytes"
RSS_PAGE = 1


@dataclass(frozen=True, slots=True)
class Footprint:
    """pid: whose. rss_mb: resident memory but for the caches of status rows, which fill up to a budget of their own.
    files: open handles without the provider's connections. pooled: those; a pool closes none for being idle, so it may
    grow up to its limit. tasks: of the event loop."""

    pid: int
    rss_mb: float
    files: int
    pooled: int
    tasks: int


async def of(world: World) -> dict[str, Footprint]:
    """Role -> what it holds now."""
    shown = json.loads((world.deployment.logs / "metrics.json").read_text())
    return {role: await _of(world, one["pid"], one["metrics"]) for role, one in shown.items()}


def middle(samples: Sequence[dict[str, Footprint]]) -> dict[str, Footprint]:
    """The median of each number; for the roles that are in every sample."""
    roles = set.intersection(*(set(sample) for sample in samples))
    return {
        role: Footprint(
            samples[-1][role].pid,
            median(sample[role].rss_mb for sample in samples),
            round(median(sample[role].files for sample in samples)),
            max(sample[role].pooled for sample in samples),
            round(median(sample[role].tasks for sample in samples)),
        )
        for role in sorted(roles)
    }


def grown(before: dict[str, Footprint], after: dict[str, Footprint], growth_mb: float, pool: int) -> list[str]:
    """What is not as it was, in words: memory by more than this, files and tasks by more than a fifth and ten, a pool
    of provider connections beyond its limit; and who is another process, or gone, since one that dies leaks nothing.
    """
    found = [f"{role} is gone" for role in before.keys() - after.keys()]
    for role in sorted(before.keys() & after.keys()):
        was, now = before[role], after[role]
        if now.pid != was.pid:
            found.append(f"{role}: process {was.pid} ended, now {now.pid}")
        if now.rss_mb > was.rss_mb + growth_mb:
            found.append(f"{role}: {was.rss_mb:.0f} -> {now.rss_mb:.0f} MB")
        if now.pooled > pool:
            found.append(f"{role}: {now.pooled} connections to the provider")
        for word, earlier, later in (("files", was.files, now.files), ("tasks", was.tasks, now.tasks)):
            if later > max(earlier * 1.2, earlier + 10):
                found.append(f"{role}: {earlier} -> {later} {word}")
    return found


async def _of(world: World, pid: int, metrics_url: str) -> Footprint:
    text = (await world.ask("GET", metrics_url)).body
    files, pooled = _files(pid, int(world.deployment.outside.rpartition(":")[2]))
    return Footprint(pid, _rss_mb(pid) - _shown(text, CACHED_BYTES) / 1e6, files, pooled, int(_shown(text, TASKS)))


def _shown(text: str, name: str) -> float:
    """The value of a gauge without labels."""
    found = re.search(rf"^{name} ([0-9.e+]+)$", text, re.MULTILINE)
    assert found is not None, f"no {name} is shown"
    return float(found.group(1))


def _rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[RSS_PAGE])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _files(pid: int, provider_port: int) -> tuple[int, int]:
    """(Open handles without connections to the provider, those connections.)"""
    folder = Path(f"/proc/{pid}/fd")
    targets = []
    for one in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            targets.append(os.readlink(one))
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    pooled = {f"socket:[{line[9]}]" for line in lines if int(line[2].rpartition(":")[2], 16) == provider_port}
    to_provider = sum(target in pooled for target in targets)
    return len(targets) - to_provider, to_provider
