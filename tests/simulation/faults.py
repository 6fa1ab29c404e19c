"""What goes wrong in a run: at least five faults, of kinds and at moments that the seed draws."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from schemas.gaps import AT_STAKE
from schemas.messages import Priority
from schemas.records import Outgoing
from tests.simulation import workload
from tests.simulation.deployment import Deployment
from tests.simulation.roles import ROLES
from tests.simulation.site import PROVIDERS, SESSION_S, TIERS, TOPICS, Site
from tests.simulation.vendor import Mood
from tests.simulation.workload import Story, entry_topic

FIRST_S, LAST_S = 0.8, 13.0
AT_LEAST, AT_MOST = 5, 9
LOG, REDIS = "log", "redis"
DUPLICATED_AT_ONCE = 6


class Struck(NamedTuple):
    """What went wrong, and whom it touches: a process's role, a provider, `LOG`, `REDIS`."""

    text: str
    touched: str


class Window(NamedTuple):
    began_s: float
    ended_s: float
    struck: Struck


Fault = Callable[["Trouble"], Coroutine[Any, Any, Struck]]
"""Does its harm, mends what does not mend itself, and says what it was."""

_GAPS_OF = {
    "route": ("after_route_plan", "before_publish", "after_publish", "before_commit"),
    "forward": ("before_publish", "after_publish", "before_commit"),
    "work": (
        "after_claim",
        "before_send",
        "after_send",
        "after_settle",
        "after_fallback",
        "before_publish",
        "after_publish",
        "before_commit",
    ),
    "fan_out": ("after_page_plan", "after_fan_out"),
    "dispatch": ("before_release", "after_release", "after_ends", "after_held_release"),
    "status": ("after_state", "before_changelog", "after_changelog", "after_rows"),
}
assert {gap for gaps in _GAPS_OF.values() for gap in gaps} <= set(AT_STAKE)


@dataclass
class Trouble:
    """What a fault may lay its hands on. poison: what nobody can read, as it was written: (topic, value)."""

    site: Site
    story: Story
    deployment: Deployment
    rng: random.Random
    poison: list[tuple[str, bytes]] = field(default_factory=list)

    def victim(self) -> str:
        return self.rng.choice(self.deployment.names())

    def pause_all(self, for_s: float) -> None:
        """The owner of the campaigns pauses them, and lets them go on."""
        loop = self.site.loop
        loop.create_task(workload.pause_all(self.site, self.story, for_s), context=loop.world.context)


async def crash(trouble: Trouble) -> Struck:
    name, steps = trouble.victim(), trouble.rng.randint(1, 400)
    trouble.deployment.kill_soon(name, steps)
    return Struck(f"crash of {name} {steps} steps later", role_of(name))


async def crash_in_gap(trouble: Trouble) -> Struck:
    name = trouble.victim()
    gap = trouble.rng.choice(_GAPS_OF[role_of(name).partition(" ")[0]])
    passed_first = int(trouble.rng.expovariate(0.2))
    trouble.deployment.kill_in(name, gap, passed_first)
    return Struck(f"crash of {name} {gap}, passed {passed_first} times before", role_of(name))


async def stand_still(trouble: Trouble) -> Struck:
    """For less than a session, or for longer than a lease."""
    name = trouble.victim()
    for_s = trouble.rng.choice((0.5, SESSION_S * 0.8, SESSION_S + 1.0, 12.0)) * trouble.rng.uniform(0.8, 1.2)
    trouble.deployment.stop(name, for_s)
    await asyncio.sleep(for_s)
    return Struck(f"{name} stood still for {for_s:.1f} s", role_of(name))


async def two_leaders(trouble: Trouble) -> Struck:
    """A leader stands still until another one leads, and goes on in the middle of its step."""
    name, for_s = trouble.deployment.leader(), SESSION_S + trouble.rng.uniform(0.3, 3.0)
    gap = trouble.rng.choice(("", *_GAPS_OF["dispatch"]))
    if gap:
        trouble.deployment.stop_in(name, gap, for_s)
    else:
        trouble.deployment.stop_soon(name, trouble.rng.randint(1, 40), for_s)
    await asyncio.sleep(for_s + 1.0)
    return Struck(f"{name} stood still {gap} for {for_s:.1f} s", "dispatch")


async def held_again(trouble: Trouble) -> Struck:
    """All is paused and goes on; what then leaves hold is paused again before the leader has buried what left."""
    rng, deployment = trouble.rng, trouble.deployment
    await workload.pause_all(trouble.site, trouble.story, rng.uniform(0.5, 2.0))
    name, for_s = deployment.leader(), rng.uniform(1.0, SESSION_S * 0.8)
    deployment.stop_in(name, "after_held_release", for_s, lambda: trouble.pause_all(for_s + 0.5))
    await asyncio.sleep(for_s + 1.0)
    return Struck(f"{name} stood still after_held_release for {for_s:.1f} s, and all were paused again", "dispatch")


async def rebalance(trouble: Trouble) -> Struck:
    group = trouble.rng.choice(trouble.site.groups.names())
    trouble.site.groups.rebalance(group)
    role = next(role for role in ROLES if TOPICS.group(role) == group)
    return Struck(f"rebalance of {role}", role)


async def log_away(trouble: Trouble) -> Struck:
    for_s = trouble.rng.choice((0.3, 1.5, 6.0))
    trouble.site.network.log_there.clear()
    await asyncio.sleep(for_s)
    trouble.site.network.log_is_back()
    return Struck(f"the log was away for {for_s} s", LOG)


async def redis_away(trouble: Trouble) -> Struck:
    for_s = trouble.rng.choice((0.3, 2.0, 7.0))
    trouble.site.network.redis_away = True
    await asyncio.sleep(for_s)
    trouble.site.network.redis_away = False
    return Struck(f"Redis was away for {for_s} s", REDIS)


async def replies_lost(trouble: Trouble) -> Struck:
    for_s = trouble.rng.uniform(1.0, 6.0)
    trouble.site.network.lost_replies = trouble.rng.choice((0.02, 0.2))
    await asyncio.sleep(for_s)
    trouble.site.network.lost_replies = 0.0
    return Struck(f"replies of Redis got lost for {for_s:.1f} s", REDIS)


async def provider_sick(trouble: Trouble) -> Struck:
    rng = trouble.rng
    vendor = rng.choice(list(trouble.site.vendors.values()))
    kind = rng.choice(("error", "lost", "silent", "throttle", "refused", "drop"))
    for_s = rng.uniform(1.0, 6.0)
    vendor.mood = Mood(**{kind: rng.choice((0.1, 0.5, 1.0))})
    await asyncio.sleep(for_s)
    vendor.mood = Mood()
    return Struck(f"{vendor.name} answered with {kind} for {for_s:.1f} s", vendor.name)


async def written_again(trouble: Trouble) -> Struck:
    """Records that are there come a second time, in a place of their own."""
    log, rng = trouble.site.log, trouble.rng
    topic = rng.choice(_REPEATABLE)
    records = log.records(topic)
    for record in rng.sample(records, min(DUPLICATED_AT_ONCE, len(records))):
        log.append(Outgoing(topic, record.key, record.value, record.headers, record.partition))
    return Struck(f"records of {topic} were written again", "")


async def poisoned(trouble: Trouble) -> Struck:
    """A record that nobody can read."""
    topic = trouble.rng.choice(_POISONED)
    value = b"\x00\x00\x00\x00\x63" + trouble.rng.randbytes(20)
    trouble.site.log.append(Outgoing(topic, b"default/x", value))
    trouble.poison.append((topic, value))
    return Struck(f"poison in {topic}", "")


def role_of(process: str) -> str:
    return process.partition("/")[0]


_LANES = [TOPICS.lane(channel, priority) for channel in PROVIDERS for priority in Priority]
_TIERS = [TOPICS.tier(channel, priority, tier) for channel in PROVIDERS for priority in Priority for tier in TIERS]
_REPEATABLE = (TOPICS.pages, TOPICS.status, TOPICS.callbacks, TOPICS.hold, *_LANES, *_LANES, *_TIERS)
_POISONED = (TOPICS.pages, TOPICS.status, TOPICS.callbacks, *map(entry_topic, Priority), *_LANES)
KINDS: tuple[Fault, ...] = (
    crash,
    crash,
    crash_in_gap,
    crash_in_gap,
    stand_still,
    stand_still,
    two_leaders,
    two_leaders,
    held_again,
    rebalance,
    rebalance,
    log_away,
    redis_away,
    replies_lost,
    provider_sick,
    provider_sick,
    written_again,
    poisoned,
)


async def all_of_them(trouble: Trouble, told: list[Window]) -> None:
    """Lets them happen, each at its time, and returns when all are over."""
    rng = trouble.rng
    count = rng.randint(AT_LEAST, AT_MOST)
    plan = sorted(((rng.uniform(FIRST_S, LAST_S), rng.choice(KINDS)) for _ in range(count)), key=lambda one: one[0])
    await asyncio.gather(*(_at(trouble, at_s, fault, told) for at_s, fault in plan))
    told.sort()


async def _at(trouble: Trouble, at_s: float, fault: Fault, told: list[Window]) -> None:
    await asyncio.sleep(at_s)
    began_s = trouble.site.loop.time()
    struck = await fault(trouble)
    told.append(Window(began_s, trouble.site.loop.time(), struck))
