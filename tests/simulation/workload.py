"""What a run is about: people, campaigns, singles, and what changes on the way; all of it drawn from the seed."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from schemas import codec, keys
from schemas.messages import CampaignControl, CampaignOrder, NotificationRequested, Priority
from schemas.records import Outgoing
from schemas.stores import Profile
from tests.doubles import campaigns
from tests.simulation.site import CHAT, POLICIES, TOPICS, Site

TENANT = "default"
PEOPLE = 90
CAMPAIGN_TEMPLATES = ("news", "alert", "both", "once", "news")
LONG_MS, SHORT_MS = 3_600_000, 9_000
MARKETING = ("email", "marketing")


@dataclass(frozen=True, slots=True)
class Campaign:
    """users: in order of their places, repeats included. starts_s: when it is accepted; orders: (when, what)."""

    id: str
    template: str
    users: tuple[str, ...]
    page_size: int
    weight: int
    starts_s: float
    lives_ms: int
    orders: tuple[tuple[float, CampaignOrder], ...] = ()


@dataclass(frozen=True, slots=True)
class Single:
    """cancelled_s: when its caller takes it back; 0: never. asked_twice: the same request is accepted a second time.
    waits_ms: how long after its acceptance it is to be sent.
    """

    event_id: str
    user_id: str
    template: str
    priority: str
    starts_s: float
    lives_ms: int
    cancelled_s: float
    asked_twice: bool
    waits_ms: int

    @property
    def lane_priority(self) -> Priority:
        return POLICIES[self.template].priority(self.priority)


@dataclass(frozen=True, slots=True)
class Change:
    """Of one person at one moment: an opt-out from marketing by email, or another phone (none, or a new one)."""

    at_s: float
    user_id: str
    is_opt_out: bool


@dataclass
class Story:
    """What happens, and then when each thing was answered, in seconds of the run.

    addresses: (single, where it was accepted, when). opted_out: user -> when; cancelled: event id -> when; ordered:
    campaign -> (when, order), in order; expires_ms: event id -> when on the wall clock; due_s: event id -> not before.
    """

    people: dict[str, Profile]
    campaigns: tuple[Campaign, ...]
    singles: tuple[Single, ...]
    changes: tuple[Change, ...]
    addresses: list[tuple[Single, keys.Address, float]] = field(default_factory=list)
    opted_out: dict[str, float] = field(default_factory=dict)
    cancelled: dict[str, float] = field(default_factory=dict)
    ordered: defaultdict[str, list[tuple[float, CampaignOrder]]] = field(default_factory=lambda: defaultdict(list))
    due_s: dict[str, float] = field(default_factory=dict)
    accepted_s: dict[str, float] = field(default_factory=dict)
    expires_ms: dict[str, int] = field(default_factory=dict)

    @property
    def recipients(self) -> int:
        return sum(len(campaign.users) for campaign in self.campaigns)


def drawn(rng: random.Random) -> Story:
    people = {f"u{number}": _person(rng, number) for number in range(PEOPLE)}
    users = list(people)
    sizes = [rng.randint(90, 110), rng.randint(60, 70), rng.randint(50, 60)]
    stories = tuple(_campaign(rng, f"c{number}", users, size) for number, size in enumerate(sizes))
    singles = tuple(_single(rng, f"e{number}", users) for number in range(30))
    changes = tuple(Change(rng.uniform(1.0, 12.0), rng.choice(users), rng.random() < 0.3) for _ in range(30))
    return Story(people, stories, singles, changes)


def _person(rng: random.Random, number: int) -> Profile:
    email = f"u{number}@example.org" if rng.random() < 0.95 else ""
    phone = f"+4930{number:06}" if rng.random() < 0.8 else ""
    opt_outs = frozenset({MARKETING}) if rng.random() < 0.05 else frozenset()
    return Profile(1, email=email, phone=phone, locale="en", opt_outs=opt_outs)


def _campaign(rng: random.Random, name: str, users: list[str], size: int) -> Campaign:
    chosen = rng.sample(users, min(size, len(users)))
    chosen += [rng.choice(chosen) for _ in range(size - len(chosen))]
    starts_s = rng.uniform(0.5, 6.0)
    return Campaign(
        name,
        rng.choice(CAMPAIGN_TEMPLATES),
        tuple(chosen),
        rng.randint(6, 20),
        rng.randint(1, 3),
        starts_s,
        SHORT_MS if rng.random() < 0.1 else LONG_MS,
        _orders(rng, starts_s),
    )


def _orders(rng: random.Random, starts_s: float) -> tuple[tuple[float, CampaignOrder], ...]:
    """Some are cancelled; some are paused and go on, several times, in haste or not."""
    chance, at_s, most_s = rng.random(), starts_s, rng.choice((0.8, 3.0))
    if chance < 0.15:
        return ((starts_s + rng.uniform(0.5, 8.0), CampaignOrder.CANCELLED),)
    orders: list[tuple[float, CampaignOrder]] = []
    for order in (CampaignOrder.PAUSED, CampaignOrder.RUNNING) * (rng.randint(1, 3) if chance < 0.5 else 0):
        at_s += rng.uniform(0.3, most_s)
        orders.append((at_s, order))
    return tuple(orders)


def _single(rng: random.Random, name: str, users: list[str]) -> Single:
    template = rng.choice(("code", "receipt", "news", "code"))
    starts_s = rng.uniform(0.5, 24.0)
    return Single(
        name,
        rng.choice(users),
        template,
        "bulk" if rng.random() < 0.2 else "",
        starts_s,
        SHORT_MS if rng.random() < 0.1 else LONG_MS,
        starts_s + rng.uniform(0.0, 3.0) if rng.random() < 0.1 else 0.0,
        rng.random() < 0.1,
        rng.randint(500, 8_000) if rng.random() < 0.15 else 0,
    )


async def tell(site: Site, story: Story) -> None:
    """Lets it happen; returns once everything has been accepted and answered."""
    for user_id, profile in story.people.items():
        site.people.write(user_id, profile)
    await asyncio.gather(*(_at(site, at_s, act) for at_s, act in _moments(site, story)))


def _moments(site: Site, story: Story) -> list[tuple[float, Callable[[], None]]]:
    moments: list[tuple[float, Callable[[], None]]] = []
    for campaign in story.campaigns:
        moments.append((campaign.starts_s, lambda one=campaign: _accept(site, story, one)))  # type: ignore[misc]
        for at_s, order in campaign.orders:
            moments.append((at_s, lambda one=campaign, order=order: _order(site, story, one, order)))  # type: ignore[misc]
    for single in story.singles:
        moments.append((single.starts_s, lambda one=single: _accept_single(site, story, one)))  # type: ignore[misc]
        if single.cancelled_s:
            moments.append((single.cancelled_s, lambda one=single: _cancel(site, story, one)))  # type: ignore[misc]
    moments += [(change.at_s, lambda one=change: _change(site, story, one)) for change in story.changes]  # type: ignore[misc]
    return moments


async def _at(site: Site, at_s: float, act: Callable[[], None]) -> None:
    """The API waits for the log as long as it is away, and answers afterwards."""
    await asyncio.sleep(at_s)
    await site.network.log_there.wait()
    act()


def _accept(site: Site, story: Story, campaign: Campaign) -> None:
    now_ms = site.clock.now_ms()
    story.accepted_s[campaign.id] = site.loop.time()
    written = campaigns.written(
        site.log.append,
        TOPICS,
        campaign.id,
        campaign.users,
        page_size=campaign.page_size,
        template=campaign.template,
        weight=campaign.weight,
        accepted_at_ms=now_ms,
        expires_at_ms=now_ms + campaign.lives_ms,
        params='{"name": "all"}',
    )
    assert written.recipients == len(campaign.users)


async def pause_all(site: Site, story: Story, for_s: float) -> None:
    """All that were accepted and are not to be cancelled."""
    paused = [
        one
        for one in story.campaigns
        if one.id in story.accepted_s and all(order is not CampaignOrder.CANCELLED for _, order in one.orders)
    ]
    for order, wait_s in ((CampaignOrder.PAUSED, for_s), (CampaignOrder.RUNNING, 0.0)):
        await site.network.log_there.wait()
        for campaign in paused:
            _order(site, story, campaign, order)
        await asyncio.sleep(wait_s)


def _order(site: Site, story: Story, campaign: Campaign, order: CampaignOrder) -> None:
    control = CampaignControl(TENANT, campaign.id, order, 0, site.clock.now_ms())
    key = keys.control_key(TENANT, campaign.id, order).encode()
    site.log.append(Outgoing(TOPICS.campaign_control, key, codec.encode(control)))
    story.ordered[campaign.id].append((site.loop.time(), order))


def _accept_single(site: Site, story: Story, single: Single) -> None:
    now_ms = site.clock.now_ms()
    story.expires_ms[single.event_id] = now_ms + single.lives_ms
    story.due_s[single.event_id] = site.loop.time() + single.waits_ms / 1000 - 0.001
    message = NotificationRequested(
        TENANT,
        single.event_id,
        single.user_id,
        single.template,
        params=f'{{"name": "{single.event_id if single.template == CHAT else "you"}"}}',
        priority=single.priority,
        send_at_ms=now_ms + single.waits_ms if single.waits_ms else 0,
        accepted_at_ms=now_ms,
        expires_at_ms=now_ms + single.lives_ms,
    )
    topic = entry_topic(single.lane_priority)
    key = keys.user_key(TENANT, single.user_id).encode()
    for _ in range(2 if single.asked_twice else 1):
        placed = site.log.append(Outgoing(topic, key, codec.encode(message)))
        address = keys.single_address(keys.log_epoch("here", topic), placed.partition, placed.offset)
        story.addresses.append((single, address, site.loop.time()))


def _cancel(site: Site, story: Story, single: Single) -> None:
    """As DELETE answers it: the flag stands in Redis."""
    if single.event_id not in story.expires_ms:
        return  # the log was away: it was not accepted yet
    key = keys.redis_cancel(TENANT, single.user_id, keys.single_intent(TENANT, single.event_id))
    site.claims.cancelled.add(key)
    site.redis.reply("SET", key, 1)
    story.cancelled[single.event_id] = site.loop.time()


def _change(site: Site, story: Story, change: Change) -> None:
    """As a write of the API answers it: the profile stands in Redis."""
    known = site.people.profiles[change.user_id]
    changed = replace(known, version=known.version + 1)
    if change.is_opt_out:
        changed = replace(changed, opt_outs=known.opt_outs | {MARKETING})
        story.opted_out.setdefault(change.user_id, site.loop.time())
    else:
        changed = replace(changed, phone="" if known.phone else f"+4931{int(change.user_id[1:]):06}")
    site.people.write(change.user_id, changed)


def entry_topic(priority: Priority) -> str:
    return TOPICS.requests_bulk(TENANT) if priority is Priority.BULK else TOPICS.requests(TENANT)
