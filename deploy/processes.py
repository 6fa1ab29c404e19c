"""One short function per process: builds its parts from the ground and runs them until it is cancelled.

The one place that knows every room. `senders.py` composes the workers; `ground.py` is what all stand on.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

import aiohttp

from consumers.claims import RedisCancellations
from consumers.loop.deferred import DeferredOptions
from consumers.loop.handout import HandoutOptions
from consumers.round_trip import RedisTrips
from deploy import ground as grounds
from deploy import provision as provisioning
from deploy import senders
from deploy.broker_state import Broker
from deploy.engines import BULK_MS, FAST_MS, GATHER_BULK_S, GATHER_FAST_S, engine, run, serve, together
from deploy.ground import Ground
from deploy.ready import tell
from deploy.settings import Settings
from producers import auth, campaign_view, idempotency, requests
from producers.api import app as api_app
from producers.api import inbox as inbox_routes
from producers.api import people, suppressions, user_notifications, users
from producers.api.parts import ApiParts
from producers.callbacks import http_provider, server, signatures
from retry_topics.dead_letters import DeadLetters
from retry_topics.forwarder import Forwarder, read_behind_ms
from schemas import facets
from schemas.messages import Channel, NotificationRequested, Priority
from schemas.records import Publisher
from streams import agents
from streams.backlog import Backlog
from streams.callbacks import RouteCallbacks
from streams.campaigns import Campaigns
from streams.dispatch import Dispatch
from streams.fan_out import FanOut
from streams.grants import Grants, Purse
from streams.inbox import RedisInbox
from streams.leader import KafkaLeadership, LeaderOptions
from streams.page_reader import PageReader, ReadAhead
from streams.rebuild import Rebuild
from streams.recipients import RedisProfiles, RedisSuppressions
from streams.recipients_apply import Applier
from streams.recipients_route import RouteRecipients
from streams.release import Releases
from streams.route import Doors, Entry, Route
from streams.status_process import StatusOptions, StatusProcess
from streams.status_reads import OwnerReads
from streams.timelines import RedisTimeline

# Facing in


async def api(settings: Settings) -> None:
    """The HTTP API."""
    async with grounds.opened(settings) as ground:
        publisher, reader, tails = ground.publisher(FAST_MS), ground.log_reader(), ground.tails()
        campaigns = campaign_view.CampaignView(ground.topics, ground.clock)
        await campaigns.open(tails)
        parts = ApiParts(
            publisher=publisher,
            log=reader,
            reads=await _reads(ground),
            cancellations=RedisCancellations(RedisTrips(ground.redis, ()), ground.epoch),
            idempotency=idempotency.Idempotency(
                ground.redis, ground.epoch, ground.clock, partial(secrets.token_hex, 16)
            ),
            campaigns=campaigns,
            keys=_keys(settings),
            ids=ground.ids,
            topics=ground.topics,
            entries=ground.entry_logs(),
            policies=ground.policies,
            clock=ground.clock,
            random_bytes=secrets.token_bytes,
        )
        app = api_app.build_app(parts)
        about_people = _people(ground, publisher)
        for resource in (users, suppressions, inbox_routes, user_notifications):
            resource.register(app, about_people)
        await serve(app, settings.api.listen)


async def callbacks(settings: Settings) -> None:
    """The providers' webhooks."""
    async with grounds.opened(settings) as ground:
        verifiers = {
            name: signatures.StandardWebhooks(name, [provider.callback_secret.get_secret_value()])
            for name, provider in settings.providers.items()
            if provider.callback_secret.get_secret_value()
        }
        parts = server.CallbackParts(
            ground.publisher(FAST_MS), ground.log_reader(), ground.topics, verifiers, ground.clock
        )
        await serve(server.build_app(parts), settings.callbacks.listen)


# Facing across


async def route_requests(settings: Settings) -> None:
    """Transactional singles to their lanes."""
    async with grounds.opened(settings) as ground:
        await _route(ground, "route requests", Priority.TRANSACTIONAL, None)


async def route_bulk(settings: Settings) -> None:
    """Bulk singles to their lanes, at the pace that dispatch grants."""
    async with grounds.opened(settings) as ground:
        await _route(ground, "route bulk", Priority.BULK, Purse(ground.redis, ground.instance))


async def route_callbacks(settings: Settings) -> None:
    """Raw callbacks to status events and suppressions."""
    async with grounds.opened(settings) as ground:
        publisher = ground.publisher(FAST_MS)
        readers = {name: http_provider.read for name, used in settings.providers.items() if used.kind == "http"}
        handler = RouteCallbacks(
            readers,
            ground.ids,
            ground.redis,
            RedisSuppressions(ground.redis, ground.epoch),
            publisher,
            ground.topics,
            ground.clock,
        )
        await run(engine(ground, "route callbacks", handler, publisher, gather_s=GATHER_FAST_S))


async def route_recipients(settings: Settings) -> None:
    """Profiles, opt-outs, suppressions, cancels and inbox to Redis; rebuilds it when it was lost."""
    async with grounds.opened(settings) as ground:
        profiles = RedisProfiles(ground.redis, ground.epoch)
        barred = RedisSuppressions(ground.redis, ground.epoch)
        box = RedisInbox(ground.redis, ground.epoch, ground.clock)
        topic = _facet_topic(ground)
        applier = Applier(ground.redis, profiles, barred, box, topic, ground.topics, ground.clock)
        log_id = "/".join(ground.broker.topic_ids[name] for name in sorted(applier.topics))
        rebuild = Rebuild(
            ground.redis,
            ground.epoch,
            applier,
            ground.log_reader(),
            ground.broker.partitions,
            log_id,
            secrets.token_hex(16),
        )
        handler = RouteRecipients(applier, rebuild)
        publisher = ground.publisher(BULK_MS)
        await run(engine(ground, "route recipients", handler, publisher, gather_s=GATHER_FAST_S), rebuild.run())


async def dispatch(settings: Settings) -> None:
    """Campaign pages and grants, by one leader."""
    async with grounds.opened(settings) as ground:
        publisher, reader = ground.publisher(FAST_MS), ground.log_reader()
        letters = DeadLetters(ground.topics, ground.clock)
        ahead = ReadAhead(PageReader(reader, publisher, letters.letter, ground.topics))
        grants = Grants(ground.redis)
        lanes = {
            ground.topics.lane(c, p): ground.broker.partitions[ground.topics.lane(c, p)]
            for c in Channel
            for p in Priority
        }
        releases = Releases(
            ground.policies,
            ahead,
            Backlog(reader, ground.redis, lanes, ground.clock),
            grants,
            senders.ProviderRates(ground).usable,
            ground.topics,
            {name: tenant.weight for name, tenant in settings.tenants.items()},
            ground.clock,
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
        await _ready_and(
            Dispatch(
                campaigns,
                releases,
                ahead,
                grants,
                leadership,
                ground.tails(),
                publisher,
                ground.topics,
                ground.clock,
            ).run()
        )


async def fan_out(settings: Settings) -> None:
    """Pages to deliveries."""
    async with grounds.opened(settings) as ground:
        publisher = ground.publisher(BULK_MS)
        profiles = RedisProfiles(ground.redis, ground.epoch)
        expander = FanOut(
            ground.policies,
            profiles,
            ground.redis,
            ground.epoch,
            publisher,
            ground.topics,
            ground.clock,
            await _reads(ground),
        )
        letters = DeadLetters(ground.topics, ground.clock)
        process = agents.fanning_out(
            ground.topics, _faust(ground, "fan_out"), expander.expand, publisher, letters.letter
        )
        await _ready_and(process.run())


async def status(settings: Settings) -> None:
    """Status events to rows, public state and reads."""
    async with grounds.opened(settings) as ground:
        publisher = ground.publisher(BULK_MS)
        letters = DeadLetters(ground.topics, ground.clock)
        count = ground.broker.partitions[ground.topics.status]
        with grounds.bound(settings.streams.listen) as door:
            chosen = StatusOptions(_faust(ground, "status"), grounds.url_of(door), count)
            process = StatusProcess(
                ground.topics,
                chosen,
                ground.ids,
                letters.letter,
                publisher,
                ground.log_reader(),
                ground.redis,
                ground.clock,
            )
            async with grounds.serving(process.view, door):
                await _ready_and(process.run())


# Facing out


async def work(settings: Settings, channel: str, priorities: Sequence[str]) -> None:
    """The senders of a channel's lanes."""
    async with grounds.opened(settings) as ground:
        lanes = [senders.lane(ground, Channel(channel), Priority(priority)) for priority in priorities]
        first, *others = lanes
        await together(first, *others)


async def forward(settings: Settings) -> None:
    """Waiting rooms back to lanes, when due."""
    async with grounds.opened(settings) as ground:
        await run(
            engine(
                ground,
                "forward",
                Forwarder(ground.topics, ground.clock),
                ground.publisher(FAST_MS),
                gather_s=GATHER_FAST_S,
                handout=HandoutOptions(read_behind_ms=read_behind_ms(ground.topics)),
                deferred=DeferredOptions(records=200_000),
                reader=ground.log_reader(),
            )
        )


async def provision(settings: Settings, apply: bool) -> list[str]:
    """How the broker differs from the catalogue, a line each; with apply, made to match."""
    return await asyncio.to_thread(_provision, settings, apply)


def _provision(settings: Settings, apply: bool) -> list[str]:
    broker, wanted = Broker(settings.kafka.client()), grounds.blueprint(settings)
    changes = provisioning.plan(broker, wanted)
    if apply:
        provisioning.apply(broker, wanted, changes)
    return [str(change) for change in changes]


# Parts that several of them need


async def _ready_and(work: Coroutine[Any, Any, None]) -> None:
    tell()
    await work


async def _route(ground: Ground, role: str, priority: Priority, purse: Purse | None) -> None:
    settings, logs = ground.settings, ground.entry_logs()
    topic_of = ground.topics.requests if priority is Priority.TRANSACTIONAL else ground.topics.requests_bulk
    entries = {topic_of(name): Entry(name, logs.epoch(topic_of(name)), priority) for name in settings.tenants}
    limits = requests.Limits()

    def check_event(event: NotificationRequested, now_ms: int) -> NotificationRequested:
        return requests.check_event(event, ground.policies, now_ms, limits)

    letters = DeadLetters(ground.topics, ground.clock)
    doors = Doors(check_event, letters.parked, RedisProfiles(ground.redis, ground.epoch))
    handler = Route(
        entries,
        ground.policies,
        doors,
        ground.redis,
        ground.epoch,
        ground.topics,
        ground.ids,
        ground.clock,
        purse,
    )
    bulk = priority is Priority.BULK
    publisher = ground.publisher(BULK_MS if bulk else FAST_MS)
    await run(engine(ground, role, handler, publisher, gather_s=GATHER_BULK_S if bulk else GATHER_FAST_S))


async def _reads(ground: Ground) -> OwnerReads:
    http = await ground.stack.enter_async_context(aiohttp.ClientSession())
    group, count = ground.topics.group("status"), ground.broker.partitions[ground.topics.status]
    return OwnerReads(http, ground.redis, group, count)


def _people(ground: Ground, publisher: Publisher) -> people.PeopleParts:
    box = RedisInbox(ground.redis, ground.epoch, ground.clock)
    ground.stack.push_async_callback(box.close)
    return people.PeopleParts(
        publisher,
        ground.topics,
        _facet_topic(ground),
        RedisProfiles(ground.redis, ground.epoch),
        RedisSuppressions(ground.redis, ground.epoch),
        box,
        RedisTimeline(ground.redis, ground.epoch),
        ground.clock,
    )


def _facet_topic(ground: Ground) -> facets.FacetTopic:
    name = ground.topics.recipients
    return facets.FacetTopic(name, ground.broker.partitions[name])


def _keys(settings: Settings) -> auth.Keys:
    found = [
        auth.ApiKey(key.hash.removeprefix("sha256:"), name, frozenset(auth.Scope(scope) for scope in key.scopes))
        for name, tenant in settings.tenants.items()
        for key in tenant.keys
    ]
    made = auth.Keys(found, next(iter(settings.tenants)))
    made.check_listen(settings.api.listen.rpartition(":")[0])
    return made


def _faust(ground: Ground, role: str) -> agents.FaustOptions:
    """One folder and one fixed member name per process: a quick restart moves no partitions."""
    settings = ground.settings
    folder = settings.streams.folder / (settings.topic_prefix + role)
    own_name = hashlib.sha256(f"{os.uname().nodename} {folder}".encode()).hexdigest()[:16]
    return agents.FaustOptions(
        ground.kafka,
        folder,
        instance=own_name,
        session_s=settings.streams.session_s,
        commit_every_s=settings.streams.commit_every_s,
    )
