"""Parts that processes of several rooms are built with."""

from __future__ import annotations

import aiohttp

from deploy.ground import Ground
from deploy.settings import Settings
from schemas import facets
from schemas.messages import Channel
from streams.status_reads import OwnerReads


async def reads(ground: Ground) -> OwnerReads:
    """Rows, asked of the processes that own them."""
    http = await ground.stack.enter_async_context(aiohttp.ClientSession())
    group, count = ground.topics.group("status"), ground.broker.partitions[ground.topics.status]
    return OwnerReads(http, ground.trips("status owner"), group, count)


def served(settings: Settings) -> frozenset[Channel]:
    """The channels that have a provider, the inbox among them."""
    return frozenset(Channel(channel) for channel, _ in settings.lanes())


def facet_topic(ground: Ground) -> facets.FacetTopic:
    """Where profiles and suppressions are written."""
    name = ground.topics.recipients
    return facets.FacetTopic(name, ground.broker.partitions[name])
