"""The processes towards the providers: workers of lanes, and the forwarder that brings records back to lanes."""

from __future__ import annotations

from collections.abc import Sequence

from consumers.loop.deferred import DeferredOptions
from consumers.loop.handout import HandoutOptions
from consumers.progress import ProgressWriter
from deploy import ground as grounds
from deploy import senders
from deploy.engines import FAST_MS, engine, run, together
from deploy.settings import Settings
from retry_topics.dead_letters import DeadLetters
from retry_topics.forwarder import Forwarder, read_behind_ms
from schemas.gaps import Gap
from schemas.messages import Channel, Priority


async def work(settings: Settings, channel: str, priorities: Sequence[str], gap: Gap | None = None) -> None:
    """The senders of a channel's lanes."""
    async with grounds.watched(settings, gap) as ground:
        ground.needs_redis()
        lanes = [senders.lane(ground, Channel(channel), Priority(priority)) for priority in priorities]
        first, *others = lanes
        await together(first, *others)


async def forward(settings: Settings, gap: Gap | None = None) -> None:
    """Waiting rooms back to lanes, when due."""
    tiers = settings.tiers.by_name_ms()
    async with grounds.watched(settings, gap) as ground:
        loop = engine(
            ground,
            "forward",
            Forwarder(ground.topics, ground.clock, tiers),
            ground.publisher(FAST_MS),
            urgent=True,
            handout=HandoutOptions(read_behind_ms=read_behind_ms(ground.topics, tiers)),
            deferred=DeferredOptions(records=200_000),
            reader=ground.log_reader(),
            park=DeadLetters(ground.topics, ground.clock).parked_delivery,
        )
        await run(ground, loop, ProgressWriter(ground.trips("progress"), loop.progress, ground.clock).run())
