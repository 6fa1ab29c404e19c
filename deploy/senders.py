"""Composes the workers of a lane: providers, breakers, pockets, claims, renderer, engine. Used by `processes`."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import replace

from consumers import calling
from consumers.breaker import Breaker, BreakerOptions
from consumers.caps import CapRules, RedisCaps
from consumers.claims import ClaimOptions, RedisClaims
from consumers.controls import Controls
from consumers.fallbacks import RedisFallbacks
from consumers.inquiries import Inquiries
from consumers.judging import OutcomeJudge
from consumers.lane_worker import LaneWorker, Rules
from consumers.limits import LEAST_BURST, LimitOptions, Pocket, Rate
from consumers.local_rate import LocalTokens
from consumers.lookalikes import RedisLookalikes
from consumers.loop.handout import HandoutOptions
from consumers.progress import ProgressWriter
from consumers.providers.contract import Provider
from consumers.providers.http import HttpOptions, HttpProvider
from consumers.providers.http_pool import PoolOptions
from consumers.providers.http_status import HttpStatus
from consumers.providers.inapp import InappProvider
from consumers.providers.smtp import SmtpOptions, SmtpProvider
from consumers.render import Renderer
from consumers.sending import Seat, Stores, WorkerOptions
from consumers.settling import SettleOptions
from consumers.spend import Purse, Spend
from consumers.spend_watch import SpendWatch
from consumers.throttles import Throttle
from deploy import budgets, sections
from deploy.engines import BULK_MS, FAST_MS, engine, run
from deploy.ground import Ground
from deploy.provider_rates import INAPP, providers_of, rate_of, standby_share
from deploy.settings import Settings, wrong_authority
from retry_topics.budget import RetryBudget
from retry_topics.dead_letters import DeadLetters
from retry_topics.ladder import LadderOptions
from schemas.clock import Clock
from schemas.errors import Misconfigured
from schemas.gaps import Gap
from schemas.messages import Channel, Priority
from schemas.records import Publisher
from schemas.reports import StatusApi
from schemas.trips import Trips
from streams.recipients import RedisProfiles, RedisSuppressions

SETTLE_FAST_S, SETTLE_BULK_S = 0.003, 0.025
"""How long a settled call waits for others to share its round trip: for latency, for throughput."""
PLACES_FAST_S, PLACES_BULK_S = 0.004, 0.02
"""How long a free place at a busy provider waits for others to share the round trip of their claims, likewise."""
INAPP_PLACES = 256


def configured(ground: Ground, name: str, publisher: Publisher) -> Provider:
    """The provider of this name, as the settings say."""
    if name == INAPP:
        return InappProvider(ground.topics.inbox, publisher, ground.inbox(), ground.clock)
    return outside(ground.settings, name, ground.clock)


def outside(settings: Settings, name: str, clock: Clock) -> Provider:
    """The provider that this section of the settings describes."""
    given = settings.providers[name]
    timeout_s = min(given.timeout_s, settings.sending.longest_call_s)
    if given.kind == "http":
        return HttpProvider(name, _http(given, timeout_s), clock)
    return SmtpProvider(name, _smtp(given, timeout_s), clock)


MakeProvider = Callable[[Ground, str, Publisher], Provider]


async def lane(ground: Ground, channel: Channel, priority: Priority, make: MakeProvider = configured) -> None:
    """Works one lane until the process is told to stop. make: what stands behind the name of a provider."""
    bulk = priority is Priority.BULK
    publisher = ground.publisher(BULK_MS if bulk else FAST_MS)
    spend = _spend(ground, channel)
    watch = SpendWatch(spend, ground.trips("spend"), ground.clock)
    partitions = ground.broker.partitions[ground.topics.lane(channel, priority)]

    def share() -> float:
        """This worker's part of the lane."""
        return len(loop.trackers) / partitions

    budgeted = spend if spend.purses else None
    worker = await _worker(ground, channel, priority, publisher, make, budgeted, None if bulk else share)
    sending = ground.settings.sending
    loop = engine(
        ground,
        f"work {channel}.{priority}",
        worker,
        publisher,
        urgent=not bulk,
        handout=HandoutOptions(batch=sending.batch, in_flight=3 * sending.in_flight),
        park=DeadLetters(ground.topics, ground.clock).parked_delivery,
    )
    try:
        progress = ProgressWriter(ground.trips("progress"), loop.progress, ground.clock)
        await run(ground, loop, progress.run(), worker.watched(), *([watch.run()] if spend.purses else []))
    finally:
        await worker.close()
        await watch.close()


def _spend(ground: Ground, channel: Channel) -> Spend:
    """The budgets for this channel; none costs nothing."""
    settings, trips = ground.settings, ground.trips("spend")
    found = {
        budget.tenant: Purse(trips, ground.clock, budget) for budget in budgets.budgets_of(settings.tenants, channel)
    }
    priced = providers_of(settings, channel) if found else ()
    return Spend(channel, found, {name: budgets.prices_of(settings.providers[name]) for name in priced})


async def _worker(
    ground: Ground,
    channel: Channel,
    priority: Priority,
    publisher: Publisher,
    make: MakeProvider,
    spend: Spend | None,
    share: Callable[[], float] | None,
) -> LaneWorker:
    """share: this worker's part of the lane, for while Redis is away; None: it waits for it."""
    settings = ground.settings
    trips = ground.trips("send")
    made = {name: make(ground, name, publisher) for name in providers_of(settings, channel)}
    for provider in made.values():
        ground.stack.push_async_callback(provider.close)
    seats = [_seat(ground, trips, provider, channel, priority) for provider in made.values()]
    controls = Controls()
    await controls.load(ground.tails(), ground.topics)
    stores = Stores(
        trips,
        ground.epoch,
        RedisClaims(ground.rng, ClaimOptions(lease_s=settings.sending.lease_s)),
        RedisProfiles(ground.trips("profiles"), ground.epoch),
        RedisSuppressions(ground.trips("suppressions"), ground.epoch),
        RedisFallbacks(),
        RedisCaps(),
        RedisLookalikes(),
    )
    budget = RetryBudget(share=settings.sending.retry_share)
    judge = OutcomeJudge(ground.clock, ground.rng, budget, _ladder(settings), has_standby=len(seats) > 1)
    locales = {name: tenant.locale for name, tenant in settings.tenants.items()}
    rules = Rules(
        ground.policies,
        Renderer(settings.templates.path, locales, settings.sending.sms_segments_max),
        controls.order,
        judge.judge,
        settings.quiet_hours(),
        _cap_rules(settings),
        frozenset(Channel(name) for name, _ in settings.lanes()),
        spend,
    )
    letters = DeadLetters(ground.topics, ground.clock)
    return LaneWorker(
        seats,
        stores,
        rules,
        ground.ids,
        ground.topics,
        letters,
        ground.clock,
        _options(settings, channel, priority),
        SettleOptions(every_s=SETTLE_BULK_S if priority is Priority.BULK else SETTLE_FAST_S),
        None if ground.gap is None else _waiting(ground.gap),
        [] if share is None else [_alone(ground, provider.name, share) for provider in made.values()],
    )


def _cap_rules(settings: Settings) -> CapRules:
    tenants = settings.tenants.items()
    marketing = {name: tenant.caps.day for name, tenant in tenants if tenant.caps is not None}
    return CapRules(marketing, {name: tenant.time_zone for name, tenant in tenants})


def _waiting(gap: Gap) -> calling.Gap:
    """For those who let a gap take its time."""

    async def passing(name: str) -> None:
        gap(name)

    return passing


def status_apis(ground: Ground) -> dict[str, StatusApi | None]:
    """Providers that promise reports, each with where it can be asked for one, if anywhere."""
    promising = {name: given for name, given in ground.settings.providers.items() if promises_reports(given)}
    return {name: _inquiries(ground, name, given) if given.status_url else None for name, given in promising.items()}


def promises_reports(given: sections.Provider) -> bool:
    """Only kind http reports, and only with a secret are its reports taken."""
    return given.kind == "http" and bool(given.callback_secret)


def _inquiries(ground: Ground, name: str, given: sections.Provider) -> Inquiries:
    """The pace of asking is kept as that of sending is, in a bucket of its own."""
    api = HttpStatus(replace(_http(given, given.timeout_s), url=given.status_url), ground.clock)
    ground.stack.push_async_callback(api.close)
    per_s = given.status_per_s or given.rate_per_s / 10
    rate = Rate(per_s, max(LEAST_BURST, round(per_s / 10)))
    bucket = f"{name} status"
    pocket = Pocket(
        ground.trips("asking"), ground.clock, bucket, rate, Priority.TRANSACTIONAL, ground.instance, LimitOptions()
    )
    return Inquiries(name, api, pocket, ground.clock)


def _seat(ground: Ground, trips: Trips, provider: Provider, channel: Channel, priority: Priority) -> Seat:
    name = provider.name
    options = LimitOptions(reserved=1 - ground.settings.sending.bulk_share)
    rate = rate_of(ground.settings, name)
    pocket = Pocket(trips, ground.clock, name, rate, priority, ground.instance, options, channel)
    places = INAPP_PLACES if name == INAPP else ground.settings.providers[name].concurrency
    return Seat(provider, Breaker(name, _breaker(ground.settings, name)), Throttle(name), pocket, places)


def _breaker(settings: Settings, name: str) -> BreakerOptions:
    return BreakerOptions() if name == INAPP else BreakerOptions(dead_most=settings.providers[name].dead_tokens_most)


def _alone(ground: Ground, name: str, share: Callable[[], float]) -> LocalTokens:
    """This worker's part of the slice that bulk never gets, for while Redis is away; channels share it evenly."""
    rate, channels = rate_of(ground.settings, name), ground.settings.channels.values()
    slice_ = (1 - ground.settings.sending.bulk_share) / max(1, sum(name in used.providers for used in channels))
    return LocalTokens(Rate(rate.per_s * slice_, round(rate.burst / 2 * slice_)), share, ground.clock)


def _options(settings: Settings, channel: Channel, priority: Priority) -> WorkerOptions:
    sending = settings.sending
    return WorkerOptions(
        in_flight=sending.in_flight,
        standby_share=standby_share(settings, channel),
        lease_s=sending.lease_s,
        deadline_s=sending.deadline_s,
        lease_margin_s=sending.margin_s,
        gather_s=PLACES_BULK_S if priority is Priority.BULK else PLACES_FAST_S,
        ladder=_ladder(settings),
    )


def _ladder(settings: Settings) -> LadderOptions:
    sending = settings.sending
    first_ms, longest_ms = (round(wait_s * 1000) for wait_s in (sending.retry_base_s, sending.retry_cap_s))
    return LadderOptions(sending.tries, first_ms, longest_ms, settings.tiers.by_name_ms())


def _http(given: sections.Provider, timeout_s: float) -> HttpOptions:
    headers = {key: value.get_secret_value() for key, value in given.headers.items()}
    pool = PoolOptions(max_connections=given.concurrency, tls=_tls(given))
    return HttpOptions(given.url, timeout_s, headers, pool)


def _smtp(given: sections.Provider, timeout_s: float) -> SmtpOptions:
    return SmtpOptions(
        given.url,
        given.source,
        timeout_s=timeout_s,
        max_connections=given.concurrency,
        require_tls=given.require_tls,
        tls=_tls(given),
    )


def _tls(given: sections.Provider) -> ssl.SSLContext | None:
    """Raises Misconfigured."""
    if not given.ca:
        return None
    if why := wrong_authority(given.ca):
        raise Misconfigured(f"the ca of the provider at {given.url}: {given.ca} {why}")
    return ssl.create_default_context(cafile=given.ca)
