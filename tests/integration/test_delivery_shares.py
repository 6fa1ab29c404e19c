"""The delivery-rate alarm on real Redis: what status processes count, and what several that watch make of it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from consumers import breaker
from deploy.redis_trips import RedisTrips
from schemas import keys, metrics
from schemas.errors import StoreDown
from schemas.trips import asked
from streams.share_tally import UNTOLD_MAX, ShareTally
from streams.share_watch import ShareWatch
from tests.doubles.manual_clock import START_MS, ManualClock
from tests.doubles.memory_trips import MemoryTrips

MINUTE = START_MS // 60_000
PUSH = "push"


class Site:
    """A provider of its own, counted and watched. standby: another one is there for its channel."""

    def __init__(self, redis: Redis, standby: bool = False) -> None:
        self.redis, self.trips, self.clock = redis, RedisTrips(redis, "shares"), ManualClock()
        self.provider = uuid.uuid4().hex
        avoidable = frozenset({(self.provider, PUSH)}) if standby else frozenset()
        self.watches = [ShareWatch(self.trips, self.clock, {PUSH: [self.provider]}, avoidable) for _ in range(2)]

    async def count(self, minutes_ago: int, sent: int, soon: int) -> None:
        tally = ShareTally({self.provider})
        tally.counted[self.provider, PUSH, self.clock.now_ms() // 60_000 - minutes_ago] = [sent, soon]
        await tally.tell(self.trips, self.clock)
        assert not tally.counted

    async def look(self) -> None:
        for watch in self.watches:
            await watch.look()

    def shown(self) -> tuple[float, float, float]:
        """(share, usual share, alarm) as `/metrics` shows them."""
        gauges = (metrics.DELIVERED_SHARE, metrics.DELIVERED_USUAL_SHARE, metrics.DELIVERED_SHARE_ALARM)
        share, usual, alarm = (gauge.labels(self.provider, PUSH)._value.get() for gauge in gauges)
        return round(share, 3), round(usual, 3), alarm

    async def avoided_until(self) -> int:
        return int(await ask(self.trips, "HGET", keys.redis_breaker(self.provider), "avoid") or 0)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()


async def ask(trips: RedisTrips, *command: Any) -> Any:
    return (await asked(trips, lambda trip: trip.execute_command(*command)))[0]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "streams.share_watch"]


async def test_a_fall_is_shown_by_all_and_logged_once_and_so_is_the_recovery(
    redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(redis)
    with caplog.at_level(logging.INFO):
        for hours in (24, 25, 100):
            await site.count(hours * 60, 1_000_000, 950_000)
        await site.count(15, 1_000, 940)
        await site.look()
        assert (site.shown(), told(caplog)) == ((0.94, 0.95, 0.0), [])
        site.clock.advance(20 * 60_000)
        await site.count(15, 1_000, 500)
        for _ in range(3):
            await site.look()
        assert (site.shown(), told(caplog)) == ((0.5, 0.95, 1.0), ["delivery_share.fell"])
        site.clock.advance(20 * 60_000)
        await site.count(15, 1_000, 800)
        await site.look()
        assert site.shown()[2] == 1.0, "better, but not well"
        site.clock.advance(20 * 60_000)
        await site.count(15, 1_000, 950)
        await site.look()
        assert site.shown()[2] == 0.0
        assert told(caplog) == ["delivery_share.fell", "delivery_share.recovered"]


async def test_a_provider_is_avoided_while_its_alarm_is_on_and_only_where_another_stands_by(redis: Redis) -> None:
    for site in (alone := Site(redis), paired := Site(redis, standby=True)):
        await site.count(24 * 60, 1_000, 950)
        await site.count(15, 1_000, 950)
        await site.look()
        assert await site.avoided_until() == 0
        site.clock.advance(20 * 60_000)
        await site.count(15, 1_000, 100)
        await site.look()
    assert await alone.avoided_until() == 0
    assert await paired.avoided_until() == paired.clock.now_ms() + 60_000


async def test_a_breaker_that_a_person_opened_stays_open_though_its_provider_is_avoided(redis: Redis) -> None:
    site = Site(redis, standby=True)
    await asked(site.trips, lambda trip: breaker.ask_open(trip, site.provider, site.clock.now_ms()))
    await site.count(24 * 60, 1_000, 950)
    await site.count(15, 1_000, 100)
    await site.look()
    assert await site.avoided_until() > 0
    assert await redis.ttl(keys.redis_breaker(site.provider)) == -1, "for ever, until a person closes it"


async def test_an_alarm_that_nobody_can_judge_any_more_ends_by_itself(redis: Redis) -> None:
    site = Site(redis)
    await site.count(24 * 60, 1_000, 950)
    await site.count(15, 1_000, 100)
    await site.look()
    site.clock.advance(20 * 60_000)
    await site.look()
    assert site.shown()[2] == 1.0
    assert 1_700 < await redis.ttl(keys.redis_share_alarm(site.provider, PUSH)) <= 1_800


async def test_counts_end_by_themselves_and_are_added_up_over_processes(redis: Redis) -> None:
    site = Site(redis)
    for _ in range(3):
        await site.count(0, 5, 4)
    by_minute = keys.redis_share(site.provider, PUSH, "h", MINUTE // 60)
    by_hour = keys.redis_share(site.provider, PUSH, "d", MINUTE // 1440)
    assert await ask(site.trips, "HGETALL", by_minute) == {b"%ds" % MINUTE: b"15", b"%dd" % MINUTE: b"12"}
    assert await ask(site.trips, "HGETALL", by_hour) == {b"%ds" % (MINUTE // 60): b"15", b"%dd" % (MINUTE // 60): b"12"}
    assert 0 < await redis.ttl(by_minute) <= 3 * 3_600 and 0 < await redis.ttl(by_hour) <= 9 * 86_400


async def test_while_redis_is_away_counts_are_kept_within_a_bound(redis: Redis) -> None:
    away, clock, tally = MemoryTrips(), ManualClock(), ShareTally({"gateway"})
    away.down = True
    for minute in range(UNTOLD_MAX + 50):
        tally.counted["gateway", PUSH, MINUTE - minute % 5_000] = [1, 0]
    await tally.tell(away, clock)
    assert len(tally.counted) == UNTOLD_MAX
    with pytest.raises(StoreDown):
        await ShareWatch(away, clock, {PUSH: ["gateway"]}).look()
