"""Bulk singles that wait for their pace: nothing is done for them until there is a token, and then in a fair order."""

from __future__ import annotations

import asyncio

import pytest

from schemas import keys
from schemas.messages import EventKind
from streams.singles_queue import SHARED_MOST
from tests.doubles.bulk_world import EMAIL, PUSH, SMS, BulkWorld

ACME, BOLT = "acme", "bolt"


def names(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number:04}" for number in range(count)]


def test_thousands_that_wait_are_looked_at_only_when_there_is_a_token_for_them() -> None:
    async def story(world: BulkWorld) -> None:
        waiting = names("user", 5_000)
        world.accept(ACME, "mail", *waiting)
        await asyncio.sleep(2)
        first = sum(world.taken.values())
        assert first == 5_000
        world.trips.commands = 0
        world.rates[ACME, EMAIL] = 100
        await asyncio.sleep(10)
        sent = world.sent(EMAIL)
        assert len(sent) == pytest.approx(1_000, abs=100)
        assert sent == waiting[: len(sent)], "the oldest first"
        assert sum(world.taken.values()) - first <= len(sent) + 100
        assert world.trips.commands <= 10 * len(sent)

    BulkWorld().run(story)


def test_dispatch_hears_how_many_wait_until_none_does() -> None:
    async def story(world: BulkWorld) -> None:
        world.accept(ACME, "mail", *names("user", 1_200))
        await asyncio.sleep(2)
        assert await world.wished(ACME, EMAIL) == 1_200
        world.rates[ACME, EMAIL] = 10_000
        await asyncio.sleep(2)
        assert len(world.sent(EMAIL)) == 1_200
        assert await world.wished(ACME, EMAIL) == 0

    BulkWorld().run(story)


def test_a_pace_that_is_raised_is_used_within_a_second() -> None:
    async def story(world: BulkWorld) -> None:
        world.rates[ACME, EMAIL] = 1
        world.accept(ACME, "mail", *names("user", 2_000))
        await asyncio.sleep(20)
        assert len(world.sent(EMAIL)) <= 20
        world.rates[ACME, EMAIL] = 8_000
        await asyncio.sleep(1)
        assert len(world.sent(EMAIL)) == 2_000

    BulkWorld().run(story)


def test_one_that_is_alone_goes_within_a_second() -> None:
    async def story(world: BulkWorld) -> None:
        world.rates[ACME, EMAIL] = 100
        await asyncio.sleep(5.1)
        world.accept(ACME, "mail", "ann")
        await asyncio.sleep(5)
        assert world.sent_s("ann") - 5.1 < 0.75

    BulkWorld().run(story)


def test_a_tenant_without_tokens_does_not_stop_another() -> None:
    async def story(world: BulkWorld) -> None:
        world.accept(ACME, "mail", *names("acme", 3_000))
        await asyncio.sleep(1)
        world.rates[BOLT, EMAIL] = 1_000
        world.accept(BOLT, "mail", *names("bolt", 300))
        await asyncio.sleep(2)
        assert world.sent(EMAIL) == names("bolt", 300)

    BulkWorld().run(story)


def test_one_with_two_devices_does_not_wait_for_ever_beside_many_with_one() -> None:
    async def story(world: BulkWorld) -> None:
        world.accept(ACME, "app", "first")
        world.accept(ACME, "app", "two", devices=2)
        world.accept(ACME, "app", *names("one", 100))
        await asyncio.sleep(1)
        world.rates[ACME, PUSH] = 4
        await asyncio.sleep(5)
        assert world.sent(PUSH)[:4] == ["first", "two", "two", "one-0000"]

    BulkWorld().run(story)


def test_one_on_two_channels_keeps_nobody_from_the_faster_one() -> None:
    async def story(world: BulkWorld) -> None:
        world.accept(ACME, "both", *names("both", 400))
        world.accept(ACME, "mail", *names("mail", 400))
        await asyncio.sleep(1)
        world.rates |= {(ACME, EMAIL): 100, (ACME, SMS): 1}
        await asyncio.sleep(10)
        assert world.sent(SMS) == names("both", len(world.sent(SMS)))
        assert len(world.sent(SMS)) == pytest.approx(10, abs=2)
        assert set(names("mail", 400)) < set(world.sent(EMAIL))
        unused = world.granted[ACME, EMAIL] - len(world.sent(EMAIL))
        assert unused <= SHARED_MOST, "they would all go at once when others of this lane come"

    BulkWorld().run(story)


def test_who_expires_while_waiting_ends_then() -> None:
    async def story(world: BulkWorld) -> None:
        world.accept(ACME, "mail", "ann", expires_at_ms=world.clock.now_ms() + 8_000)
        world.accept(ACME, "mail", "bob")
        await asyncio.sleep(7.5)
        assert world.ends(EventKind.EXPIRED) == 0
        await asyncio.sleep(1)
        assert world.ends(EventKind.EXPIRED) == 1
        assert await world.wished(ACME, EMAIL) == 1

    BulkWorld().run(story)


def test_the_token_of_one_that_was_cancelled_meanwhile_is_for_the_next() -> None:
    async def story(world: BulkWorld) -> None:
        world.accept(ACME, "mail", "ann", "bob")
        await asyncio.sleep(1)
        intent = keys.single_intent(ACME, "ann")
        world.trips.redis.reply("SET", keys.redis_cancel(ACME, "ann", intent), "1")
        await world.grants.give({(ACME, EMAIL): 1})
        await asyncio.sleep(1)
        assert world.sent(EMAIL) == ["bob"]
        assert world.ends(EventKind.CANCELLED) == 1

    BulkWorld().run(story)


def test_what_another_process_took_over_is_wished_for_and_sent_there_only() -> None:
    async def story(world: BulkWorld) -> None:
        acme, bolt = names("acme", 200), names("bolt", 200)
        world.accept(ACME, "mail", *acme)
        world.accept(BOLT, "mail", *bolt)
        await asyncio.sleep(1)
        world.start()
        await asyncio.sleep(2)
        assert sum(world.taken.values()) == 600, "half of the partitions have moved"
        assert [await world.wished(tenant, EMAIL) for tenant in (ACME, BOLT)] == [200, 200]
        world.rates |= {(ACME, EMAIL): 100, (BOLT, EMAIL): 100}
        await asyncio.sleep(4)
        assert sorted(world.sent(EMAIL)) == [*acme, *bolt]

    BulkWorld(partitions=4).run(story)


def test_they_go_on_waiting_while_redis_is_away() -> None:
    async def story(world: BulkWorld) -> None:
        waiting = names("user", 300)
        world.rates[ACME, EMAIL] = 20
        world.accept(ACME, "mail", *waiting)
        await asyncio.sleep(2)
        world.trips.is_down = True
        await asyncio.sleep(8)
        world.trips.is_down = False
        world.rates[ACME, EMAIL] = 1_000
        await asyncio.sleep(30)
        assert sorted(world.sent(EMAIL)) == waiting

    BulkWorld().run(story)
