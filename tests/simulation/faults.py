"""What goes wrong in a run: at least five faults, of kinds and at moments that the seed draws."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from schemas.gaps import AT_STAKE
from tests.simulation.deployment import Deployment
from tests.simulation.site import SESSION_S, Site
from tests.simulation.vendor import Mood

FIRST_S, LAST_S = 1.0, 18.0
AT_LEAST, AT_MOST = 5, 9
Fault = Callable[["Trouble"], Coroutine[Any, Any, str]]
"""Does its harm, mends what does not mend itself, and says what it was."""

_GAPS_OF = {
    "route": ("after_route_plan", "before_publish", "after_publish", "before_commit"),
    "forward": ("before_publish", "after_publish", "before_commit"),
    "work": (
        "after_claim",
        "before_send",
        "after_send",
        "after_settle",
        "before_publish",
        "after_publish",
        "before_commit",
    ),
    "fan_out": ("after_page_plan", "after_fan_out"),
    "dispatch": ("before_release", "after_release", "after_ends"),
    "status": ("after_state", "before_changelog", "after_changelog", "after_rows"),
}
assert {gap for gaps in _GAPS_OF.values() for gap in gaps} <= set(AT_STAKE)


@dataclass
class Trouble:
    """What a fault may lay its hands on."""

    site: Site
    deployment: Deployment
    rng: random.Random

    def victim(self) -> str:
        return self.rng.choice(self.deployment.names())


async def crash(trouble: Trouble) -> str:
    name = trouble.victim()
    steps = trouble.rng.randint(1, 400)
    trouble.deployment.kill_soon(name, steps)
    return f"crash of {name} {steps} steps later"


async def crash_in_gap(trouble: Trouble) -> str:
    name = trouble.victim()
    role = name.partition("/")[0].partition(" ")[0]
    gap, passed_first = trouble.rng.choice(_GAPS_OF[role]), int(trouble.rng.expovariate(0.2))
    trouble.deployment.kill_in(name, gap, passed_first)
    return f"crash of {name} {gap}, passed {passed_first} times before"


async def stand_still(trouble: Trouble) -> str:
    """For less than a session, or for longer than a lease."""
    name = trouble.victim()
    for_s = trouble.rng.choice((0.5, SESSION_S * 0.8, SESSION_S + 1.0, 12.0)) * trouble.rng.uniform(0.8, 1.2)
    trouble.deployment.stop(name, for_s)
    await asyncio.sleep(for_s)
    return f"{name} stood still for {for_s:.1f} s"


async def rebalance(trouble: Trouble) -> str:
    groups = trouble.site.groups.names()
    group = trouble.rng.choice(groups)
    trouble.site.groups.rebalance(group)
    return f"rebalance of {group}"


async def log_away(trouble: Trouble) -> str:
    for_s = trouble.rng.choice((0.3, 1.5, 6.0))
    trouble.site.network.log_there.clear()
    await asyncio.sleep(for_s)
    trouble.site.network.log_is_back()
    return f"the log was away for {for_s} s"


async def redis_away(trouble: Trouble) -> str:
    for_s = trouble.rng.choice((0.3, 2.0, 7.0))
    trouble.site.network.redis_away = True
    await asyncio.sleep(for_s)
    trouble.site.network.redis_away = False
    return f"Redis was away for {for_s} s"


async def replies_lost(trouble: Trouble) -> str:
    for_s = trouble.rng.uniform(1.0, 6.0)
    trouble.site.network.lost_replies = trouble.rng.choice((0.02, 0.2))
    await asyncio.sleep(for_s)
    trouble.site.network.lost_replies = 0.0
    return f"replies of Redis got lost for {for_s:.1f} s"


async def provider_sick(trouble: Trouble) -> str:
    rng = trouble.rng
    vendor = rng.choice(list(trouble.site.vendors.values()))
    kind = rng.choice(("error", "lost", "silent", "throttle", "refused", "drop"))
    for_s = rng.uniform(1.0, 6.0)
    vendor.mood = Mood(**{kind: rng.choice((0.1, 0.5, 1.0))})
    await asyncio.sleep(for_s)
    vendor.mood = Mood()
    return f"{vendor.name} answered with {kind} for {for_s:.1f} s"


KINDS: tuple[Fault, ...] = (
    crash,
    crash,
    crash_in_gap,
    crash_in_gap,
    stand_still,
    stand_still,
    rebalance,
    rebalance,
    log_away,
    redis_away,
    replies_lost,
    provider_sick,
    provider_sick,
)


async def all_of_them(trouble: Trouble, told: list[tuple[float, str]]) -> None:
    """Lets them happen, each at its time, and returns when all are over. told: (when it began, what it was)."""
    rng = trouble.rng
    count = rng.randint(AT_LEAST, AT_MOST)
    plan = sorted(((rng.uniform(FIRST_S, LAST_S), rng.choice(KINDS)) for _ in range(count)), key=lambda one: one[0])
    await asyncio.gather(*(_at(trouble, at_s, fault, told) for at_s, fault in plan))
    told.sort()


async def _at(trouble: Trouble, at_s: float, fault: Fault, told: list[tuple[float, str]]) -> None:
    await asyncio.sleep(at_s)
    began_s = trouble.site.loop.time()
    told.append((began_s, await fault(trouble)))
