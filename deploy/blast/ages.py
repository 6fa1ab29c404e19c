"""How old the oldest unfinished record of each lane is, as the senders' own numbers say."""

from __future__ import annotations

import re

import aiohttp

from deploy.demo import programs
from deploy.demo.place import Place

SENDERS = "work-push."
_OLDEST = re.compile(r'^tidings_engine_oldest_seconds\{[^}]*topic="([^"]+)"[^}]*\} (\S+)$', re.MULTILINE)


async def of_lanes(client: aiohttp.ClientSession, place: Place) -> dict[str, float]:
    """Lane -> seconds. A sender that does not answer just now is left out."""
    found: dict[str, float] = {}
    for role, shown in programs.at_work(place).items():
        if role.startswith(SENDERS):
            try:
                async with client.get(shown["metrics"]) as answer:
                    oldest = read(await answer.text())
            except (aiohttp.ClientError, TimeoutError):
                continue
            found.update({lane: max(age_s, found.get(lane, 0.0)) for lane, age_s in oldest.items()})
    return found


def read(numbers: str) -> dict[str, float]:
    """The greatest of each topic's partitions, from a page of metrics."""
    found: dict[str, float] = {}
    for topic, age_s in _OLDEST.findall(numbers):
        found[topic] = max(found.get(topic, 0.0), float(age_s))
    return found
