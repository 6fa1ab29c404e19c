"""A campaign that is wanted at a time of day: everybody at theirs, once, never before, and counted to the last."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.acceptance import people
from tests.acceptance.world import PUSH, World

EACH = 20
"""People of each zone."""
SOON = "Asia/Kathmandu"
"""Five hours and 45 minutes ahead of UTC: no other zone has its time."""


async def test_whose_time_has_come_is_reached_at_once_and_a_cancel_ends_those_who_wait(world: World) -> None:
    """The time of this minute by UTC: over in the east, hours ahead in the west."""
    now = datetime.now(UTC)
    over, ahead = _people(world, "east"), _people(world, "west")
    await asyncio.gather(*(world.user(user, devices=people.devices(user), time_zone="Asia/Tokyo") for user in over))
    campaign = await world.campaign("news", [*_lines(over), *_lines(ahead, "America/New_York")], send_at=_wish(now))
    told = await world.until_told(
        campaign, lambda seen: seen["outcomes"] == {"delivered": EACH}, "has reached the east"
    )
    assert (told["status"], told["expected"]) == ("running", 2 * EACH)

    due = now.replace(second=0, microsecond=0, tzinfo=ZoneInfo("America/New_York"))
    waiting = [one for one in await world.recipients(campaign) if one["status"] == "scheduled"]
    assert {one["user_id"] for one in waiting} == set(ahead)
    assert {datetime.fromisoformat(one["waits_until"]) for one in waiting} == {due}
    assert all(one["waits_for"] == "scheduled" and not one["deliveries"] for one in waiting)

    await world.must("POST", f"/v1/campaigns/{campaign}/cancel")
    told = await world.until_told(campaign, lambda seen: sum(seen["outcomes"].values()) == 2 * EACH, "has ended")
    assert (told["status"], told["outcomes"]) == ("cancelled", {"delivered": EACH, "cancelled": EACH})
    assert await _calls(world, campaign, over) == [(1, 1)] * EACH
    assert await _calls(world, campaign, ahead) == [(0, 0)] * EACH


@pytest.mark.long
async def test_everybody_is_reached_once_in_their_own_minute_though_processes_die_while_they_wait(world: World) -> None:
    """The next full minute but one in Kathmandu, which is over in the east and in one zone that nobody else has."""
    soon = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=2)
    over, waiting = _people(world, "early"), _people(world, "sherpa")
    await asyncio.gather(*(world.user(user, devices=people.devices(user), time_zone=SOON) for user in waiting))
    audience = [line for pair in zip(_lines(over, "Pacific/Kiritimati"), _lines(waiting), strict=True) for line in pair]
    campaign = await world.campaign("news", audience, send_at=_wish(soon.astimezone(ZoneInfo(SOON))))
    await world.until_told(campaign, lambda seen: seen["outcomes"] == {"delivered": EACH}, "has reached the first zone")
    for role in ("streams-fan_out", "dispatch"):
        await world.running(role, world.kill(role))
    told = await world.until_finished(campaign, within_s=240)
    assert (told["status"], sum(told["outcomes"].values())) == ("processed", 2 * EACH)
    assert await _calls(world, campaign, [*over, *waiting]) == [(1, 1)] * 2 * EACH
    for one in await world.recipients(campaign):
        [delivery] = one["deliveries"]
        assert one["user_id"] in over or datetime.fromisoformat(delivery["sent_at"]) >= soon


def _people(world: World, word: str) -> list[str]:
    return [world.name(f"{word}{number}") for number in range(EACH)]


def _lines(users: Sequence[str], zone: str = "") -> list[dict[str, Any]]:
    """Lines of an audience; without a zone only the profile says where they are, and by what they are reached."""
    lines = people.readers(users)
    for line in lines:
        line["to"] = {**line["to"], "time_zone": zone} if zone else {}
    return lines


def _wish(local: datetime) -> dict[str, str]:
    return {"local": f"{local:%H:%M}", "date": f"{local:%Y-%m-%d}"}


async def _calls(world: World, campaign: str, users: Sequence[str]) -> list[tuple[int, int]]:
    return list((await world.calls(PUSH, people.reader_keys(campaign, users))).values())
