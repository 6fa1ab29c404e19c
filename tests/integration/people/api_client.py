"""The API's resources about people on a real Redis and a log in memory, as a caller sees them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from redis.asyncio import Redis

from deploy.redis_news import RedisLine
from deploy.redis_trips import RedisTrips
from producers import auth
from producers.api import inbox, openapi, suppressions, user_notifications, users
from producers.api.app import door
from producers.api.parts import PARTS, ApiParts
from producers.api.people import PeopleParts
from schemas.clock import SystemClock
from schemas.facets import FacetTopic
from schemas.topics import Topics
from schemas.trips import Epoch
from streams.inbox import RedisInbox
from streams.recipients import RedisProfiles, RedisSuppressions
from streams.timelines import RedisTimeline
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_log import MemoryLog

TOPICS = Topics()
Client = TestClient[web.Request, web.Application]


class People:
    """A running API and what lies behind it."""

    def __init__(self, redis: Redis, epoch: Epoch, tenant: str) -> None:
        self.redis, self.epoch, self.tenant = redis, epoch, tenant
        self.log = MemoryLog(2)
        trips = RedisTrips(redis, "people")
        self.clock = ManualClock(SystemClock().now_ms())
        self.inbox = RedisInbox(trips, partial(RedisLine, redis, "inbox"), epoch, self.clock)
        self.profiles = RedisProfiles(trips, epoch)
        self.suppressions = RedisSuppressions(trips, epoch)
        self.parts = PeopleParts(
            self.log,
            TOPICS,
            FacetTopic(TOPICS.recipients, 2),
            self.profiles,
            self.suppressions,
            self.inbox,
            RedisTimeline(trips, epoch),
            SystemClock(),
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Client]:
        app = web.Application(middlewares=[door])
        app[PARTS] = _door_parts(self.tenant)
        openapi.register(app)
        for resource in (users, suppressions, inbox, user_notifications):
            resource.register(app, self.parts)
        async with TestClient(TestServer(app)) as client:
            yield client
        await self.inbox.close()


def _door_parts(tenant: str) -> ApiParts:
    """Only what the door itself needs."""
    parts: dict[str, Any] = dict.fromkeys(field.name for field in fields(ApiParts))
    parts |= {"keys": auth.Keys(open_tenant=tenant), "clock": SystemClock(), "random_bytes": os.urandom}
    return ApiParts(**parts)
