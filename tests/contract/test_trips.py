"""Round trips: the double in memory beside the body on Redis, and what only a real server can do to the body."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis

from deploy import children, redis_client
from deploy.local import redis as local_redis
from deploy.local import tools
from deploy.redis_trips import RedisTrips
from schemas import keys, metrics
from schemas.errors import StoreDown
from schemas.shared_trips import SharedTrips
from schemas.trips import Epoch, Script, Trip, Trips, asked, trusted
from tests.doubles.memory_trips import RUN_ID, MemoryTrips

ECHO = Script("return ARGV[1]")
APPEND = Script("return redis.call('APPEND', KEYS[1], ARGV[1])")
SPIN = Script("for _ = 1, 3e7 do end return 'slow'")


@pytest.fixture
def epoch() -> Epoch:
    return Epoch()


@pytest.fixture
async def redis(redis_url: str, epoch: Epoch) -> AsyncIterator[Redis]:
    client = redis_client.connect(redis_url, epoch)
    await client.info("server")
    await client.set(keys.REDIS_EPOCH, epoch.run_id)
    yield client
    await client.aclose()


@pytest.fixture(params=["memory", "redis"])
def trips(request: pytest.FixtureRequest, epoch: Epoch) -> Trips:
    if request.param == "memory":
        epoch.run_id = RUN_ID
        return MemoryTrips()
    return RedisTrips(request.getfixturevalue("redis"), "test")


@pytest.fixture
def key() -> str:
    return f"{{{uuid.uuid4().hex}}}"


async def replies(trips: Trips, *commands: tuple[Any, ...]) -> list[Any]:
    trip = trips.begin()
    for command in commands:
        trip.execute_command(*command)
    return await trip.execute()


async def one(trips: Trips, script: Script, key: str, *args: Any) -> Any:
    (reply,) = await asked(trips, lambda trip: trip.run(script, (key,), *args))
    return reply


class TestBoth:
    async def test_replies_come_in_the_order_of_the_commands(self, trips: Trips, key: str) -> None:
        found = await replies(trips, ("GET", key), ("SET", key, 7), ("GET", key), ("SET", key, b"x"), ("GET", key))
        assert found == [None, b"OK", b"7", b"OK", b"x"]

    async def test_a_trip_without_commands_asks_nobody(self, trips: Trips) -> None:
        assert await replies(trips) == []

    async def test_a_refused_command_fails_alone(self, trips: Trips, key: str) -> None:
        found = await replies(trips, ("SET", key, 1), ("NONSENSE", key), ("GET", key))
        assert (found[0], found[2]) == (b"OK", b"1")
        assert isinstance(found[1], Exception)

    async def test_who_needs_all_replies_is_told_when_one_is_missing(self, trips: Trips, key: str) -> None:
        with pytest.raises(StoreDown, match="refuses"):
            await asked(trips, lambda trip: trip.execute_command("NONSENSE", key))

    async def test_what_is_found_in_a_redis_rebuilt_for_this_server_is_trusted(
        self, trips: Trips, epoch: Epoch, key: str
    ) -> None:
        assert await trusted(trips, epoch, lambda trip: trip.execute_command("GET", key)) == [None]

    async def test_what_is_found_in_any_other_redis_is_not(self, trips: Trips, epoch: Epoch, key: str) -> None:
        epoch.run_id = b"the server before"
        with pytest.raises(StoreDown, match="rebuild"):
            await trusted(trips, epoch, lambda trip: trip.execute_command("GET", key))


class TestShared:
    async def test_all_who_ask_at_once_are_answered_each_with_its_own(
        self, trips: Trips, epoch: Epoch, key: str
    ) -> None:
        shared = SharedTrips(trips, epoch)

        def set_and_return(number: int) -> Any:
            return shared.go(lambda trip: trip.execute_command("SET", f"{key}{number}", number))

        assert await asyncio.gather(*map(set_and_return, range(600))) == [(b"OK", True)] * 600
        found = await asyncio.gather(
            *(shared.go(lambda trip, n=n: trip.execute_command("GET", f"{key}{n}")) for n in range(600))  # type: ignore[misc]
        )
        assert [int(reply) for reply, _ in found] == list(range(600))

    async def test_one_that_is_refused_does_not_spoil_the_others(self, trips: Trips, epoch: Epoch, key: str) -> None:
        shared = SharedTrips(trips, epoch)
        given = [("SET", key, 1), ("NONSENSE", key), ("SET", key, 2)]
        asks = [shared.go(lambda trip, command=command: trip.execute_command(*command)) for command in given]  # type: ignore[misc]
        found = await asyncio.gather(*asks, return_exceptions=True)
        assert (found[0], found[2]) == ((b"OK", True), (b"OK", True))
        assert isinstance(found[1], StoreDown)

    async def test_whoever_asks_learns_that_the_answer_cannot_be_trusted(
        self, trips: Trips, epoch: Epoch, key: str
    ) -> None:
        epoch.run_id = b"the server before"
        assert await SharedTrips(trips, epoch).go(lambda trip: trip.execute_command("GET", key)) == (None, False)

    async def test_one_that_gives_up_leaves_the_others_their_answers(
        self, trips: Trips, epoch: Epoch, key: str
    ) -> None:
        shared = SharedTrips(trips, epoch)
        asks = [asyncio.create_task(shared.go(lambda trip: trip.execute_command("GET", key))) for _ in range(3)]
        await asyncio.sleep(0)
        asks[1].cancel()
        async with asyncio.timeout(5):
            found = await asyncio.gather(*asks, return_exceptions=True)
        assert (found[0], found[2]) == ((None, True), (None, True))
        assert isinstance(found[1], asyncio.CancelledError)

    async def test_a_redis_that_is_away_fails_all_and_the_next_may_try_again(self, epoch: Epoch) -> None:
        trips = MemoryTrips()
        shared = SharedTrips(trips, epoch)
        trips.down = True
        asks = [shared.go(lambda trip: trip.execute_command("GET", "k")) for _ in range(2)]
        assert [type(one) for one in await asyncio.gather(*asks, return_exceptions=True)] == [StoreDown] * 2
        trips.down = False
        assert await shared.go(lambda trip: trip.execute_command("GET", "k")) == (None, False)


class TestRedis:
    async def test_a_hash_is_read_as_a_dict(self, redis: Redis, key: str) -> None:
        found = await replies(RedisTrips(redis, "test"), ("HGETALL", key), ("HSET", key, "a", 1), ("HGETALL", key))
        assert found == [{}, 1, {b"a": b"1"}]

    async def test_a_key_of_the_wrong_type_fails_only_the_command_that_touches_it(self, redis: Redis, key: str) -> None:
        trip = RedisTrips(redis, "test").begin()
        trip.execute_command("SET", key, "text")
        trip.execute_command("HGETALL", key)
        trip.run(Script("return redis.call('HGET', KEYS[1], 'f')"), (key,))
        trip.run(ECHO, (key,), "well")
        set_, hash_, script, echo = await trip.execute()
        assert (set_, echo) == (b"OK", b"well")
        assert isinstance(hash_, Exception) and isinstance(script, Exception)

    async def test_scripts_and_commands_run_in_their_order(self, redis: Redis, key: str) -> None:
        """Also those that the server sees for the first time."""
        await redis.script_flush()
        trip = RedisTrips(redis, "test").begin()
        trip.run(APPEND, (key,), "a")
        trip.execute_command("APPEND", key, "b")
        trip.run(APPEND, (key,), "c")
        trip.execute_command("GET", key)
        assert (await trip.execute())[-1] == b"abc"

    async def test_a_server_that_forgot_the_scripts_is_taught_them_again(self, redis: Redis, key: str) -> None:
        trips = RedisTrips(redis, "test")
        assert await one(trips, ECHO, key, "before") == b"before"
        await redis.script_flush()
        trip = trips.begin()
        trip.execute_command("GET", key)
        for number in range(3):
            trip.run(ECHO, (key,), number)
        assert await trip.execute() == [None, b"0", b"1", b"2"]

    async def test_a_caller_that_is_cancelled_leaves_nothing_for_the_next_to_misread(
        self, redis: Redis, key: str
    ) -> None:
        trips = RedisTrips(redis, "test")
        given_up = asyncio.create_task(one(trips, SPIN, key))
        await asyncio.sleep(0.05)  # asked, and busy with it
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        for number in range(5):
            assert await one(trips, ECHO, key, number) == str(number).encode()

    async def test_a_server_that_is_too_slow_counts_as_down(self, redis: Redis, key: str) -> None:
        hasty = RedisTrips(redis, "hasty", timeout_s=0.05)
        with pytest.raises(StoreDown, match="hasty"):
            await one(hasty, SPIN, key)
        assert metrics.REDIS_FAILURES.labels("hasty")._value.get() == 1
        assert await one(RedisTrips(redis, "test"), ECHO, key, "back") == b"back"

    async def test_whoever_asks_again_gets_the_connection_that_is_open_already(self, redis: Redis, key: str) -> None:
        first, second = RedisTrips(redis, "first"), RedisTrips(redis, "second")
        ids = [(await replies(trips, ("CLIENT", "ID")))[0] for trips in (first, second, first)]
        assert len(set(ids)) == 1

    async def test_many_more_who_ask_than_there_are_connections_all_get_their_answers(
        self, redis: Redis, key: str
    ) -> None:
        """Also who asks by the client itself."""
        trips = RedisTrips(redis, "test")
        many = range(5 * redis_client.CONNECTIONS)
        for _ in range(2):  # the second time with connections that lie ready
            found = await asyncio.gather(
                *(one(trips, ECHO, key, number) for number in many), *(redis.echo(number) for number in many)
            )
            assert found == [str(number).encode() for number in (*many, *many)]

    async def test_a_server_that_nobody_runs_counts_as_down(self) -> None:
        client = redis_client.connect("redis://127.0.0.1:1/0", Epoch())
        with pytest.raises(StoreDown):
            await replies(RedisTrips(client, "test"), ("GET", "k"))
        await client.aclose()


class TestServerOfItsOwn:
    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[local_redis.Server]:
        program = tools.redis_server()
        assert program is not None, "redis-server is not installed"
        server = local_redis.start(program, tmp_path / "redis")
        yield server
        children.stop(server.child)
        shutil.rmtree(tmp_path, ignore_errors=True)

    @pytest.fixture
    async def client(self, server: local_redis.Server) -> AsyncIterator[Redis]:
        client = redis_client.connect(server.url, Epoch())
        yield client
        await client.aclose()

    async def test_a_server_that_is_killed_in_the_middle_counts_as_down(
        self, server: local_redis.Server, client: Redis
    ) -> None:
        trips = RedisTrips(client, "test")
        assert await one(trips, ECHO, "k", "well") == b"well"
        asking = asyncio.create_task(one(trips, Script("while true do end"), "k"))
        await asyncio.sleep(0.05)
        server.child.kill()
        with pytest.raises(StoreDown):
            await asking

    async def test_a_server_that_was_started_again_is_asked_as_if_nothing_had_been_and_known_by_its_new_run(
        self, server: local_redis.Server, tmp_path: Path
    ) -> None:
        epoch = Epoch()
        client = redis_client.connect(server.url, epoch)
        trips = RedisTrips(client, "test")
        await asyncio.gather(*(one(trips, ECHO, "k", number) for number in range(10)))
        first_run = epoch.run_id
        children.stop(server.child)
        program = tools.redis_server()
        assert program is not None
        again = local_redis.start(program, tmp_path / "again", urlsplit(server.url).port or 0)
        try:
            assert again.url == server.url
            await asyncio.sleep(0)  # the loop hears of the connections that were closed
            found = await asyncio.gather(*(one(trips, ECHO, "k", number) for number in range(10)))
            assert found == [str(number).encode() for number in range(10)]
            assert epoch.run_id not in (b"", first_run)
        finally:
            children.stop(again.child)
            await client.aclose()

    async def test_a_server_that_is_full_counts_as_down_but_can_be_read(self, client: Redis) -> None:
        trips = RedisTrips(client, "test")
        await client.config_set("maxmemory", 1)

        def write(trip: Trip) -> None:
            trip.execute_command("SET", "k", "v")

        for ask in (write, lambda trip: trip.run(APPEND, ("k",), "v")):
            trip = trips.begin()
            ask(trip)
            with pytest.raises(StoreDown, match="OOM"):
                await trip.execute()
        assert await replies(trips, ("GET", "k")) == [None]


async def test_a_process_told_to_stop_at_any_moment_of_its_first_round_trip_stops(redis_url: str) -> None:
    def ask(trip: Trip) -> None:
        trip.execute_command("PING")

    for turns in range(400):
        client = redis_client.connect(redis_url, Epoch())
        task = asyncio.ensure_future(asked(RedisTrips(client, "test"), ask))
        for _ in range(turns):
            await asyncio.sleep(0)
        is_over = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.aclose()
        if is_over:
            return
        assert task.cancelled(), f"told to stop after {turns} turns of the loop, it went on"
