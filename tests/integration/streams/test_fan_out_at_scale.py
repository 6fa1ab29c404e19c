"""Many pages through a client whose queue is far too small for them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
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
    topics = Topics(topic_prefix)
    lane = topics.lane(Channel.EMAIL, "bulk")
    create_topics(lane, topics.status, partitions=4)
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # this process may have been larger before
        peaks_kb = await asyncio.get_running_loop().run_in_executor(
            fresh, expanded, kafka_bootstrap, redis_url, topic_prefix
        )
    reader = KafkaLogReader({"bootstrap.servers": kafka_bootstrap})
    ends = [(await reader.offsets(lane, number))[1] for number in range(4)]
    await reader.close()
    assert sum(ends) == PAGES * A_PAGE
    assert peaks_kb[-1] < peaks_kb[WARM] + GROWTH_KB


def expanded(bootstrap: str, redis_url: str, topic_prefix: str) -> list[int]:
    """The most memory this process held by the end of each page. In a process of its own."""
    return asyncio.run(_expanded(bootstrap, redis_url, Topics(topic_prefix)))


async def _expanded(bootstrap: str, redis_url: str, topics: Topics) -> list[int]:
    epoch, clock = Epoch(), SystemClock()
    publisher = KafkaPublisher({"bootstrap.servers": bootstrap}, PublisherOptions(queue_records=QUEUE_RECORDS))
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
    await redis.flushdb()
    await redis.aclose()
    await publisher.close()
    return peaks_kb


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
