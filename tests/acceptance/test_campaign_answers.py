"""What a campaign's owner is told: whom it did not reach and why, and how far it has really come."""

from __future__ import annotations

import asyncio
from collections import Counter

from schemas import codec
from schemas.messages import DeliveryState
from tests.acceptance import people, webhooks
from tests.acceptance.world import PUSH, World

SIZE, FAILING = 1_000, 37
REASONS = {"blocked_by_provider", "dead_device", "refused_by_provider"}
"""What the provider's three ways to refuse for good are called."""
STAGES = ("accepted", "released", "sent", "delivered")


async def test_the_recipients_who_failed_are_listed_each_with_the_reason(world: World) -> None:
    """N10: by the API, and the same ones on the public topic."""
    await world.faults(PUSH, refusals={"blocked": 0.3, "dead_address": 0.3, "bad": 0.4}, calls=FAILING, seed=3)
    users = [world.name(f"reader{number}") for number in range(SIZE)]
    campaign = await world.campaign("news", people.readers(users))
    await world.until_finished(campaign)
    told = await world.until_told(
        campaign, lambda seen: seen["outcomes"] == {"delivered": SIZE - FAILING, "failed": FAILING}, "is reported"
    )
    assert told["status"] == "partially_processed"

    calls = await world.calls(PUSH, people.reader_keys(campaign, users))
    unreached = {user for user, (_, sends) in zip(users, calls.values(), strict=True) if not sends}
    listed = await world.recipients(campaign, "failed")
    reasons = {one["user_id"]: one["deliveries"][0]["reason"] for one in listed}
    assert len(listed) == FAILING and set(reasons) == unreached
    assert set(reasons.values()) == REASONS and Counter(reasons.values()) == told["reasons"]
    assert len(await world.recipients(campaign, "delivered")) == SIZE - FAILING

    newest = await _states(world, campaign)
    assert {user: state.reason for user, state in newest.items() if state.state == "failed"} == reasons


async def _states(world: World, campaign: str) -> dict[str, DeliveryState]:
    """What `notification.state` says of each recipient."""
    records = await world.records(world.topics.state)
    states = [codec.decode(record.value, DeliveryState) for record in records if record.value]
    mine = [state for state in states if state.campaign_id == campaign]
    return {state.user_id: state for state in sorted(mine, key=lambda state: state.version)}


async def test_what_lies_in_a_lane_is_not_told_as_sent_nor_what_was_sent_as_delivered(world: World) -> None:
    """N14: in mid-run each stage is a number of its own."""
    size, reported = 120, 50
    await world.faults(PUSH, silent=1)
    await world.new_ledger()
    users = [world.name(f"reader{number}") for number in range(size)]
    async with world.stopped("work-push.bulk", "work-push.bulk-2"):
        campaign = await world.campaign("news", people.readers(users))
        await _until_stages(world, campaign, size, size, 0, 0)
    told = await _until_stages(world, campaign, size, size, size, 0)
    assert told["outcomes"] == {"sent": size}

    told_us = await world.must("GET", f"{world.deployment.outside}/messages?service={PUSH}")
    references = [one["message"]["reference"] for one in told_us[:reported]]
    posts = [webhooks.post(world, webhooks.GATEWAY, {"type": "delivered", "reference": one}) for one in references]
    assert {answer.status for answer in await asyncio.gather(*posts)} == {204}
    told = await _until_stages(world, campaign, size, size, size, reported)
    assert told["outcomes"] == {"sent": size - reported, "delivered": reported}


async def _until_stages(world: World, campaign: str, *counts: int) -> dict[str, object]:
    wanted = dict(zip(STAGES, counts, strict=True))
    return await world.until_told(campaign, lambda told: told["progress"] == wanted, f"is at {wanted}")
