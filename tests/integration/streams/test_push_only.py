"""A deployment that configures push alone: whoever has a device is reached, whoever has not is told why not.

On real Redis; the log is the one in memory, and the status road runs without Faust.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from consumers.controls import Controls
from deploy import redis_client, settings
from deploy.processes import shared
from deploy.redis_trips import RedisTrips
from producers import requests
from retry_topics.dead_letters import DeadLetters
from schemas import codec, keys, partitions, slots
from schemas.messages import (
    AudiencePage,
    CampaignStatus,
    Channel,
    Contact,
    Delivery,
    Device,
    EventKind,
    NotificationRequested,
    Priority,
    Recipient,
    StatusEvent,
)
from schemas.policies import MessageClass, TemplatePolicy
from schemas.quiet_hours import QuietHours
from schemas.reasons import Reason
from schemas.records import Answer, Done, Outgoing, Record
from schemas.rows import Row
from schemas.stores import SlotView
from schemas.trips import Epoch
from streams.fan_out import FanOut
from streams.intake import Doors, Entry
from streams.recipients import RedisProfiles
from streams.route import Route
from tests.doubles import campaigns as accepted
from tests.doubles.campaign_road import CampaignRoad
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_road import IDS, TOPICS, batch

PUSH_ONLY = """
[channels.push]
providers = ["gateway"]
[providers.gateway]
kind = "http"
url = "http://127.0.0.1:9000/send"
rate_per_s = 1000
burst = 100
"""
POLICIES = {
    "offer": TemplatePolicy("offer", MessageClass.MARKETING, (), (Channel.EMAIL, Channel.PUSH, Channel.SMS)),
    "code": TemplatePolicy("code", MessageClass.TRANSACTIONAL, (Channel.PUSH, Channel.EMAIL)),
}
ADDRESSES = Contact(email="ann@example.org", devices=(Device("phone", "token", "ios"),))


class NoRows:
    """Status rows, which nobody here asks for."""

    async def slot(self, tenant: str, address: keys.Address) -> None:
        return None

    async def row(self, tenant: str, row: str) -> list[None]:
        return []


class World(CampaignRoad):
    def __init__(self, folder: Path, trips: RedisTrips, epoch: Epoch) -> None:
        file = folder / "tidings.toml"
        file.write_text(PUSH_ONLY)
        served = shared.served(settings.load(file, {}))
        super().__init__(folder, POLICIES, served)
        self.rates = {channel: 1_000.0 if channel in served else 0.0 for channel in Channel}
        profiles = RedisProfiles(trips, epoch)
        self.fan_out = FanOut(
            POLICIES,
            profiles,
            trips,
            epoch,
            self.log,
            TOPICS,
            self.clock,
            NoRows(),
            QuietHours({}, {}),
            Controls().order,
            served,
        )
        entries = {TOPICS.requests("default"): Entry("default", "0a1b2c3d", Priority.TRANSACTIONAL)}
        doors = Doors(check, DeadLetters(TOPICS, self.clock).parked, profiles, NoRows(), served)
        self.route = Route(entries, POLICIES, doors, trips, epoch, TOPICS, IDS, self.clock)

    def deliveries(self) -> list[Delivery]:
        return [codec.decode(record.value, Delivery) for record in self.log.records(*TOPICS.lanes())]

    def notification(self, row: str, slot: int) -> SlotView:
        key = keys.row_key("default", row).encode()
        raw = self.store.get(partitions.murmur2_partition(key, self.log.partition_count), key)
        return slots.view(Row(True, raw).slot(slot))

    async def send_all(self) -> None:
        for one in self.deliveries():
            sent = StatusEvent(
                one.slot, EventKind.SENT, START_MS, keys.delivery_suffix(one.channel, one.device), call=1
            )
            await self.write(batch(sent, row=one.row))


def check(event: NotificationRequested, now_ms: int) -> NotificationRequested:
    return requests.check_event(event, POLICIES, now_ms, requests.Limits())


@pytest.fixture
async def world(redis_url: str, tmp_path: Path) -> AsyncIterator[World]:
    epoch = Epoch()
    redis = redis_client.connect(redis_url, epoch)
    await redis.flushdb()
    await redis.set(keys.REDIS_EPOCH, epoch.run_id)
    world = World(tmp_path, RedisTrips(redis, "streams"), epoch)
    await world.restart()
    yield world
    await redis.flushdb()
    await redis.aclose()


async def accept(world: World, *recipients: Recipient) -> None:
    wanted = await accepted.accept(world.log, TOPICS, "other", ["x"], send_at_ms=START_MS + 3_600_000)
    (page,) = world.log.records(TOPICS.audience)
    found = codec.decode(page.value, AudiencePage)
    value = codec.encode(replace(found, campaign_id="spring", recipients=recipients))
    (placed,) = await world.log.publish([Outgoing(TOPICS.audience, None, value, partition=wanted.partition)])
    spring = replace(
        wanted,
        campaign_id="spring",
        send_at_ms=0,
        first_offset=placed.offset,
        last_offset=placed.offset,
        recipients=len(recipients),
    )
    await world.log.publish([Outgoing(TOPICS.campaign_requests, b"default/spring", codec.encode(spring))])


async def test_a_campaign_with_channels_nobody_serves_reaches_who_has_a_device_and_ends(world: World) -> None:
    await accept(world, Recipient("ann", to=ADDRESSES), Recipient("bob", to=Contact(email="bob@example.org")))
    leader = await world.leader()
    await leader.look(1)
    (page,) = world.pages()
    await world.fan_out.expand(page)
    (delivery,) = world.deliveries()
    assert (delivery.user_id, delivery.channel, delivery.fallback) == ("ann", Channel.PUSH, ())
    await world.send_all()
    await world.settle(leader)
    state = world.campaign("spring")
    assert (state.status, state.outcomes) == (CampaignStatus.PROCESSED, {"sent": 1, "suppressed": 1})
    assert [(d.channel, d.reason) for d in world.notification(delivery.row, 1).deliveries] == [
        ("email", Reason.NO_PROVIDER),
        ("push", Reason.NO_ADDRESS),
        ("sms", Reason.NO_PROVIDER),
    ]


async def test_a_single_goes_out_on_push_and_says_that_email_has_no_provider(world: World) -> None:
    event = NotificationRequested(
        "default", "order-1", "ann", "code", to=ADDRESSES, accepted_at_ms=START_MS, expires_at_ms=START_MS + 60_000
    )
    record = Record(TOPICS.requests("default"), 0, 7, b"default/ann", codec.encode(event), (), START_MS)
    answers: list[Answer] = []
    await world.route.handle([record], lambda _, answer: answers.append(answer))
    (done,) = answers
    assert isinstance(done, Done)
    assert [outgoing.topic for outgoing in done.publish] == [TOPICS.lane(Channel.PUSH, Priority.TRANSACTIONAL)]
    assert [(told.event.delivery, told.event.reason) for told in done.events if told.event.reason] == [
        ("email", Reason.NO_PROVIDER)
    ]
