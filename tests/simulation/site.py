"""Everything of one run that no process owns: the log, Redis, providers, people, the clock; and its fixed settings."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path

from consumers.caps import CapRules
from consumers.claims import Bid, Entry
from consumers.limits import Rate
from consumers.render import Renderer
from retry_topics.ladder import LadderOptions
from schemas.messages import Channel
from schemas.policies import ContentCheck, MessageClass, OnUnknown, Policies, TemplatePolicy
from schemas.quiet_hours import QuietHours
from schemas.topics import Topics
from tests.doubles.memory_claims import MemoryClaims
from tests.doubles.memory_fallbacks import MemoryFallbacks
from tests.doubles.memory_groups import Membership, MemoryGroups
from tests.doubles.memory_guards import MemoryCaps, MemoryLookalikes
from tests.doubles.memory_log import MemoryLog
from tests.doubles.memory_redis import MemoryRedis
from tests.doubles.memory_rows import MemoryRows
from tests.doubles.sender_bench import MemoryPeople
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.network import Network, WorldClock
from tests.simulation.vendor import IDS, Vendor

PARTITIONS = 2
TOPICS = Topics()
__all__ = ["IDS"]
LEASE_S, DEADLINE_S, MARGIN_S = 8.0, 2.0, 1.0
SESSION_S = 4.0
TIERS = {"10s": 1_500, "1m": 5_000, "10m": 15_000}
"""Shorter than at a customer's, so that a run is short; their relations are the same."""
LADDER = LadderOptions(tries_most=4, base_ms=300, cap_ms=6_000, tiers=TIERS)
PROVIDERS = {Channel.EMAIL: "mailer", Channel.SMS: "texter"}

CHAT = "comment"
"""The template whose messages go out as one."""
_EMAIL, _SMS = (Channel.EMAIL,), (Channel.SMS,)
POLICIES: Policies = {
    policy.name: replace(policy, content_check=ContentCheck.OFF)  # the few people get the same again and again
    for policy in (
        TemplatePolicy("code", MessageClass.TRANSACTIONAL, _SMS, fallback=_EMAIL, fallback_after_ms=4_000),
        TemplatePolicy("receipt", MessageClass.TRANSACTIONAL, _EMAIL),
        TemplatePolicy("news", MessageClass.MARKETING, _EMAIL),
        TemplatePolicy("alert", MessageClass.MARKETING, _SMS, fallback=_EMAIL),
        TemplatePolicy("both", MessageClass.MARKETING, (Channel.EMAIL, Channel.SMS)),
        TemplatePolicy("once", MessageClass.MARKETING, _EMAIL, on_unknown=OnUnknown.RISK_LOSS),
        TemplatePolicy(CHAT, MessageClass.MARKETING, _EMAIL, digest_ms=3_000),
    )
}


class WatchedClaims(MemoryClaims):
    """Remembers when each delivery was claimed: delivery key -> times of the world, s."""

    def __init__(self, clock: WorldClock, lease_ms: int) -> None:
        super().__init__(clock, lease_ms)
        self.clock = clock
        self.taken: defaultdict[str, list[float]] = defaultdict(list)

    def _put(self, bid: Bid, mine: Entry) -> None:
        super()._put(bid, mine)
        self.taken[bid.delivery_key].append(self.clock.steady_s())


class Site:
    """One run's world. sessions: the memberships of each process, for whoever lets its sessions run out."""

    def __init__(
        self, loop: VirtualLoop, rng: random.Random, rates: dict[Channel, Rate], quiet: QuietHours, caps: CapRules
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.quiet = quiet
        self.cap_rules = caps
        self.clock = WorldClock(loop)
        self.log = MemoryLog(PARTITIONS, self.clock.now_ms, {TOPICS.leader: 1})
        self.groups = MemoryGroups(self.log.partitions_of, rng.shuffle)
        self.redis = MemoryRedis(self.clock, is_strict=True)
        self.network = Network(loop, rng, self.log, self.redis)
        self.claims = WatchedClaims(self.clock, int(LEASE_S * 1000))
        self.fallbacks = MemoryFallbacks(self.claims, self.clock)
        self.caps = MemoryCaps(self.claims, self.clock)
        self.marks = MemoryLookalikes(self.claims, self.clock)
        self.people = MemoryPeople(self.claims)
        self.vendors = {
            channel: Vendor(PROVIDERS[channel], rate, self.network, TOPICS, rng) for channel, rate in rates.items()
        }
        self.barred: dict[tuple[str, str], str] = {}
        self.renderer = renderer()
        self.disks: defaultdict[str, MemoryRows] = defaultdict(MemoryRows)
        self.sessions: defaultdict[Process, list[Membership]] = defaultdict(list)


@cache
def renderer() -> Renderer:
    """One for all runs: templates never change."""
    folder = Path(tempfile.mkdtemp(prefix="tidings-simulation-"))
    for policy in POLICIES.values():
        (folder / policy.name).mkdir()
        for channel in PROVIDERS:
            said = "{{ name }}" if policy.name == CHAT else "Hello {{ name }}"
            text = "{% block subject %}News{% endblock %}{% block text %}" + said + "{% endblock %}"
            (folder / policy.name / f"{channel}.en.j2").write_text(text)
            many = "{% for item in items %}{{ item.name }} {% endfor %}"
            (folder / policy.name / f"{channel}.digest.en.j2").write_text(text.replace(said, many))
    return Renderer(folder, {"default": "en"})
