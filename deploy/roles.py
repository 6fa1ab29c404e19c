"""The roles of a deployment: what each is called on the command line, and the modules that they live in."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from deploy.settings import Settings


@dataclass(frozen=True, slots=True)
class Role:
    """words: the command line after `tidings`. name: of logs and of the supervisor's list. environment: on top.
    nice: how far the process steps back where the cores are full.
    """

    words: tuple[str, ...]
    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    nice: int = 0


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
    ("reconcile",),
)

BEHIND = (("callbacks",), ("route", "callbacks"), ("streams", "status"), ("reconcile",))
"""Nobody's phone waits for what these tell, and the more lies before them the less each record costs them."""
STEPS_BACK = 10

SERVING = ("api", "callbacks")
"""They show their numbers at their own ports."""

MODULES = (
    *(f"deploy.processes.{room}" for room in ("facing_in", "facing_across", "on_faust", "facing_out")),
    *(f"faust.{part}" for part in ("app", "tables", "topics", "assignor.partition_assignor")),
)
"""What the roles import beside the command line itself; those of Faust when an application is made."""


def of(settings: Settings) -> Iterator[Role]:
    """Every process that `tidings up` runs for these settings; a lane may have several workers, or none.

    Where the settings name one port for the numbers, each role that needs one gets its own, from there on.
    """
    host, _, first = settings.metrics.listen.rpartition(":")
    ports = itertools.count(int(first or 0))
    for role in _of(settings):
        if int(first or 0) and role.words[0] not in SERVING:
            yield replace(role, environment={"TIDINGS_METRICS__LISTEN": f"{host}:{next(ports)}"})
        else:
            yield role


def _of(settings: Settings) -> Iterator[Role]:
    for words in ONE_OF_EACH:
        yield Role(words, "-".join(words), nice=STEPS_BACK if words in BEHIND else 0)
    for channel, priority in settings.lanes():
        lane = f"{channel}.{priority}"
        for number in range(1, settings.up.workers.get(lane, 1) + 1):
            suffix = f"-{number}" if number > 1 else ""
            yield Role(("work", lane), f"work-{lane}{suffix}")
