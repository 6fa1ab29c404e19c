"""A round trip to Redis with one command, as a login code makes a dozen of them, beside the client's own pipeline."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis

from benchmarks.bench import Bench, Outcome
from deploy import redis_client
from deploy.redis_trips import RedisTrips
from schemas.trips import Epoch

COUNT = 10_000
TURNS = 3
"""Each is measured so often, in turn; the least of them was disturbed least."""
KEY = "bench-trips"


async def run(bench: Bench) -> Outcome:
    """CPU of the asker for a trip, and how long the trip takes."""
    count = bench.size(COUNT)
    bench.say(f"{count:,} round trips of one command")
    async with redis_client.connect(bench.stack.redis_url, Epoch()) as client:
        trips = RedisTrips(client, "bench")

        async def ours() -> None:
            trip = trips.begin()
            trip.execute_command("GET", KEY)
            await trip.execute()

        async def own() -> None:
            await _pipeline(client)

        spent = [(await _spent(ours, count), await _spent(own, count)) for _ in range(TURNS)]
    least = [tuple(map(min, zip(*each, strict=True))) for each in zip(*spent, strict=True)]
    (cpu_us, took_us), (own_cpu_us, own_took_us) = least
    values = {"cpu_us": cpu_us, "took_us": took_us, "own_cpu_us": own_cpu_us, "own_took_us": own_took_us}
    return Outcome(values)


async def _pipeline(client: Redis) -> None:
    async with client.pipeline(transaction=False) as pipeline:
        pipeline.get(KEY)
        await pipeline.execute()


async def _spent(trip: Callable[[], Awaitable[None]], count: int) -> tuple[float, float]:
    """(CPU, time) of one, us."""
    cpu_s, began_s = time.process_time(), time.monotonic()
    for _ in range(count):
        await trip()
    return (time.process_time() - cpu_s) / count * 1e6, (time.monotonic() - began_s) / count * 1e6
