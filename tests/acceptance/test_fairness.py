"""Promises 4, 5 and 8: nobody waits behind a large campaign, and the provider's rate is never exceeded."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.acceptance import deployment, people
from tests.acceptance.world import PUSH, SMS, World

LARGE, SMALL, CODES = 1_500, 50, 20
BACKLOG = 5 * 0.7 * deployment.SMS_PER_S
"""Of a bulk lane at most: what was let go before the small campaign came."""
PAGE = 250


async def test_codes_and_a_small_campaign_do_not_wait_behind_a_large_one(world: World) -> None:
    await world.new_ledger()
    large = await world.campaign("offer", _by_phone(world, "large", LARGE), campaign_id=world.name("large"))
    await world.until_told(large, lambda told: told["progress"]["sent"] >= 100, "is under way")
    begun = (await world.told(large))["progress"]["sent"]
    small = asyncio.create_task(_small(world))
    for number in range(CODES):
        user = world.name(f"reader{number}")
        code = await world.notify(user, "code", params={"code": "1"}, to=people.to_phone(user))
        await world.until_status(code, "sent", "delivered")
    after_codes = (await world.told(large))["progress"]["sent"]
    assert after_codes < LARGE / 2, "the codes waited for the campaign"

    told = await small
    assert sum(told["outcomes"].values()) == SMALL
    left = (await world.told(large))["progress"]
    assert left["sent"] - begun <= BACKLOG + 2 * PAGE, "the small campaign waited for more than its turn"
    assert left["sent"] < LARGE * 0.75
    told = await world.until_finished(large)
    assert sum(told["outcomes"].values()) == LARGE
    await _check_rate(world, SMS, deployment.SMS_PER_S, deployment.SMS_BURST)


async def test_two_workers_of_a_lane_together_keep_to_the_providers_rate(world: World) -> None:
    await world.new_ledger()
    users = [world.name(f"reader{number}") for number in range(2_000)]
    campaign = await world.campaign("news", people.readers(users))
    await world.until_finished(campaign)
    assert (await world.ledger(PUSH))["sends"] == len(users)
    await _check_rate(world, PUSH, deployment.PUSH_PER_S, deployment.PUSH_BURST)


async def _check_rate(world: World, service: str, per_s: int, burst: int) -> None:
    """In no second, and over no run of seconds, did the provider see more than its rate and one burst."""
    seconds = (await world.ledger(service))["per_second"]
    counts = [seconds.get(str(second), 0) for second in range(int(min(seconds)), int(max(seconds)) + 1)]
    for length in range(1, len(counts) + 1):
        most = max(sum(counts[begin : begin + length]) for begin in range(len(counts) - length + 1))
        assert most <= length * per_s + burst, f"{most} in {length} s"


async def _small(world: World) -> dict[str, Any]:
    small = await world.campaign("offer", _by_phone(world, "small", SMALL), campaign_id=world.name("small"))
    return await world.until_finished(small)


def _by_phone(world: World, word: str, count: int) -> list[dict[str, object]]:
    users = [world.name(f"{word}{number}") for number in range(count)]
    return [{"user_id": user, "to": people.to_phone(user)} for user in users]
