"""Promise 6: campaign counts are exact after kill -9, add up, and are true at every stage."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.acceptance import people
from tests.acceptance.watch import Watch
from tests.acceptance.world import PUSH, World

SIZE, PACE_PER_S = 2_000, 400
OPTED_OUT, UNREACHABLE, FAILING = 20, 20, 20
REACHED = SIZE - OPTED_OUT - UNREACHABLE - FAILING
KILLS = {"streams-fan_out": 0.2, "dispatch": 0.35, "streams-status": 0.5, "work-push.bulk": 0.65}
"""Whom, and at which share of the recipients sent."""


async def test_counts_are_exact_after_kills_of_every_role_and_true_at_every_look(world: World) -> None:
    users = [world.name(f"reader{number}") for number in range(SIZE)]
    await _opt_out(world, users[:OPTED_OUT])
    await world.new_ledger()
    campaign = await world.campaign("news", _audience(users), pace_per_s=PACE_PER_S)
    watch = Watch(world, campaign, SIZE)
    told = await watch.look()
    assert told["status"] == "running" and told["outcomes"] == {}, "right after the 202"

    for role, share in KILLS.items():
        await watch.until_sent(share * SIZE)
        world.kill(role)
    await watch.until_finished()
    told = await watch.until_reported(REACHED)

    assert told["status"] == "partially_processed"
    assert told["outcomes"] == {"delivered": REACHED, "suppressed": OPTED_OUT + UNREACHABLE, "failed": FAILING}
    assert told["reasons"] == {"opted_out": OPTED_OUT, "no_address": UNREACHABLE, "template_error": FAILING}
    listed = {one["user_id"] for one in await world.recipients(campaign, "failed")}
    assert listed == set(users[-FAILING:])
    assert len(await world.recipients(campaign)) == SIZE

    calls = list((await world.calls(PUSH, people.reader_keys(campaign, users))).values())
    dark = OPTED_OUT + UNREACHABLE
    assert calls[:dark] == [(0, 0)] * dark and calls[-FAILING:] == [(0, 0)] * FAILING
    sends = [sent for _, sent in calls[dark:-FAILING]]
    assert min(sends) == 1
    await world.until_repeats_are_told(campaign, sum(sends) - REACHED)


async def _opt_out(world: World, users: list[str]) -> None:
    profile = {"opt_outs": [{"channel": "push", "kind": "marketing"}]}
    await asyncio.gather(*(world.user(user, **profile) for user in users))


def _audience(users: list[str]) -> list[dict[str, Any]]:
    """The first are opted out, the next have no device, and for the last the text cannot be made."""
    lines = people.readers(users)
    for line in lines[OPTED_OUT : OPTED_OUT + UNREACHABLE]:
        line["to"] = {}
    for line in lines[-FAILING:]:
        line["params"] = {}
    return lines
