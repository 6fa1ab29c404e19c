"""A budget for SMS on a whole deployment: what the provider took in costs no more, whoever is killed meanwhile."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import aiohttp
import pytest
import redis.asyncio

from consumers.prices import MICROS
from consumers.spend import BLOCKS
from tests.acceptance import deployment as deployments
from tests.acceptance import people
from tests.acceptance.conftest import TEMPLATES
from tests.acceptance.deployment import Deployment
from tests.acceptance.world import SMS, World

SIZE, PAID = 3_000, 1_200
PRICE, PUSH_PRICE = Decimal("0.07"), Decimal("0.01")
LIMITS = {"push_per_s": 100, "push_burst": 20, "sms_per_s": 400, "sms_burst": 40}
ANSWER_MS = 50
CALLS_AT_ONCE = 256
"""Of one worker, by default."""
MONEY = """
[tenants.default]
time_zone = "{zone}"
budget_per_day = {{ sms = {budget}, push = 100 }}
"""
PRICED = deployments.QUICK.replace(
    "rate_per_s = {sms_per_s}", "prices = {{ DE = 0.07, default = 9.5 }}\nrate_per_s = {sms_per_s}"
).replace("rate_per_s = {push_per_s}", "prices = {{ default = 0.01 }}\nrate_per_s = {push_per_s}")


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_campaign_stops_at_the_budget_with_a_worker_killed_amid_it(
    tmp_path: Path, kafka_bootstrap: str, redis_url: str
) -> None:
    database, zone = deployments.database(redis_url, deployments.OTHER_DATABASES[0]), _where_it_is_noon()
    money = {"zone": zone, "budget": PAID * PRICE, "lease_s": deployments.LEASE_S}
    with deployments.outside(
        tmp_path, kafka_bootstrap, database, TEMPLATES, PRICED + MONEY, **LIMITS, **money
    ) as found:
        async with aiohttp.ClientSession() as client:
            world = World(found, client)
            await world.faults(SMS, answer_ms=ANSWER_MS)
            with deployments.up(found):
                users = [world.name(f"reader{number}") for number in range(SIZE)]
                campaign = await world.campaign(
                    "offer", [{"user_id": user, "to": people.to_phone(user)} for user in users]
                )
                await world.until(lambda: world.ledger(SMS), lambda seen: seen["sends"] > PAID / 3, "a third is sent")
                world.kill("work-sms.bulk")
                told = await world.until_finished(campaign)
                await _judge(world, campaign, users, told)
                await _a_code_waits_for_tomorrow(world, zone)
                alert = await world.notify(users[0], "alert", params={"text": "x"}, to=people.to_device(users[0]))
                await world.until_status(alert, "sent", "delivered")
            book = await world.ledger(SMS)
            assert 0 <= await _paid(found, "sms", PRICE) - book["sends"] <= PAID // BLOCKS + book["max_in_flight"]
            assert await _paid(found, "push", PUSH_PRICE) == 1, "who stopped in order kept the rest of a block"


async def _judge(world: World, campaign: str, users: list[str], told: dict[str, dict[str, int]]) -> None:
    """By the provider's own book. Whose claim the dead worker held is unconfirmed: nobody knows of their calls."""
    book = await world.ledger(SMS)
    in_hand = book["max_in_flight"]
    assert PAID - PAID // BLOCKS - in_hand <= book["sends"] <= PAID
    sends = [sends for _, sends in (await world.calls(SMS, people.reader_sms_keys(campaign, users))).values()]
    outcomes = told["outcomes"]
    assert told["reasons"] == {"spend_cap": outcomes["suppressed"]}
    assert sum(outcomes.values()) == SIZE and set(outcomes) <= {"sent", "delivered", "suppressed", "unconfirmed"}
    assert SIZE - sum(count > 0 for count in sends) - outcomes["suppressed"] <= outcomes.get("unconfirmed", 0)
    assert outcomes.get("unconfirmed", 0) <= CALLS_AT_ONCE


async def _paid(found: Deployment, channel: str, price: Decimal) -> Decimal:
    """How many messages the account says were paid, or drawn by somebody who died."""
    async with redis.asyncio.Redis.from_url(found.redis_url) as client:
        [key] = [key async for key in client.scan_iter(match=f"{{spend:*:{channel}:*")]
        drawn, returned = await client.hmget(key, ["d", "r"])  # type: ignore[misc]
    return Decimal(int(drawn) - int(returned)) / MICROS / price


async def _a_code_waits_for_tomorrow(world: World, zone: str) -> None:
    user = world.name("ann")
    sent = await world.notify(user, "code", params={"code": "123"}, to=people.to_phone(user))
    [delivery] = (await world.until_status(sent, "held"))["deliveries"]
    midnight = datetime.combine(_today(zone) + timedelta(days=1), time(), ZoneInfo(zone))
    assert (delivery["waits_for"], datetime.fromisoformat(delivery["waits_until"])) == ("spend_cap", midnight)
    assert await world.messages(people.phone(user)) == []


def _where_it_is_noon() -> str:
    """A zone whose day does not end while the test runs. Its name counts the other way round."""
    return f"Etc/GMT{datetime.now(UTC).hour - 12:+d}"


def _today(zone: str) -> date:
    return datetime.now(ZoneInfo(zone)).date()
