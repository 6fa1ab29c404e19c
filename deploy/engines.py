"""Builds the engine of a role, runs things side by side, and says when the process can work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from consumers.engine import Engine, EngineOptions
from consumers.loop.deferred import DeferredOptions
from consumers.loop.handout import HandoutOptions
from consumers.loop.options import KafkaOptions
from consumers.loop.outbox import OutboxOptions, Park
from deploy import ready, sections
from deploy.ground import Ground
from deploy.watch import Health
from retry_topics.dead_letters import DeadLetters
from schemas.records import Handler, LogReader, Publisher

FAST_MS, BULK_MS, PAGES_MS = 1.0, 20.0, 50.0
"""Linger of a publisher: for latency, for throughput, for whole pages (many at a time, none of which is urgent)."""
GATHER_FAST_S, GATHER_BULK_S = 0.002, 0.2
"""How long an engine gathers answers before it writes them together: somebody waits for them, or nobody does."""
GATHER_EVENTS_S = 0.05
"""Likewise for status events, at least: nobody's phone waits for them, and each status record costs its reader the
same however many events of a row it holds."""

Condition = Callable[[], Coroutine[Any, Any, object]]
"""Returns when something has come about."""


def engine(
    ground: Ground,
    role: str,
    handler: Handler,
    publisher: Publisher,
    *,
    urgent: bool,
    handout: HandoutOptions | None = None,
    deferred: DeferredOptions | None = None,
    reader: LogReader | None = None,
    park: Park | None = None,
) -> Engine:
    """The engine of `role` on the topics that the catalogue gives its group. urgent: somebody waits for what it does.
    park: how a hopeless record is parked.
    """
    group = ground.topics.group(role)
    gather_s = GATHER_FAST_S if urgent else GATHER_BULK_S
    options = EngineOptions(
        kafka=_consumer(ground.settings.engine, group, ground.topics.groups()[group], urgent),
        outbox=OutboxOptions(ground.topics.status, gather_s, max(gather_s, GATHER_EVENTS_S)),
        handout=handout or HandoutOptions(),
        deferred=deferred or DeferredOptions(),
    )
    park = park or DeadLetters(ground.topics, ground.clock).parked
    made = Engine(
        handler,
        publisher,
        options,
        ground.kafka,
        park,
        rng=ground.rng,
        clock=ground.clock,
        reader=reader,
        gap=ground.gap,
    )
    ground.health.needs(lambda: made.healthy, f"{role}: the brokers, or an answer to what lies before it")
    return made


def _consumer(settings: sections.Engine, group: str, topics: tuple[str, ...], urgent: bool) -> KafkaOptions:
    return KafkaOptions(
        group,
        topics,
        session_timeout_s=settings.urgent_session_s if urgent else settings.session_s,
        heartbeat_s=settings.heartbeat_s,
        max_poll_interval_s=settings.poll_limit_s,
    )


async def run(
    ground: Ground, engine: Engine, *beside: Coroutine[Any, Any, None], once: Sequence[Condition] = ()
) -> None:
    """Runs the engine and what belongs to it until the process is told to stop; then ends the engine cleanly.

    once: what must have come about, beside the assignment of partitions, before the process can work.
    """
    assigned = partial(engine.signals.reached, "assigned")
    try:
        await telling(ground.health, engine.run(), (assigned, *once), *beside)
    finally:
        await engine.stop()


async def telling(
    health: Health, first: Coroutine[Any, Any, None], once: Sequence[Condition], *beside: Coroutine[Any, Any, None]
) -> None:
    """Runs all as `together` does; tells the supervisor that the process can work when all of `once` came about."""
    begun = asyncio.Event()
    health.needs(begun.is_set, "partitions, tables and people to be read")

    async def tell() -> None:
        await asyncio.gather(*(condition() for condition in once))
        begun.set()
        ready.tell(health.metrics_url)

    await together(first, tell(), *beside)


async def together(first: Coroutine[Any, Any, None], *beside: Coroutine[Any, Any, None]) -> None:
    """Runs all; returns when the first one does, raises what any of them raises. The others are then cancelled."""
    main = asyncio.ensure_future(first)
    tasks = [asyncio.ensure_future(one) for one in beside]
    waiting = {main, *tasks}
    try:
        while not main.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        await cancelled([main, *tasks])


async def cancelled(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancels tasks and waits for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
