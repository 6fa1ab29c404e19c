"""A provider that takes everything and delivers little is left for its standby, by itself, and is come back to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
import redis.asyncio

from schemas import keys
from tests.acceptance import people
from tests.acceptance.conftest import TEMPLATES
from tests.acceptance.deployment import Deployment
from tests.acceptance.world import PUSH, World
from tests.kills import deployment as with_traps
from tests.kills import quick_minutes

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
SPARE = "/spare"
SETTINGS = f"""{with_traps.SHORT.replace('["gateway"]', '["gateway", "spare"]')}
[reconcile]
failover_on_alarm = true
[providers.spare]
kind = "http"
url = "http://127.0.0.1:{{http}}{SPARE}"
callback_secret = "{{secret}}"
rate_per_s = {with_traps.PUSH_PER_S}
burst = 40
timeout_s = 1
"""
SIZE, PACE_PER_S = 9_000, 60
"""Three times what the alarm needs to know of ten minutes, for as long as the whole story may take."""
SILENT = 0.7
USUAL = (10_000, 9_900)
"""What the provider took in the hours before, and delivered soon."""
WORKER, WATCHER = "work-push.bulk", "reconcile"
WITHIN_S = 90.0
"""A fall is seen 20 s after it began, and its end, where nobody is sent to any more, 30 s after the last fall."""


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str, second_database: str
) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("alarm")
    with with_traps.running(
        folder, kafka_bootstrap, second_database, TEMPLATES, SETTINGS, quick_minutes.COMMAND
    ) as running:
        yield running


@pytest.fixture
async def world(deployment: Deployment) -> AsyncIterator[World]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client:
        made = World(deployment, client)
        await made.all_is_well()
        yield made
        await made.all_is_well()


async def test_the_standby_takes_over_from_a_provider_that_delivers_little_and_gives_back_though_roles_die(
    world: World,
) -> None:
    await _it_delivered_well_before(world)
    await world.faults(PUSH, silent=SILENT)
    users = [world.name(f"reader{number}") for number in range(SIZE)]
    campaign = await world.campaign("news", people.readers(users), pace_per_s=PACE_PER_S)
    await world.until(lambda: _sends(world, PUSH), lambda seen: seen >= 2 * PACE_PER_S, "it is under way")
    assert await _sends(world, SPARE) < await _sends(world, PUSH) * 0.2, "before the alarm it gets its small share"

    await _only(world, SPARE)
    for role in (WATCHER, WORKER):
        world.kill(role)
    await world.all_is_well()
    await _only(world, SPARE)
    before = await _sends(world, PUSH)
    await world.until(
        lambda: _sends(world, PUSH), lambda seen: seen >= before + 3 * PACE_PER_S, "it is come back to", WITHIN_S
    )
    assert (await world.told(campaign))["status"] == "running", "it came back too late to be seen"

    await world.must("PATCH", f"/v1/campaigns/{campaign}", json={"pace_per_s": with_traps.PUSH_PER_S})
    told = await world.until_finished(campaign, 3 * WITHIN_S)
    assert told["status"] == "processed" and sum(told["outcomes"].values()) == SIZE
    places = people.reader_keys(campaign, users)
    first, spare = await world.calls(PUSH, places), await world.calls(SPARE, places)
    sends = [first[key][1] + spare[key][1] for key in places]
    assert min(sends) == 1, "somebody got nothing"
    await world.until_repeats_are_told(campaign, sum(sends) - SIZE)


async def _it_delivered_well_before(world: World) -> None:
    """In an hour of the week before, which no test can wait for."""
    hour = int(time.time()) * 1_000 // quick_minutes.MINUTE_MS // 60 - 3
    place = keys.redis_share("gateway", "push", "d", hour // 24)
    async with redis.asyncio.Redis.from_url(world.deployment.redis_url) as client:
        counts = dict(zip((f"{hour}s", f"{hour}d"), USUAL, strict=True))
        await client.hset(place, mapping=counts)  # type: ignore[misc]


async def _only(world: World, service: str) -> None:
    """Until, for three seconds, this one is sent to, and the other is not."""
    other = PUSH if service == SPARE else SPARE

    async def look() -> tuple[int, int]:
        before = [await _sends(world, one) for one in (service, other)]
        await asyncio.sleep(3)
        after = [await _sends(world, one) for one in (service, other)]
        return after[0] - before[0], after[1] - before[1]

    await world.until(look, lambda seen: seen[0] > PACE_PER_S and seen[1] == 0, f"{service} gets everything", WITHIN_S)


async def _sends(world: World, service: str) -> int:
    return int((await world.ledger(service))["sends"])
