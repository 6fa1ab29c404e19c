"""What a run is about: people, campaigns, singles, and what changes on the way; all of it drawn from the seed."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from schemas import codec, keys
from schemas.messages import NotificationRequested, Priority
from schemas.records import Outgoing
from schemas.stores import Profile
from tests.doubles import campaigns
from tests.simulation.site import POLICIES, TOPICS, Site

TENANT = "default"
CAMPAIGN_TEMPLATES = ("news", "alert", "both", "once", "news")
EXPIRES_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Campaign:
    """users: in order of their places, repeats included. starts_s: when it is accepted."""

    id: str
    template: str
    users: tuple[str, ...]
    page_size: int
    weight: int
    starts_s: float


@dataclass(frozen=True, slots=True)
class Single:
    event_id: str
    user_id: str
    template: str
    priority: str
    starts_s: float

    @property
    def lane_priority(self) -> Priority:
        return POLICIES[self.template].priority(self.priority)


@dataclass
class Story:
    """addresses: where the singles were accepted: (event id, address), in order. asked_ms: campaign -> accepted at."""

    people: dict[str, Profile]
    campaigns: tuple[Campaign, ...]
    singles: tuple[Single, ...]
    addresses: list[tuple[Single, keys.Address, float]] = field(default_factory=list)
    accepted: dict[str, int] = field(default_factory=dict)

    @property
    def recipients(self) -> int:
        return sum(len(campaign.users) for campaign in self.campaigns)


def drawn(rng: random.Random) -> Story:
    people = {f"u{number}": _person(rng, number) for number in range(90)}
    users = list(people)
    sizes = [rng.randint(90, 110), rng.randint(60, 70), rng.randint(50, 60)]
    stories = tuple(_campaign(rng, f"c{number}", users, size) for number, size in enumerate(sizes))
    singles = tuple(_single(rng, f"e{number}", users) for number in range(30))
    return Story(people, stories, singles)


def _person(rng: random.Random, number: int) -> Profile:
    email = f"u{number}@example.org" if rng.random() < 0.95 else ""
    phone = f"+4930{number:06}" if rng.random() < 0.8 else ""
    opt_outs = frozenset({("email", "marketing")}) if rng.random() < 0.05 else frozenset()
    return Profile(1, email=email, phone=phone, locale="en", opt_outs=opt_outs)


def _campaign(rng: random.Random, name: str, users: list[str], size: int) -> Campaign:
    chosen = rng.sample(users, min(size, len(users)))
    chosen += [rng.choice(chosen) for _ in range(size - len(chosen))]
    template = rng.choice(CAMPAIGN_TEMPLATES)
    return Campaign(name, template, tuple(chosen), rng.randint(6, 20), rng.randint(1, 3), rng.uniform(0.5, 6.0))


def _single(rng: random.Random, name: str, users: list[str]) -> Single:
    template = rng.choice(("code", "receipt", "news", "code"))
    priority = "bulk" if rng.random() < 0.2 else ""
    return Single(name, rng.choice(users), template, priority, rng.uniform(0.5, 25.0))


async def tell(site: Site, story: Story) -> None:
    """Lets it happen; returns once everything has been accepted."""
    for user_id, profile in story.people.items():
        site.people.write(user_id, profile)
    moments: list[tuple[float, Campaign | Single]] = [(one.starts_s, one) for one in story.campaigns]
    moments += [(one.starts_s, one) for one in story.singles]
    for starts_s, one in sorted(moments, key=lambda moment: moment[0]):
        await asyncio.sleep(starts_s - site.loop.time())
        await site.network.log_there.wait()
        if isinstance(one, Campaign):
            await _accept(site, story, one)
        else:
            _accept_single(site, story, one)


async def _accept(site: Site, story: Story, campaign: Campaign) -> None:
    now_ms = site.clock.now_ms()
    story.accepted[campaign.id] = now_ms
    await campaigns.accept(
        site.log,
        TOPICS,
        campaign.id,
        campaign.users,
        page_size=campaign.page_size,
        template=campaign.template,
        weight=campaign.weight,
        accepted_at_ms=now_ms,
        expires_at_ms=now_ms + EXPIRES_MS,
        params='{"name": "all"}',
    )


def _accept_single(site: Site, story: Story, single: Single) -> None:
    now_ms = site.clock.now_ms()
    message = NotificationRequested(
        TENANT,
        single.event_id,
        single.user_id,
        single.template,
        params='{"name": "you"}',
        priority=single.priority,
        accepted_at_ms=now_ms,
        expires_at_ms=now_ms + EXPIRES_MS,
    )
    bulk = single.lane_priority is Priority.BULK
    topic = TOPICS.requests_bulk(TENANT) if bulk else TOPICS.requests(TENANT)
    key = keys.user_key(TENANT, single.user_id).encode()
    placed = site.log.append(Outgoing(topic, key, codec.encode(message)))
    address = keys.single_address(keys.log_epoch("here", topic), placed.partition, placed.offset)
    story.addresses.append((single, address, site.loop.time()))
