"""The processes the world speaks to: the API and the webhooks of providers."""

from __future__ import annotations

import secrets
from functools import partial

from consumers.backstage import RedisBackstage
from consumers.cancellations import RedisCancellations
from deploy import ground as grounds
from deploy import provider_rates, templates
from deploy.engines import FAST_MS
from deploy.ground import Ground
from deploy.processes import shared
from deploy.serving import serve
from deploy.settings import Settings
from deploy.surroundings import LogInSight, RedisInSight
from producers import auth, campaign_view, idempotency
from producers.api import app as api_app
from producers.api import explanations, people, suppressions, user_notifications, users
from producers.api import inbox as inbox_routes
from producers.api.parts import ApiParts, EntryLogs
from producers.callbacks import server, signatures
from producers.explaining.history import History
from schemas.gaps import Gap
from schemas.messages import Channel
from schemas.records import Publisher
from schemas.standstill import WaitsFor
from streams.log_reader import KafkaLogReader, LogReaderOptions
from streams.recipients import RedisProfiles, RedisSuppressions
from streams.timelines import RedisTimeline


async def api(settings: Settings, gap: Gap | None = None) -> None:
    """The HTTP API. It accepts nothing that no sender could put into words."""
    templates.check(settings.templates.path)
    async with grounds.opened(settings, gap) as ground:
        publisher, reader, tails = ground.publisher(FAST_MS), ground.log_reader(), ground.tails()
        # For its numbers and its answers: requests are accepted without Redis.
        redis, log = ground.needs_redis(), ground.needs_log(ground.log_reader(LogReaderOptions(readers=1)))
        campaigns = campaign_view.CampaignView(ground.topics, ground.clock)
        await campaigns.open(tails)
        parts = ApiParts(
            publisher=publisher,
            log=reader,
            reads=await shared.reads(ground),
            cancellations=RedisCancellations(ground.trips("cancellations"), ground.epoch),
            idempotency=idempotency.Idempotency(
                ground.trips("idempotency", idempotency.ANSWER_S),
                ground.epoch,
                ground.clock,
                partial(secrets.token_hex, 16),
            ),
            campaigns=campaigns,
            keys=_keys(settings),
            ids=ground.ids,
            topics=ground.topics,
            entries=EntryLogs(ground.entry_epochs()),
            policies=ground.policies,
            clock=ground.clock,
            random_bytes=secrets.token_bytes,
            away=lambda: _away(log, redis),
            gap=ground.gap,
        )
        app = api_app.build_app(parts)
        about_people = _people(ground, publisher)
        for resource in (users, suppressions, inbox_routes, user_notifications):
            resource.register(app, about_people)
        explanations.register(app, _explaining(ground, reader))
        await serve(app, settings.api.listen, "[api] listen")


async def callbacks(settings: Settings, gap: Gap | None = None) -> None:
    """The providers' webhooks."""
    async with grounds.opened(settings, gap) as ground:
        verifiers = {
            name: signatures.StandardWebhooks(name, [secret.get_secret_value() for secret in provider.callback_secret])
            for name, provider in settings.providers.items()
            if provider.callback_secret
        }
        parts = server.CallbackParts(
            ground.publisher(FAST_MS), ground.log_reader(), ground.topics, verifiers, ground.clock, ground.gap
        )
        await serve(server.build_app(parts), settings.callbacks.listen, "[callbacks] listen")


def _away(log: LogInSight, redis: RedisInSight) -> WaitsFor | None:
    """What everything waits for now."""
    if not log.answers:
        return WaitsFor.LOG
    return None if redis.trusted else WaitsFor.REDIS


def _people(ground: Ground, publisher: Publisher) -> people.PeopleParts:
    return people.PeopleParts(
        publisher,
        ground.topics,
        shared.facet_topic(ground),
        RedisProfiles(ground.trips("profiles"), ground.epoch),
        RedisSuppressions(ground.trips("suppressions"), ground.epoch),
        ground.inbox(),
        RedisTimeline(ground.trips("timeline"), ground.epoch),
        ground.clock,
    )


def _explaining(ground: Ground, reader: KafkaLogReader) -> explanations.ExplainParts:
    settings = ground.settings
    return explanations.ExplainParts(
        RedisBackstage(ground.trips("backstage"), ground.epoch),
        RedisProfiles(ground.trips("profiles"), ground.epoch),
        History(reader, reader, ground.topics.status, ground.broker.partitions, ground.clock),
        {name: tenant.time_zone for name, tenant in settings.tenants.items()},
        {channel: provider_rates.providers_of(settings, channel) for channel in Channel},
        settings.sending.tries,
    )


def _keys(settings: Settings) -> auth.Keys:
    found = [
        auth.ApiKey(key.hash.removeprefix("sha256:"), name, frozenset(auth.Scope(scope) for scope in key.scopes))
        for name, tenant in settings.tenants.items()
        for key in tenant.keys
    ]
    made = auth.Keys(found, next(iter(settings.tenants)))
    made.check_listen(settings.api.host)
    return made
