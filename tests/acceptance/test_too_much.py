"""Caps and look-alikes on the real thing: nobody gets more than they should, and in doubt a person decides."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.acceptance import deployment, open_calls, people
from tests.acceptance.world import PUSH, World

WITHIN_S = 60
CAP = 2
CAMPAIGNS = 4


async def test_a_lookalike_waits_until_an_operator_lets_it_go_or_drops_it(world: World) -> None:
    user = world.name("ann")

    async def wish() -> str:
        return await world.notify(user, "twice", params={"text": "your parcel has come"}, to=people.to_device(user))

    first = await wish()
    await world.until_status(first, "sent", "delivered")
    again, once_more = await wish(), await wish()
    for held in (again, once_more):
        [delivery] = (await world.until_status(held, "held"))["deliveries"]
        assert delivery["waits_for"] == "lookalike"
    listed = json.loads(await world.holds("list", "--reason", "lookalike", "--template", "twice", "--json"))
    assert {one["notification_id"] for one in listed["held"] if one["user_id"] == user} == {again, once_more}

    await world.holds("drop", once_more)
    await world.holds("release", again)
    await world.until_status(again, "sent", "delivered")
    [dropped] = (await world.until_status(once_more, "cancelled"))["deliveries"]
    assert dropped["reason"] == "dropped_by_operator"
    assert len(await world.messages(f"token-{user}")) == 2


@pytest.mark.long
async def test_no_user_gets_more_than_the_cap_though_a_worker_is_killed_amid_it(world: World) -> None:
    """Several campaigns to the same people at once, and two workers."""
    size = 300
    await world.new_ledger()
    await world.faults(PUSH, answer_ms=50, errors={"503": 0.1})
    users = [world.name(f"reader{number}") for number in range(size)]
    audience = [_at_noon(line) for line in people.readers(users)]
    names = [world.name(f"rare{number}") for number in range(CAMPAIGNS)]
    for name in names:
        await world.campaign("rare", audience, campaign_id=name)
    await world.until(lambda: world.ledger(PUSH), lambda seen: seen["sends"] > size * 0.5, "a part is sent")
    world.kill("work-push.bulk")
    left_open = await asyncio.gather(*(open_calls.after_kill(world, name, users, deployment.LEASE_S) for name in names))
    in_doubt = Counter(user for found in left_open for user in found)

    told = [await world.until_finished(name) for name in names]
    got = await _received(world, names, users)
    assert max(got.values()) <= CAP, "somebody got too much"
    assert all(got[user] >= CAP - in_doubt[user] for user in users), "a place was lost"
    capped = sum(campaign["reasons"].get("capped", 0) for campaign in told)
    settled = sum(campaign["outcomes"].get("sent", 0) + campaign["outcomes"].get("delivered", 0) for campaign in told)
    assert settled <= sum(got.values()) <= CAP * size and capped >= (CAMPAIGNS - CAP) * size


def _at_noon(line: dict[str, Any]) -> dict[str, Any]:
    """Somebody for whom the day does not end while the test runs."""
    return {**line, "to": {**line["to"], "time_zone": f"Etc/GMT{datetime.now(UTC).hour - 12:+}"}}


async def _received(world: World, campaigns: list[str], users: list[str]) -> Counter[str]:
    """How many different messages came to each."""
    got = Counter[str]()
    for campaign in campaigns:
        keys = people.reader_keys(campaign, users)
        calls = await world.calls(PUSH, keys)
        got.update(user for user, key in zip(users, keys, strict=True) if calls[key][1] > 0)
    return got
