"""Whatever happens to Redis, nobody who opted out is reached: it is trusted only after the log was put back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import pytest
from redis.asyncio import Redis

from deploy import redis_client
from schemas import facets, keys
from schemas.errors import Poison, StoreDown, Transient
from schemas.messages import FacetKind, RecipientFacet
from schemas.records import Outgoing
from schemas.trips import Epoch
from tests.doubles.memory_log import MemoryLog
from tests.integration.people.commands import run
from tests.integration.people.rebuild_world import HASHED, PARTITIONS, TOPICS, EventfulLog, World


@pytest.fixture
async def redis(redis_url: str, epoch: Epoch) -> AsyncIterator[Redis]:
    """A database of its own, since it is emptied."""
    parts = urlsplit(redis_url)
    client = redis_client.connect(urlunsplit(parts._replace(path="/15")), epoch)
    await run(client, "FLUSHDB")
    yield client
    await run(client, "FLUSHDB")
    await client.aclose()


@pytest.fixture
def world(redis: Redis, epoch: Epoch) -> World:
    return World(redis, epoch)


async def test_a_new_redis_is_trusted_only_after_the_rebuild(world: World) -> None:
    with pytest.raises(StoreDown):
        await world.profiles.load("t", "u1")
    assert await world.rebuild.look()
    assert (await world.profiles.load("t", "u1")).version == 0


async def test_an_emptied_redis_gets_opt_outs_suppressions_cancels_and_inbox_back_before_anybody_trusts_it(
    world: World,
) -> None:
    await world.rebuild.look()
    await world.write(world.opt_out("u1"), world.user("u1", "a@example.org"), world.suppression())
    await world.write(world.cancel(), world.message())
    await run(world.redis, "FLUSHDB")
    with pytest.raises(StoreDown):
        await world.profiles.load("t", "u1")
    assert await world.rebuild.look()
    profile = await world.profiles.load("t", "u1")
    assert profile.opted_out("email", "news", "marketing")
    assert profile.email == "a@example.org"
    assert await world.suppressions.load("t", "email", HASHED) == "bounced"
    assert await run(world.redis, "PTTL", keys.redis_cancel("t", "u1", "t/e/1")) > 29 * 24 * 3_600_000
    assert (await world.inbox.view("t", "u1")).unread == 1


async def test_after_a_failover_what_the_replica_had_lost_is_applied_again(world: World) -> None:
    await world.rebuild.look()
    await world.write(world.user("u1", "a@example.org"), world.user("u2", "b@example.org"))
    await world.write(world.opt_out("u3"))
    await world.write(world.opt_out("u1"), world.opt_out("u2"))
    # The replica that took over never saw the last batch, nor that it was applied.
    for user in ("u1", "u2"):
        await run(world.redis, "HDEL", keys.redis_profile("t", user), "optout/email/*")
    for partition in range(PARTITIONS):
        _, end = await world.log.offsets(TOPICS.recipients, partition)
        await run(world.redis, "HSET", keys.REDIS_APPLIED, f"{TOPICS.recipients}/{partition}", max(0, end - 2))
    await run(world.redis, "SET", keys.REDIS_EPOCH, "the server before")
    with pytest.raises(StoreDown):
        await world.profiles.load("t", "u1")
    assert await world.rebuild.look()
    for user in ("u1", "u2"):
        assert (await world.profiles.load("t", user)).opted_out("email", "news", "marketing")


async def test_after_a_failover_the_handler_does_not_hide_what_was_lost(world: World) -> None:
    await world.rebuild.look()
    await world.write(world.user("u1", "a@example.org"))
    noted = await run(world.redis, "HGETALL", keys.REDIS_APPLIED)
    await run(world.redis, "SET", keys.REDIS_EPOCH, "the server before")
    await world.write(world.user("u1", "b@example.org"), world.user("u2", "b@example.org"))
    assert await run(world.redis, "HGETALL", keys.REDIS_APPLIED) == noted


async def test_a_redis_emptied_during_the_rebuild_is_not_trusted(world: World) -> None:
    await world.log.publish([world.opt_out(f"u{number}") for number in range(20)])
    with pytest.raises(StoreDown):
        await world.rebuilder("one", EventfulLog(world.log, world.redis, "FLUSHDB")).look()
    assert await run(world.redis, "GET", keys.REDIS_EPOCH) is None
    assert await world.rebuild.look()
    assert (await world.profiles.load("t", "u0")).opted_out("email", "x", "marketing")


async def test_a_rebuild_that_was_taken_over_does_not_declare_redis_trustworthy(world: World) -> None:
    await world.log.publish([world.opt_out(f"u{number}") for number in range(20)])
    taken_over = EventfulLog(world.log, world.redis, "SET", keys.REDIS_REBUILD, "somebody else")
    with pytest.raises(StoreDown):
        await world.rebuilder("one", taken_over).look()
    assert await run(world.redis, "GET", keys.REDIS_EPOCH) is None
    assert await run(world.redis, "GET", keys.REDIS_REBUILD) == b"somebody else"


async def test_a_log_created_anew_is_believed_although_its_offsets_begin_again(world: World) -> None:
    await world.rebuild.look()
    await world.write(world.user("u1", "a@example.org"), world.user("u1", "b@example.org"), world.opt_out("u2"))
    await world.write(world.message(), world.suppression())
    world.log = MemoryLog(PARTITIONS)
    await world.log.publish([world.user("u1", "new@example.org")])
    again = world.rebuilder("one", log_id="log 2")
    assert await again.look()
    assert (await world.profiles.load("t", "u1")).email == "new@example.org"
    assert (await world.profiles.load("t", "u2")).version == 0
    assert await world.suppressions.load("t", "email", HASHED) == ""
    assert (await world.inbox.view("t", "u1")).items == ()
    assert await again.look()


async def test_only_one_of_two_processes_rebuilds_and_the_other_takes_over_when_it_dies(world: World) -> None:
    await run(world.redis, "SET", keys.REDIS_REBUILD, "one that died", "PX", 200)
    assert not await world.rebuild.look()
    await run(world.redis, "PEXPIRE", keys.REDIS_REBUILD, 0)
    assert await world.rebuild.look()
    assert await world.rebuilder("two").look()


async def test_while_the_log_is_away_redis_stays_untrusted(world: World) -> None:
    world.log.fail = True
    with pytest.raises(Transient):
        await world.rebuild.look()
    with pytest.raises(StoreDown):
        await world.profiles.load("t", "u1")


async def test_an_unreadable_record_is_handed_back_alone_and_the_rest_is_applied(world: World) -> None:
    await world.rebuild.look()
    good, bad = world.user("u1", "a@example.org"), Outgoing(TOPICS.recipients, b"t/u2/user", b"\x00garbage")
    odd = Outgoing(TOPICS.recipients, b"t/u2/whatever", None)
    mixed = Outgoing(TOPICS.recipients, b"t/u2/device/x", good.value)
    await world.log.publish([good, bad, odd, mixed])
    with pytest.raises(Poison):
        await world.hand_in(*world.log.records(TOPICS.recipients))
    assert (await world.profiles.load("t", "u1")).email == "a@example.org"
    assert (await world.profiles.load("t", "u2")).version == 0


async def test_an_erasure_that_the_api_did_not_finish_removes_what_is_left_from_the_log(world: World) -> None:
    await world.rebuild.look()
    await world.write(world.user("u1", "a@example.org"))
    erased = RecipientFacet("t", "u1", FacetKind.ERASED, 5)
    await world.log.publish([world.facets.record("t", "u1", facets.ERASED, erased)])
    record = world.log.records(TOPICS.recipients)[-1]
    answers = await world.hand_in(record)
    assert [(out.key, out.value) for done in answers for out in done.publish] == [(b"t/u1/user", None)]
    again = await world.hand_in(record)
    assert [done.publish for done in again] == [()]
    assert (await world.profiles.load("t", "u1")).erased
