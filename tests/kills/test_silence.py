"""Providers that say nothing, and a `reconcile` that dies over it: exactly the silent ones are marked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from redis.asyncio import Redis

from deploy.simulators.faults import chance
from deploy.simulators.ledger import short_hash
from schemas import codec
from schemas.messages import DeliveryState
from tests.acceptance import people
from tests.acceptance.conftest import TEMPLATES
from tests.acceptance.deployment import SETTINGS as SETTINGS_FILE
from tests.acceptance.deployment import Deployment, program
from tests.acceptance.world import PUSH, SMS, World
from tests.kills import deployment as with_traps
from tests.kills.flow import until_sprung
from tests.kills.traps import Trap, Traps

pytestmark = pytest.mark.long
RECONCILE = "reconcile"
AFTER_S = 4
SILENT, LATE = 0.3, 0.3
MAIL = "/mail"
SETTINGS = f"""{with_traps.SHORT}
[reconcile]
after = {AFTER_S}
[channels.sms]
providers = ["texter"]
[channels.email]
providers = ["poster"]
[providers.texter]
kind = "http"
url = "http://127.0.0.1:{{http}}{SMS}"
rate_per_s = 100
burst = 20
timeout_s = 1
[providers.poster]
kind = "http"
url = "http://127.0.0.1:{{http}}{MAIL}"
status_url = "http://127.0.0.1:{{http}}{MAIL}/status"
status_per_s = 50
callback_secret = "{{secret}}"
rate_per_s = 100
burst = 20
timeout_s = 1
"""
"""By push reports are promised; by SMS they are not; and who posts mail can be asked."""


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str, second_database: str
) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("silence")
    with (
        with_traps.running(folder, kafka_bootstrap, second_database, TEMPLATES, SETTINGS) as running,
        program(folder, (RECONCILE, "--config", str(folder / SETTINGS_FILE))),  # a second one, which never dies
    ):
        yield running


@pytest.fixture
async def world(deployment: Deployment) -> AsyncIterator[World]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client:
        made = World(deployment, client)
        await made.all_is_well()
        await made.new_ledger()
        yield made
        await made.all_is_well()


@pytest.fixture
def traps(deployment: Deployment) -> Iterator[Traps]:
    made = with_traps.traps_of(deployment.folder)
    yield made
    made.clear()


@pytest.mark.parametrize(("gap", "passing"), [("before_publish", 1), ("after_publish", 2), ("before_commit", 2)])
async def test_exactly_the_silent_are_marked_wherever_it_dies_and_a_late_report_still_counts(
    world: World, traps: Traps, gap: str, passing: int
) -> None:
    users = [world.name(f"reader{number}") for number in range(300)]
    sent_before, soon_before = await _counted(world)
    await world.faults(PUSH, silent=SILENT, late=LATE, late_ms=(AFTER_S + 8) * 1_000)
    traps.set(RECONCILE, Trap(gap, passing=passing))
    campaign = await world.campaign("news", people.readers(users))
    await until_sprung(world, traps, RECONCILE)

    keys = people.reader_keys(campaign, users)
    drawn = {
        user: [chance(0, short_hash(key), 1, salt) for salt in (1, 2)] for user, key in zip(users, keys, strict=True)
    }
    silent = {user for user, (first, _) in drawn.items() if first < SILENT}
    late = {user for user, (first, second) in drawn.items() if first >= SILENT and second < LATE}
    wanted = {"delivered": len(users) - len(silent), "unconfirmed": len(silent)}
    await world.until_told(campaign, lambda told: told["outcomes"] == wanted, "has its outcomes", 90)
    await world.until_read(RECONCILE)
    told = await world.told(campaign)
    assert (told["outcomes"], told["progress"]["sent"]) == (wanted, len(users))
    listed = {one["user_id"] for one in await world.recipients(campaign, "unconfirmed")}
    assert listed == silent
    went = await _states(world, campaign)
    assert {user for user in users if "unconfirmed" in went[user]} == silent | late
    assert all(went[user][-1] == "delivered" for user in late)
    await world.until(
        lambda: _counted(world),
        lambda seen: seen == (sent_before + len(users), soon_before + wanted["delivered"]),
        "the delivery-rate alarm knows of each",
    )


async def test_nobody_is_marked_where_no_report_was_promised_and_who_can_be_asked_tells(world: World) -> None:
    numbers = [world.name(f"number{number}") for number in range(10)]
    readers = [world.name(f"reader{number}") for number in range(20)]
    await world.faults(SMS, silent=1)
    await world.faults(MAIL, silent=1, bounced=0.5)
    texts = [await world.notify(one, "code", params={"code": "1"}, to=people.to_phone(one)) for one in numbers]
    mails = [
        await world.notify(one, "letter", params={"name": "Mia"}, to={"email": f"{one}@example.org"}) for one in readers
    ]
    ends = {(await world.until_status(mail, "delivered", "bounced"))["status"] for mail in mails}
    assert ends == {"delivered", "bounced"}
    await world.until_read(RECONCILE)
    assert {(await world.status(text))["status"] for text in texts} == {"sent"}
    ledger = await world.must("GET", f"{world.deployment.outside}/ledger")
    assert sum(ledger["asked"].values()) == len(mails)

    await world.faults(MAIL, silent=1, asked_errors=1)
    unknown = await world.notify(readers[0], "letter", params={"name": "Mia"}, to={"email": "nobody@example.org"})
    await world.until_status(unknown, "unconfirmed")
    await world.all_is_well()
    await world.until_status(unknown, "delivered")


async def _counted(world: World) -> tuple[int, int]:
    """(sent, delivered within ten minutes) by push, as status processes told Redis."""
    sent = soon = 0
    redis: Any = Redis.from_url(world.deployment.redis_url)
    async with redis:
        async for key in redis.scan_iter(match="share:{gateway/push}:d*"):
            for field, count in (await redis.hgetall(key)).items():
                sent += int(count) * field.endswith(b"s")
                soon += int(count) * field.endswith(b"d")
    return sent, soon


async def _states(world: World, campaign: str) -> dict[str, list[str]]:
    """User -> the states of their delivery, in order."""
    found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for record in await world.records(world.topics.state):
        state = codec.decode(record.value, DeliveryState) if record.value else None
        if state is not None and state.campaign_id == campaign:
            found[state.user_id].append((state.version, state.state))
    return {user: [state for _, state in sorted(told)] for user, told in found.items()}
