"""Promises 4, 5 and 8: nobody waits behind a large campaign, and the provider's rate is never exceeded."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.acceptance import deployment, people
from tests.acceptance.world import PUSH, SMS, World

LARGE, SMALL, CODES = 1_500, 50, 20
BACKLOG_S = 5
BACKLOG = BACKLOG_S * 0.7 * deployment.SMS_PER_S
"""Of a bulk lane at most: what was let go before the small campaign came."""
PAGE = 250
WINDOW_S = 10
UPLOADED_WITHIN_S = 20


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


@pytest.mark.long
async def test_three_campaigns_share_the_pace_by_weight_over_any_ten_seconds(world: World) -> None:
    await world.new_ledger()
    shares = {world.name(f"share{weight}"): weight for weight in (1, 2, 3)}
    together = (datetime.now(UTC) + timedelta(seconds=UPLOADED_WITHIN_S)).isoformat()
    for (name, weight), count in zip(shares.items(), (2_800, 5_600, 8_400), strict=True):
        audience = people.readers([world.name(f"{name}-{number}") for number in range(count)])
        wish = {"weight": weight, "params": {"mark": name}, "send_at": together}
        await world.campaign("shared", audience, campaign_id=name, **wish)
    for name in shares:
        await world.until_finished(name, within_s=180)
    marks = await world.must("GET", f"{world.deployment.outside}/ledger/marks")
    seconds = {name: {int(at): count for at, count in marks[name]["per_second"].items()} for name in shares}
    first = max(min(sent) for sent in seconds.values()) + BACKLOG_S + 1
    last = min(_nearly_done(sent) for sent in seconds.values())
    assert last - first > WINDOW_S, "they were hardly active together"
    for begin in range(first, last - WINDOW_S + 1):
        window = range(begin, begin + WINDOW_S)
        sent = {name: sum(seconds[name].get(at, 0) for at in window) for name in shares}
        for name, weight in shares.items():
            fair = sum(sent.values()) * weight / sum(shares.values())
            assert abs(sent[name] - fair) <= 0.1 * fair, f"from {begin}: {sent}; by second: {seconds}"


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


def _nearly_done(per_second: dict[int, int]) -> int:
    """The second in which nine tenths had been sent: the last ones come from the partition that is behind."""
    at, sent = min(per_second), 0
    while sent < 0.9 * sum(per_second.values()):
        sent, at = sent + per_second.get(at, 0), at + 1
    return at


async def _small(world: World) -> dict[str, Any]:
    small = await world.campaign("offer", _by_phone(world, "small", SMALL), campaign_id=world.name("small"))
    return await world.until_finished(small)


def _by_phone(world: World, word: str, count: int) -> list[dict[str, object]]:
    users = [world.name(f"{word}{number}") for number in range(count)]
    return [{"user_id": user, "to": people.to_phone(user)} for user in users]
