"""An operator steers campaigns: pause, resume, cancel and another pace hold at the provider, and nobody is lost or
sent to twice.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.acceptance import people
from tests.acceptance.world import PUSH, SMS, World

HOLDS_WITHIN_S = 2.0
"""Promised: no call later than this after the answer."""


async def test_a_paused_campaign_calls_nobody_another_runs_on_and_after_the_resume_everyone_is_reached_once(
    world: World,
) -> None:
    """N02, K37: people who had their mail got it again after a pause."""
    large, users = await _by_phone(world, "large", 700)
    await _until_sent(world, large, 50)
    small, others = await _by_phone(world, "small", 60)
    before = await _order(world, large, "pause")
    await asyncio.sleep(max(0.0, before + HOLDS_WITHIN_S - time.time()))
    called = await _called(world, large, users)
    assert 0 < called < len(users)

    assert (await world.until_finished(small))["status"] == "processed"
    told = await world.told(large)
    assert (told["status"], told["waits_for"], told["ends_about"]) == ("paused", "resume", None)
    assert await _called(world, large, users) == called, "calls although it was paused"

    for _ in range(4):
        await _order(world, large, "resume")
        await _order(world, large, "pause")
    await _order(world, large, "resume")
    told = await world.until_finished(large)
    assert told["status"] == "processed" and sum(told["outcomes"].values()) == len(users)
    for campaign, reached in ((large, users), (small, others)):
        calls = await world.calls(SMS, people.reader_sms_keys(campaign, reached))
        assert set(calls.values()) == {(1, 1)}


async def test_a_cancelled_campaign_ends_with_everyone_sent_to_or_cancelled_wherever_they_waited(world: World) -> None:
    """N08, K37: what was prefetched went out all the same. Here some wait for their next try, some in the lane, some in
    pages that were not let go, and some are being sent.
    """
    await world.faults(SMS, errors={"503": 1}, calls=20, retry_after_s=4)
    campaign, users = await _by_phone(world, "offer", 1_000)
    await _until_sent(world, campaign, 30)
    await world.faults(SMS, answer_ms=1_000)
    before = await _order(world, campaign, "cancel")
    await asyncio.sleep(max(0.0, before + HOLDS_WITHIN_S - time.time()))
    calls = (await world.ledger(SMS))["calls"]
    told = await world.until_told(campaign, lambda told: told["finished_at"] is not None, "has ended")
    assert (await world.ledger(SMS))["calls"] == calls, "calls although it was cancelled"

    assert told["status"] == "cancelled"
    assert set(told["outcomes"]) <= {"sent", "delivered", "cancelled"}
    assert sum(told["outcomes"].values()) == told["expected"] == len(users)
    assert told["reasons"] == {"campaign_cancelled": told["outcomes"]["cancelled"]}
    keys = people.reader_sms_keys(campaign, users)
    sends = [sends for _, sends in (await world.calls(SMS, keys)).values()]
    assert max(sends) == 1 and sum(sends) == len(users) - told["outcomes"]["cancelled"]
    cancelled = {one["user_id"] for one in await world.recipients(campaign, "cancelled")}
    assert cancelled == {user for user, sent in zip(users, sends, strict=True) if not sent}

    assert (await world.ask("POST", f"/v1/campaigns/{campaign}/cancel")).status == 202
    for word in ("pause", "resume"):
        assert (await world.ask("POST", f"/v1/campaigns/{campaign}/{word}")).status == 409


@pytest.mark.long
async def test_a_pace_changed_in_mid_run_holds_from_then_on(world: World) -> None:
    slow_per_s = 50
    campaign, users = await _by_push(world, "news", 2_000, pace_per_s=slow_per_s)
    told = await _until_sent(world, campaign, 100)
    left = len(users) - told["progress"]["sent"]
    began_s = time.monotonic()
    told = await world.must("PATCH", f"/v1/campaigns/{campaign}", json={"pace_per_s": 1_000_000})
    assert told["pace_per_s"] == 1_000_000 and told["status"] == "running"
    told = await world.until_finished(campaign)
    assert sum(told["outcomes"].values()) == len(users)
    assert time.monotonic() - began_s < left / slow_per_s / 2, "still at the old pace"


@pytest.mark.long
async def test_a_campaign_that_is_stopped_by_a_restart_stays_running_until_all_are_sent_to(world: World) -> None:
    """N04: stopping the senders amid the waits of a low rate called it finished. Every role is told to end."""
    campaign, users = await _by_push(world, "news", 400, pace_per_s=20)
    await _until_sent(world, campaign, 100)
    roles = ("work-push.bulk", "work-push.bulk-2", "streams-fan_out", "dispatch", "streams-status")
    ended = {role: world.end(role) for role in roles}
    for role, pid in ended.items():
        await world.running(role, pid)
    told = await world.told(campaign)
    assert told["status"] == "running" and told["finished_at"] is None
    told = await world.until_finished(campaign)
    assert told["status"] == "processed"
    assert set((await world.calls(PUSH, people.reader_keys(campaign, users))).values()) == {(1, 1)}


async def _by_push(world: World, word: str, count: int, **wish: Any) -> tuple[str, list[str]]:
    """An accepted campaign and who is in it."""
    users = [world.name(f"{word}{number}") for number in range(count)]
    return await world.campaign("news", people.readers(users), campaign_id=world.name(word), **wish), users


async def _by_phone(world: World, word: str, count: int) -> tuple[str, list[str]]:
    """The same at a slower provider, so that its lane is full for seconds."""
    users = [world.name(f"{word}{number}") for number in range(count)]
    lines = [{"user_id": user, "to": people.to_phone(user)} for user in users]
    return await world.campaign("offer", lines, campaign_id=world.name(word)), users


async def _until_sent(world: World, campaign: str, count: int) -> dict[str, Any]:
    return await world.until_told(campaign, lambda told: told["progress"]["sent"] >= count, f"sent to {count}")


async def _order(world: World, campaign: str, word: str) -> float:
    """Orders it; when the answer was there."""
    told = await world.must("POST", f"/v1/campaigns/{campaign}/{word}")
    assert told["status"] == {"pause": "paused", "resume": "running", "cancel": "cancelled"}[word]
    return time.time()


async def _called(world: World, campaign: str, users: list[str]) -> int:
    """Calls of the campaign in the provider's book."""
    return sum(calls for calls, _ in (await world.calls(SMS, people.reader_sms_keys(campaign, users))).values())
