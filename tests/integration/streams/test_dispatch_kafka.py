"""Dispatch on real Kafka: leaders that die, and campaigns that reach every recipient once all the same."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack

import pytest
from redis.asyncio import Redis

from consumers.controls import Controls
from deploy import redis_client
from deploy.redis_trips import RedisTrips
from producers.publisher import KafkaPublisher
from schemas import codec, keys
from schemas.clock import SystemClock
from schemas.messages import CampaignState, Channel, Delivery, LeaderRecord, ReleasedPage
from schemas.quiet_hours import QuietHours
from schemas.records import Outgoing, Record
from schemas.stores import SlotView
from schemas.topics import Topics
from schemas.trips import Epoch
from streams.fan_out import FanOut
from streams.leader import KafkaLeadership
from streams.recipients import RedisProfiles
from streams.tails import KafkaTails
from tests.conftest import CreateTopics
from tests.doubles import campaigns as accepted
from tests.integration.streams import dispatch_process

TAKEOVER_S = 15.0


class NoRows:
    """Status rows, which nobody here asks for."""

    async def slot(self, tenant: str, address: keys.Address) -> SlotView | None:
        return None

    async def row(self, tenant: str, row: str) -> list[SlotView | None]:
        return []


class World:
    """Fan-out and a worker that finishes everything at once, beside the processes under test."""

    def __init__(self, kafka: dict[str, str], redis: Redis, epoch: Epoch, topics: Topics) -> None:
        self.kafka, self.redis, self.topics = kafka, redis, topics
        self.publisher = KafkaPublisher(kafka)
        self.tails = KafkaTails(kafka)
        self.pages: list[ReleasedPage] = []
        self.states: list[CampaignState] = []
        self.deliveries: list[Delivery] = []
        self.lane = topics.lane(Channel.INAPP, "bulk")
        self.changed = asyncio.Condition()
        trips = RedisTrips(redis, "fan_out")
        profiles = RedisProfiles(trips, epoch)
        self.fan_out = FanOut(
            dispatch_process.POLICIES,
            profiles,
            trips,
            epoch,
            self.publisher,
            topics,
            SystemClock(),
            NoRows(),
            QuietHours({}, {}),
            Controls().order,
        )

    async def follow(self) -> None:
        await self.tails.follow([self.topics.pages, self.topics.campaign_state, self.lane], self._seen)

    def _seen(self, record: Record) -> None:
        if record.topic == self.topics.pages:
            self.pages.append(codec.decode(record.value, ReleasedPage))
        elif record.topic == self.topics.campaign_state:
            self.states.append(codec.decode(record.value, CampaignState))
        else:
            self.deliveries.append(codec.decode(record.value, Delivery))
        self._woken = asyncio.ensure_future(self._wake())

    async def _wake(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def until(self, holds: Callable[[], bool], within_s: float) -> None:
        async with asyncio.timeout(within_s), self.changed:
            await self.changed.wait_for(holds)

    async def bring_to_lanes(self) -> None:
        """Fans out what was let go, and finishes it."""
        for page in self.pages:
            await self.fan_out.expand(page)
        await self.until(lambda: len(self.deliveries) >= sum(len(page.recipients) for page in self.pages), 10)
        done = f"{len(self.deliveries)} 0 0"
        await self.redis.hset(keys.redis_progress(self.lane), "0", done)  # type: ignore[misc]

    async def close(self) -> None:
        await self.tails.close()
        await self.publisher.close()


@pytest.fixture
def topics(topic_prefix: str, create_topics: CreateTopics) -> Topics:
    return Topics(topic_prefix)


@pytest.fixture(scope="module", autouse=True)
def _made(topic_prefix: str, create_topics: CreateTopics) -> None:
    names = Topics(topic_prefix)
    used = {
        names.leader, names.audience, names.campaign_requests, names.campaign_control, names.pages, names.cursor,
        names.campaign_state, names.progress, names.status, names.hold, names.hold_control,
        names.lane(Channel.INAPP, "bulk"),
    }  # fmt: skip
    create_topics(*[spec for spec in names.specs() if spec.name in used])


@pytest.fixture
async def world(kafka_bootstrap: str, redis_url: str, topics: Topics) -> AsyncIterator[World]:
    epoch = Epoch()
    redis = redis_client.connect(redis_url, epoch)
    await redis.flushdb()
    await redis.set(keys.REDIS_EPOCH, epoch.run_id)
    world = World({"bootstrap.servers": kafka_bootstrap}, redis, epoch, topics)
    await world.follow()
    yield world
    await world.close()
    await redis.flushdb()
    await redis.aclose()


Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def start(kafka_bootstrap: str, redis_url: str, topic_prefix: str) -> Iterator[Start]:
    processes: list[subprocess.Popen[bytes]] = []

    def start_one(instance: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", dispatch_process.__name__, kafka_bootstrap, redis_url, topic_prefix, instance]
        processes.append(subprocess.Popen(command))
        return processes[-1]

    yield start_one
    for process in processes:
        process.kill()
        process.wait()


async def test_a_killed_leader_is_replaced_and_every_recipient_reached_once(world: World, start: Start) -> None:
    first = start("first")
    await accepted.accept(
        world.publisher, world.topics, "spring", 2_000, expires_at_ms=SystemClock().now_ms() + 3_600_000
    )
    await world.until(lambda: len(world.pages) >= 5, 30)
    start("second")
    first.kill()
    await world.bring_to_lanes()
    released = len(world.pages)
    await world.until(lambda: {page.page for page in world.pages} == set(range(8)), TAKEOVER_S)
    again = len(world.pages) - 8
    assert released == 5
    assert again <= 5, "at most what the first had let go"
    world.deliveries.clear()
    await world.bring_to_lanes()
    once = Counter((delivery.user_id, delivery.row, delivery.slot) for delivery in world.deliveries)
    assert len(once) == 2_000
    await world.until(lambda: world.states[-1].released == 2_000, 10)
    epochs = [state.epoch for state in world.states]
    assert epochs == sorted(epochs) and epochs[0] < epochs[-1]


async def test_only_one_leads_and_the_next_takes_over_when_it_leaves(world: World) -> None:
    group, clock = world.topics.group("dispatch-two"), SystemClock()
    async with AsyncExitStack() as stack:
        one, two = (
            KafkaLeadership(world.kafka, world.topics.leader, group, name, world.publisher, clock)
            for name in ("one", "two")
        )
        await one.start()
        epoch = await asyncio.wait_for(one.acquired(), 30)
        stack.push_async_callback(two.close)
        await two.start()
        assert two.epoch is None
        await one.close()
        assert await asyncio.wait_for(two.acquired(), TAKEOVER_S) > epoch
        assert one.epoch is None


async def test_a_former_leaders_late_record_makes_the_leader_write_again(world: World) -> None:
    group, clock = world.topics.group("dispatch-late"), SystemClock()
    leader = KafkaLeadership(world.kafka, world.topics.leader, group, "now", world.publisher, clock)
    await leader.start()
    epoch = await asyncio.wait_for(leader.acquired(), 30)
    late = codec.encode(LeaderRecord("former", clock.now_ms()))
    (placed,) = await world.publisher.publish([Outgoing(world.topics.leader, b"leader", late)])
    async with asyncio.timeout(10):
        while leader.epoch is None or leader.epoch < placed.offset:  # noqa: ASYNC110 the epoch has no signal of its change
            await asyncio.sleep(0.02)
    assert leader.epoch > placed.offset > epoch
    await leader.close()
