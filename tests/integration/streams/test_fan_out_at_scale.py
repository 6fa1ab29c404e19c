"""Many pages through a client whose queue is far too small for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis

from consumers.controls import Controls
from deploy import redis_client
from deploy.redis_trips import RedisTrips
from producers.publisher import KafkaPublisher, PublisherOptions
from schemas import keys
from schemas.clock import SystemClock
from schemas.messages import Channel, Contact, Recipient, ReleasedPage
from schemas.policies import MessageClass, TemplatePolicy
from schemas.quiet_hours import QuietHours
from schemas.topics import Topics
from schemas.trips import Epoch
from streams.fan_out import FanOut
from streams.log_reader import KafkaLogReader
from streams.recipients import RedisProfiles
from tests.conftest import CreateTopics
from tests.doubles.pages import page
from tests.integration.streams.fan_out_world import Rows

PAGES, A_PAGE = 800, 250
AT_ONCE = 8
QUEUE_RECORDS = 1_000
WARM = 100
GROWTH_KB = 30_000
POLICIES = {"offer": TemplatePolicy("offer", MessageClass.MARKETING, (Channel.EMAIL,))}


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_two_hundred_thousand_deliveries_pass_through_a_queue_of_a_thousand_in_steady_memory(
    kafka_bootstrap: str, redis_url: str, topic_prefix: str, create_topics: CreateTopics
) -> None:
    """K30."""
    topics, epoch, clock = Topics(topic_prefix), Epoch(), SystemClock()
    lane = topics.lane(Channel.EMAIL, "bulk")
    create_topics(lane, topics.status, partitions=4)
    kafka = {"bootstrap.servers": kafka_bootstrap}
    publisher, reader = KafkaPublisher(kafka, PublisherOptions(queue_records=QUEUE_RECORDS)), KafkaLogReader(kafka)
    redis = redis_client.connect(redis_url, epoch)
    await trusted(redis, epoch)
    trips = RedisTrips(redis, "fan_out")
    fan_out = FanOut(
        POLICIES,
        RedisProfiles(trips, epoch),
        trips,
        epoch,
        publisher,
        topics,
        clock,
        Rows(),
        QuietHours({}, {}),
        Controls().order,
    )
    waiting = iter(range(PAGES))
    peaks_kb: list[int] = []

    async def work() -> None:
        for number in waiting:
            await fan_out.expand(full_page(number, clock.now_ms()))
            peaks_kb.append(peak_kb())

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    ends = [(await reader.offsets(lane, number))[1] for number in range(4)]
    assert sum(ends) == PAGES * A_PAGE
    assert peaks_kb[-1] < peaks_kb[WARM] + GROWTH_KB
    await redis.flushdb()
    await redis.aclose()
    await asyncio.gather(publisher.close(), reader.close())


async def trusted(redis: Redis, epoch: Epoch) -> None:
    await redis.flushdb()
    await redis.set(keys.REDIS_EPOCH, epoch.run_id)


def full_page(number: int, now_ms: int) -> ReleasedPage:
    names = [f"reader{number * A_PAGE + place}" for place in range(A_PAGE)]
    people = [Recipient(name, "{}", Contact(email=f"{name}@example.org")) for name in names]
    return page(*people, page=number, accepted_at_ms=now_ms, released_at_ms=now_ms, expires_at_ms=now_ms + 3_600_000)


def peak_kb() -> int:
    """The most memory this process ever held."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
