"""Redis loses its last second in a part of the runs, as one does that writes to its disk once a second.

Nobody may be left out for it, and all counts are true of what was told. What Redis alone kept of that second is gone:
a message may go twice, a cap may be exceeded by it. Providers are sick around it: a first call that is forgotten leaves
nothing behind, a later one the claim of the call before.
"""

from __future__ import annotations

import asyncio
import copy
import random
from typing import Any

from tests.simulation.faults import REDIS, Struck, Window
from tests.simulation.site import Site
from tests.simulation.vendor import Mood

SHARE = 0.3
FIRST_S, LAST_S = 1.5, 12.0
LOST_S = (0.1, 1.0)
AWAY_S = (0.3, 2.0)
SICK_S = 4.0
"""Before it, for the claims of calls that failed, and again after it."""
_WRITTEN_ALWAYS = "progress:"
"""Real processes write it again and again; here only what is new, so that it must not be lost."""


def draw(rng: random.Random) -> list[float]:
    """When it happens in this run, s."""
    return [rng.uniform(FIRST_S, LAST_S)] if rng.random() < SHARE else []


async def strike(site: Site, rng: random.Random, at_s: float, told: list[Window]) -> None:
    """Redis stops at this time, and comes back as it was a little before."""
    lost_s, away_s = rng.uniform(*LOST_S), rng.choice(AWAY_S)
    await asyncio.sleep(max(0.0, at_s - SICK_S))
    for vendor in site.vendors.values():
        vendor.mood = Mood(error=0.5)
    await asyncio.sleep(min(at_s, SICK_S) - lost_s)
    on_disk = [copy.deepcopy(dict(held)) for held in _memory(site)]
    await asyncio.sleep(lost_s)
    site.network.redis_away = True
    await asyncio.sleep(away_s)
    for held, kept in zip(_memory(site), on_disk, strict=True):
        kept |= {key: value for key, value in held.items() if _WRITTEN_ALWAYS in str(key)}
        held.clear()
        held.update(kept)
    site.network.redis_away = False
    struck = Struck(f"Redis was away for {away_s} s and came back {lost_s:.2f} s older", REDIS)
    told.append(Window(at_s - SICK_S, at_s + away_s, struck))
    await asyncio.sleep(SICK_S)
    for vendor in site.vendors.values():
        vendor.mood = Mood()
    told.sort()


def _memory(site: Site) -> list[dict[Any, Any]]:
    return [*site.redis.memory(), site.claims.entries, site.caps.sets, site.marks.marks, site.fallbacks.known]
