"""The processes between topics: routes and dispatch. Those on Faust are in `on_faust.py`."""

from __future__ import annotations

import secrets

from consumers.claims import ClaimOptions, RedisClaims
from consumers.drops import RedisDrops
from consumers.loop.handout import HandoutOptions
from deploy import ground as grounds
from deploy import senders
from deploy.engines import BULK_MS, FAST_MS, engine, run, telling
from deploy.ground import Ground
from deploy.processes import shared
from deploy.provider_rates import ProviderRates
from deploy.settings import Settings
from producers import requests
from producers.callbacks import http_provider
from retry_topics.dead_letters import DeadLetters
from schemas.gaps import Gap
from schemas.messages import NotificationRequested, Priority
from schemas.records import Publisher
from streams.backlog import Backlog
from streams.burials import Burials
from streams.callbacks import RouteCallbacks
from streams.campaigns import Campaigns
from streams.digest_marks import DigestMarks
from streams.digests import Digests, Entries
from streams.dispatch import Dispatch
from streams.grants import Grants, Purse
from streams.held_release import HeldRelease
from streams.holds import Holds
from streams.intake import Doors, Entry
from streams.lanes import Window
from streams.leader import KafkaLeadership, LeaderOptions
from streams.letting_go import LettingGo
from streams.log_reader import SCATTERED
from streams.page_reader import PageReader, ReadAhead
from streams.rebuild import Rebuild
from streams.recipients import RedisProfiles, RedisSuppressions
from streams.recipients_apply import Applier
from streams.recipients_route import RouteRecipients
from streams.reconcile import Reconcile, ReconcileOptions
from streams.release import Releases
from streams.route import Route
from streams.share_watch import ShareWatch
from streams.singles_queue import SinglesQueue
from streams.ticks import Ticks


async def route_requests(settings: Settings, gap: Gap | None = None) -> None:
    """Transactional singles to their lanes."""
    async with grounds.watched(settings, gap) as ground:
        await _route(ground, "route requests", Priority.TRANSACTIONAL, None)


async def route_bulk(settings: Settings, gap: Gap | None = None) -> None:
    """Bulk singles to their lanes, at the pace that dispatch grants."""
    async with grounds.watched(settings, gap) as ground:
        purse = Purse(ground.trips("grants"), ground.instance)
        await _route(ground, "route bulk", Priority.BULK, SinglesQueue(purse, ground.clock, ground.rng))


async def route_callbacks(settings: Settings, gap: Gap | None = None) -> None:
    """Raw callbacks to status events and suppressions."""
    async with grounds.watched(settings, gap) as ground:
        ground.needs_redis()
        publisher = ground.publisher(FAST_MS)
        readers = {name: http_provider.read for name, used in settings.providers.items() if used.kind == "http"}
        handler = RouteCallbacks(
            readers,
            ground.ids,
            ground.trips("callbacks"),
            RedisSuppressions(ground.trips("suppressions"), ground.epoch),
            publisher,
            ground.topics,
            ground.clock,
        )
        await run(ground, engine(ground, "route callbacks", handler, publisher, urgent=False))


async def route_recipients(settings: Settings, gap: Gap | None = None) -> None:
    """Profiles, opt-outs, suppressions, cancels and inbox to Redis; rebuilds it when it was lost."""
    async with grounds.watched(settings, gap) as ground:
        ground.needs_redis()
        profiles = RedisProfiles(ground.trips("profiles"), ground.epoch)
        barred = RedisSuppressions(ground.trips("suppressions"), ground.epoch)
        topic = shared.facet_topic(ground)
        trips, box = ground.trips("recipients"), ground.inbox()
        applier = Applier(trips, profiles, barred, box, topic, ground.topics, ground.clock)
        log_id = "/".join(ground.broker.topic_ids[name] for name in sorted(applier.topics))
        rebuild = Rebuild(
            ground.trips("rebuild"),
            ground.epoch,
            applier,
            ground.log_reader(),
            ground.broker.partitions,
            log_id,
            secrets.token_hex(16),
        )
        handler = RouteRecipients(applier, rebuild)
        publisher = ground.publisher(BULK_MS)
        loop = engine(ground, "route recipients", handler, publisher, urgent=True)
        await run(ground, loop, rebuild.run(), once=[rebuild.trusted.wait])


async def reconcile(settings: Settings, gap: Gap | None = None) -> None:
    """What was sent long ago without a word; see `streams/reconcile.py`."""
    after_ms = round(settings.reconcile.after * 1000)
    async with grounds.watched(settings, gap) as ground:
        ground.needs_redis()
        channels = {str(name): used.providers for name, used in settings.channels.items()}
        options = ReconcileOptions(after_ms, senders.status_apis(ground), channels)
        handler = Reconcile(await shared.reads(ground), ground.ids, ground.topics, ground.clock, options)
        loop = engine(
            ground,
            "reconcile",
            handler,
            ground.publisher(BULK_MS),
            urgent=False,
            handout=HandoutOptions(in_flight=1_000, read_behind_ms={ground.topics.state: after_ms}),
        )
        await run(ground, loop, _share_watch(ground).run())


def _share_watch(ground: Ground) -> ShareWatch:
    settings = ground.settings
    channels = {str(name): used.providers for name, used in settings.channels.items()}
    promising = {name for name, given in settings.providers.items() if senders.promises_reports(given)}
    reporting = {channel: [name for name in names if name in promising] for channel, names in channels.items()}
    avoidable = {
        (name, channel) for channel, names in reporting.items() for name in names if len(channels[channel]) > 1
    }
    failover = settings.reconcile.failover_on_alarm
    return ShareWatch(ground.trips("shares"), ground.clock, reporting, frozenset(avoidable if failover else ()))


async def dispatch(settings: Settings, gap: Gap | None = None) -> None:
    """Campaign pages, what is due in hold, and grants, by one leader."""
    async with grounds.watched(settings, gap) as ground:
        publisher, reader = ground.publisher(FAST_MS), ground.log_reader()
        ground.needs_redis()
        ground.needs_log(reader)
        letters = DeadLetters(ground.topics, ground.clock)
        pages = PageReader(reader, publisher, letters.letter, ground.topics)
        scattered = ground.log_reader(SCATTERED)
        parts = PageReader(scattered, publisher, letters.letter, ground.topics)
        ahead = ReadAhead(pages)
        letting_go = LettingGo(Holds(ground.topics), scattered, parts, ground.topics, await shared.reads(ground))
        grants = Grants(ground.trips("grants"))
        tiers = ground.topics.tiers_of_lanes()
        releases = Releases(
            ground.policies,
            ahead,
            Backlog(reader, ground.trips("backlog"), ground.broker.partitions, ground.clock, tiers),
            grants,
            ProviderRates(ground).usable,
            ground.topics,
            {name: tenant.weight for name, tenant in settings.tenants.items()},
            ground.clock,
            letting_go,
            window=_window(settings),
            served=shared.served(settings),
        )
        leadership = KafkaLeadership(
            ground.kafka,
            ground.topics.leader,
            ground.topics.group("dispatch"),
            ground.instance,
            publisher,
            ground.clock,
            LeaderOptions(session_timeout_s=settings.dispatch.session_s),
        )
        await leadership.start()
        ground.stack.push_async_callback(leadership.close)
        campaigns = Campaigns(ground.topics, ground.policies)
        ticks = Ticks(publisher, ground.topics, ground.broker.partitions[ground.topics.status], ground.clock)
        work = Dispatch(
            campaigns,
            releases,
            ahead,
            grants,
            leadership,
            ground.tails(),
            publisher,
            ground.topics,
            ground.clock,
            ticks,
            HeldRelease(campaigns, letting_go, _drops(ground), publisher, ground.topics, ground.clock, ground.gap),
            _digests(ground, campaigns, letting_go, publisher),
            Burials(campaigns, letting_go.holds, reader, leadership, publisher, ground.topics, ground.clock),
            gap=ground.gap,
        )
        await telling(ground.health, work.run(), [work.followed.wait, leadership.joined.wait])


def _digests(ground: Ground, campaigns: Campaigns, letting_go: LettingGo, publisher: Publisher) -> Digests:
    marks = DigestMarks(ground.trips("digests"), ground.epoch)
    entries, policies = Entries(ground.entry_epochs(), ground.ids), ground.policies
    return Digests(campaigns, letting_go, marks, entries, policies, publisher, ground.topics, ground.clock, ground.gap)


def _drops(ground: Ground) -> RedisDrops:
    store = RedisClaims(ground.rng, ClaimOptions(lease_s=ground.settings.sending.lease_s))
    return RedisDrops(ground.trips("drops"), ground.epoch, store)


def _window(settings: Settings) -> Window:
    return Window(settings.sending.bulk_share, settings.dispatch.backlog_min_s, settings.dispatch.backlog_max_s)


async def _route(ground: Ground, role: str, priority: Priority, queue: SinglesQueue | None) -> None:
    ground.needs_redis()
    settings, epochs = ground.settings, ground.entry_epochs()
    topic_of = ground.topics.requests if priority is Priority.TRANSACTIONAL else ground.topics.requests_bulk
    entries = {topic_of(name): Entry(name, epochs[topic_of(name)], priority) for name in settings.tenants}
    limits = requests.Limits()

    def check_event(event: NotificationRequested, now_ms: int) -> NotificationRequested:
        return requests.check_event(event, ground.policies, now_ms, limits)

    letters = DeadLetters(ground.topics, ground.clock)
    profiles = RedisProfiles(ground.trips("profiles"), ground.epoch)
    zones = {name: tenant.time_zone for name, tenant in settings.tenants.items()}
    barred = RedisSuppressions(ground.trips("suppressions"), ground.epoch)
    rows, served = await shared.reads(ground), shared.served(settings)
    doors = Doors(check_event, letters.parked, profiles, rows, served, zones, barred)
    handler = Route(
        entries,
        ground.policies,
        doors,
        ground.trips("route"),
        ground.epoch,
        ground.topics,
        ground.ids,
        ground.clock,
        queue,
        gap=ground.gap,
    )
    bulk = priority is Priority.BULK
    publisher = ground.publisher(BULK_MS if bulk else FAST_MS)
    loop = engine(ground, role, handler, publisher, urgent=not bulk)
    await run(ground, loop, *([queue.run()] if queue is not None else []))
