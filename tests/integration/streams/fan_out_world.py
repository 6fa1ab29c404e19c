"""Fan-out on real Redis; the log is the one in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from redis.asyncio import Redis

from consumers.controls import Controls
from deploy import redis_client
from deploy.redis_trips import RedisTrips
from schemas import codec, keys
from schemas.messages import CampaignControl, CampaignOrder, Channel, Delivery, Held, StatusBatch, StatusEvent
from schemas.policies import MessageClass, QuietWindow, TemplatePolicy
from schemas.quiet_hours import QuietHours
from schemas.records import Record
from schemas.stores import SlotView
from schemas.topics import Topics
from schemas.trips import Epoch
from streams.fan_out import FanOut
from streams.recipients import RedisProfiles
from tests.doubles.manual_clock import START_MS, ManualClock
from tests.doubles.memory_log import MemoryLog

TOPICS = Topics()
ZONES = {"default": "Europe/Berlin"}
POLICIES = {
    "offer": TemplatePolicy("offer", MessageClass.MARKETING, (Channel.EMAIL,)),
    "turns": TemplatePolicy("turns", MessageClass.MARKETING, (Channel.EMAIL,), fallback=(Channel.INAPP,)),
    "falls": TemplatePolicy("falls", MessageClass.MARKETING, (Channel.PUSH,), fallback=(Channel.EMAIL, Channel.SMS)),
}


class Rows:
    """Status rows as their owner would tell them."""

    def __init__(self) -> None:
        self.told: list[SlotView | None] = []

    async def slot(self, tenant: str, address: keys.Address) -> SlotView | None:
        return self.told[address.slot]

    async def row(self, tenant: str, row: str) -> list[SlotView | None]:
        return self.told


class World:
    def __init__(self, redis: Redis, epoch: Epoch, nights: Mapping[str, QuietWindow]) -> None:
        self.redis = redis
        self.log = MemoryLog()
        self.clock = ManualClock()
        trips = RedisTrips(redis, "fan_out")
        profiles = RedisProfiles(trips, epoch)
        self.rows = Rows()
        self.quiet = QuietHours(nights, ZONES)
        self.controls = Controls()
        self.fan_out = FanOut(
            POLICIES,
            profiles,
            trips,
            epoch,
            self.log,
            TOPICS,
            self.clock,
            self.rows,
            self.quiet,
            self.controls.order,
        )

    async def knows(self, user_id: str, email: str, time_zone: str = "") -> None:
        profile = keys.redis_profile("default", user_id)
        await self.redis.hset(profile, "user", f'1 ["{email}", "", "", "{time_zone}"]')  # type: ignore[misc]

    async def has_phone(self, user_id: str, device: str, registered_at_ms: int) -> None:
        facet = f'1 ["{device}", "t", "ios", "", "", {registered_at_ms}]'
        await self.redis.hset(keys.redis_profile("default", user_id), f"device/{device}", facet)  # type: ignore[misc]

    def cancel(self, campaign_id: str) -> None:
        """Its owner has cancelled the campaign."""
        wish = CampaignControl("default", campaign_id, CampaignOrder.CANCELLED, 0, START_MS, 0)
        key = keys.cancel_key("default", campaign_id).encode()
        self.controls.see(Record(TOPICS.campaign_control, 0, 0, key, codec.encode(wish), (), START_MS))

    def deliveries(self) -> list[Delivery]:
        return [codec.decode(record.value, Delivery) for record in self.log.records(*TOPICS.lanes())]

    def events(self) -> list[StatusEvent]:
        records = self.log.records(TOPICS.status)
        return [event for record in records for event in codec.decode(record.value, StatusBatch).events]

    def held(self) -> list[Held]:
        """By when they are due."""
        found = [codec.decode(record.value, Held) for record in self.log.records(TOPICS.hold)]
        return sorted(found, key=lambda held: held.due_ms)


@asynccontextmanager
async def opened(redis_url: str, nights: Mapping[str, QuietWindow] | None = None) -> AsyncIterator[World]:
    """nights: the quiet hours of tenants that have any."""
    epoch = Epoch()
    redis = redis_client.connect(redis_url, epoch)
    await redis.flushdb()
    await redis.set(keys.REDIS_EPOCH, epoch.run_id)
    yield World(redis, epoch, nights or {})
    await redis.flushdb()
    await redis.aclose()
