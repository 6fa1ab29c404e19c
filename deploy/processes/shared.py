"""Parts that processes of several rooms are built with."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import aiohttp

from deploy.ground import Ground
from deploy.ready import tell
from schemas import facets
from streams.status_reads import OwnerReads


async def reads(ground: Ground) -> OwnerReads:
    http = await ground.stack.enter_async_context(aiohttp.ClientSession())
    group, count = ground.topics.group("status"), ground.broker.partitions[ground.topics.status]
    return OwnerReads(http, ground.redis, group, count)


def facet_topic(ground: Ground) -> facets.FacetTopic:
    name = ground.topics.recipients
    return facets.FacetTopic(name, ground.broker.partitions[name])


async def ready_and(work: Coroutine[Any, Any, None]) -> None:
    tell()
    await work
