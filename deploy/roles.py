"""The roles of a deployment: what each is called on the command line, and the modules that they live in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deploy.settings import Settings


@dataclass(frozen=True, slots=True)
class Role:
    """words: the command line after `tidings`. name: of logs and of the supervisor's list."""

    words: tuple[str, ...]
    name: str


ONE_OF_EACH = (
    ("api",),
    ("callbacks",),
    ("route", "requests"),
    ("route", "bulk"),
    ("route", "callbacks"),
    ("route", "recipients"),
    ("dispatch",),
    ("streams", "fan_out"),
    ("streams", "status"),
    ("forward",),
)

MODULES = (
    *(f"deploy.processes.{room}" for room in ("facing_in", "facing_across", "on_faust", "facing_out")),
    *(f"faust.{part}" for part in ("app", "tables", "topics", "assignor.partition_assignor")),
)
"""What the roles import beside the command line itself; those of Faust when an application is made."""


def of(settings: Settings) -> Iterator[Role]:
    """Every process that `tidings up` runs for these settings; a lane may have several workers, or none."""
    for words in ONE_OF_EACH:
        yield Role(words, "-".join(words))
    for channel, priority in settings.lanes():
        lane = f"{channel}.{priority}"
        for number in range(1, settings.up.workers.get(lane, 1) + 1):
            suffix = f"-{number}" if number > 1 else ""
            yield Role(("work", lane), f"work-{lane}{suffix}")
