"""A provider is away for a minute amid a campaign of 20,000, while one of two workers dies.

And one that has a standby is not missed, though a worker dies as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.acceptance import deployment as deployments
from tests.acceptance import people
from tests.acceptance.conftest import RUNNING, TEMPLATES
from tests.acceptance.deployment import Deployment
from tests.acceptance.relay import Relay, relay
from tests.acceptance.world import PUSH, SMS, World

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
SIZE, AWAY_S = 20_000, 60.0
PUSH_PER_S, PUSH_BURST = 1_500, 150
MOST_REPEATED = 0.1
PROBES = 3 * 13
"""Three calls in a round, and a round every five seconds at most, while it is away and until it is found to be back."""
WORKER, OTHER = "work-push.bulk", "work-push.bulk-2"
GATEWAY = 'provider="gateway"'
SPARE, SMS_PER_S, SMS_BURST = "/spare", 400, 40
SECONDS = 10.0
"""Until the standby has taken over: the breaker needs some failed calls, the workers' next look, and no more."""
STANDBY = """
[providers.spare]
kind = "http"
url = "http://127.0.0.1:{http}/spare"
rate_per_s = {sms_per_s}
burst = {sms_burst}
timeout_s = 2
callback_secret = "{secret}"
"""
SETTINGS = (
    deployments.QUICK.replace('"texter"]', '"texter", "spare"]')
    .replace(":{http}/send", ":{relay}/send")
    .replace("[providers.gateway]", STANDBY + "[providers.gateway]")
)
"""The stand-in listens where the first of them points."""
LIMITS = {
    "push_per_s": PUSH_PER_S,
    "push_burst": PUSH_BURST,
    "sms_per_s": SMS_PER_S,
    "sms_burst": SMS_BURST,
    "lease_s": deployments.LEASE_S,
}


@pytest.fixture(scope="module")
def way() -> Iterator[Relay]:
    with relay() as made:
        yield made


@pytest.fixture(scope="module")
def sick_deployment(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kafka_bootstrap: str,
    redis_url: str,
    way: Relay,
) -> Iterator[Deployment]:
    database = deployments.database(redis_url, deployments.OTHER_DATABASES[1])
    folder, given = tmp_path_factory.mktemp("sick"), {**LIMITS, "relay": way.port}
    with deployments.outside(folder, kafka_bootstrap, database, TEMPLATES, SETTINGS, **given) as found:
        way.start(urlsplit(found.outside).port or 0)
        with deployments.up(found):
            request.config.stash[RUNNING] = found
            yield found


@pytest.fixture
async def world(sick_deployment: Deployment, way: Relay) -> AsyncIterator[World]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client:
        made = World(sick_deployment, client)
        await made.new_ledger()
        yield made
        way.mend()
        await made.all_is_well()


@pytest.mark.parametrize("how", ["errors", "silence", "refusal"])
async def test_a_minute_without_a_provider_loses_nothing_and_ends_without_a_wave(
    world: World, way: Relay, how: str
) -> None:
    users = [world.name(f"reader{number}") for number in range(SIZE)]
    campaign = await world.campaign("news", people.readers(users))
    await world.until(lambda: world.ledger(PUSH), lambda seen: seen["sends"] >= SIZE // 10, "it is under way")
    await goes_away(world, way, how)
    world.kill(WORKER)
    before = await tries(world, OTHER)
    await asyncio.sleep(AWAY_S)
    tried = await tries(world, OTHER) - before + await tries(world, WORKER)
    while_away = await world.ledger(PUSH)
    await comes_back(world, way)
    told = await world.until_finished(campaign, 300)

    assert told["status"] == "processed" and sum(told["outcomes"].values()) == SIZE
    calls = await world.calls(PUSH, people.reader_keys(campaign, users))
    sends = [sent for _, sent in calls.values()]
    assert min(sends) == 1, "somebody got nothing"
    await world.until_repeats_are_told(campaign, sum(sends) - SIZE)
    assert 0 < tried <= MOST_REPEATED * SIZE + PROBES, "whoever is away is asked now and then"
    made, book = sum(called for called, _ in calls.values()), await world.ledger(PUSH)
    assert made <= (1 + MOST_REPEATED) * SIZE + PROBES, f"{made} calls for {SIZE} people: {book}"
    assert made - while_away["calls"] <= SIZE, "what failed is not tried many times over"
    assert book["most_in_a_second"] <= PUSH_PER_S + PUSH_BURST, "a wave came after it"


async def test_a_standby_takes_over_within_seconds_and_gives_back_while_a_worker_dies(world: World) -> None:
    while_well, size = 1_000, 20 * SMS_PER_S
    guests = [world.name(f"guest{number}") for number in range(while_well)]
    offered = [{"user_id": user, "to": people.to_phone(user)} for user in guests]
    await world.until_finished(await world.campaign("offer", offered, campaign_id=world.name("well")))
    standby = (await world.ledger(SPARE))["sends"]
    assert (await world.ledger(SMS))["sends"] + standby == while_well
    assert 0.02 <= standby / while_well <= 0.1, "about a twentieth, always"

    users = [world.name(f"reader{number}") for number in range(size)]
    lines = [{"user_id": user, "to": people.to_phone(user)} for user in users]
    campaign = await world.campaign("offer", lines)
    sent = while_well + size // 10
    await world.until(lambda: world.ledger(SMS), lambda seen: seen["sends"] >= sent, "it is under way")
    await world.faults(SMS, errors={"503": 1})
    before = await world.ledger(SPARE)
    await world.until(
        lambda: world.ledger(SPARE), lambda seen: seen["sends"] >= before["sends"] + SMS_PER_S, "it took over", SECONDS
    )
    world.kill("work-sms.bulk")
    await world.all_is_well()
    before = await world.ledger(SMS)
    await world.until(
        lambda: world.ledger(SMS), lambda seen: seen["sends"] >= before["sends"] + SMS_PER_S, "it is back"
    )

    told = await world.until_finished(campaign, 300)
    assert told["status"] == "processed" and sum(told["outcomes"].values()) == size
    keys = people.reader_sms_keys(campaign, users)
    first, spare = await world.calls(SMS, keys), await world.calls(SPARE, keys)
    sends = [first[key][1] + spare[key][1] for key in keys]
    assert min(sends) == 1, "somebody got nothing"
    await world.until_repeats_are_told(campaign, sum(sends) - size)
    for service in (SMS, SPARE):
        assert (await world.ledger(service))["most_in_a_second"] <= SMS_PER_S + SMS_BURST


async def tries(world: World, role: str) -> float:
    """Calls whose outcome this process knows, also of those that came to nobody."""
    counted = await world.numbers(role)
    return sum(
        count for name, count in counted.items() if name.startswith("tidings_outcomes_total") and GATEWAY in name
    )


async def goes_away(world: World, way: Relay, how: str) -> None:
    match how:
        case "errors":
            await world.faults(PUSH, errors={"503": 1})
        case "silence":
            await world.faults(PUSH, hang=1)
        case _:
            way.cut()


async def comes_back(world: World, way: Relay) -> None:
    await world.all_is_well()
    way.mend()
