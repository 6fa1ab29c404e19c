"""What is above a cap is told the next day in one message, though senders and the leader die on the way to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.acceptance import people
from tests.acceptance.conftest import TEMPLATES
from tests.acceptance.deployment import Deployment
from tests.acceptance.test_digests import in_the_order_of_acceptance
from tests.acceptance.world import PUSH, World
from tests.kills import deployment as with_traps
from tests.kills import midnights
from tests.kills.flow import until_sprung
from tests.kills.traps import Trap, Traps

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
USERS, LIKES = 40, 5
"""Of these likes one a day may be told."""
DAY_LEFT = timedelta(seconds=90)
"""Enough for a death in it: a dead sender is missed after 6 s, and its calls are made good 3 s later."""
WORTH_TELLING = timedelta(minutes=2)
"""After midnight. Digests go within the first half of it: who was let go at its end would not be reached in time."""
WORK, DISPATCH = "work-push.bulk", "dispatch"


@pytest.fixture(scope="module")
def zones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zones")


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str, second_database: str, zones: Path
) -> Iterator[Deployment]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(midnights.VARIABLE, midnights.path(zones))
        folder = tmp_path_factory.mktemp("capped")
        with with_traps.running(folder, kafka_bootstrap, second_database, TEMPLATES) as running:
            yield running


@pytest.fixture
async def world(deployment: Deployment) -> AsyncIterator[World]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client:
        made = World(deployment, client)
        yield made
        await made.all_is_well()


@pytest.fixture
def traps(deployment: Deployment) -> Iterator[Traps]:
    made = with_traps.traps_of(deployment.folder)
    yield made
    made.clear()


async def test_likes_above_the_days_cap_are_one_message_the_next_day_though_senders_and_the_leader_die(
    world: World, traps: Traps, zones: Path
) -> None:
    midnight = datetime.now(UTC).replace(microsecond=0) + DAY_LEFT
    zone = midnights.zone(zones, midnight)
    users = [world.name(f"liked{number}") for number in range(USERS)]
    await world.faults(PUSH, answer_ms=50)
    traps.set(WORK, Trap("after_send", passing=10))
    ids = dict(zip(users, await asyncio.gather(*(_likes(world, user, zone, midnight) for user in users)), strict=True))
    await until_sprung(world, traps, WORK)
    first = {user: await _first_told(world, user, ids[user]) for user in users}
    assert datetime.now(UTC) < midnight, "the day was over too soon to see what was sent in it"
    assert {len(_texts(await world.messages(f"token-{user}"))) for user in users} == {1}, "one a day"

    traps.set(DISPATCH, Trap("after_digest"))
    traps.set(WORK, Trap("after_send", passing=10))
    for role in (DISPATCH, WORK):
        await until_sprung(world, traps, role, within_s=DAY_LEFT.total_seconds() + 60)
    wanted = await in_the_order_of_acceptance(world)
    for user in users:
        one = first[user]
        digest = await _their_digest(world, [like for like in ids[user] if like != one.id])
        messages = await world.messages(f"token-{user}")
        rest = [by for by in wanted[user] if by != one.by]
        assert _texts(messages) == {(one.by,), tuple(rest)}, "each like once, in their order"
        assert len(messages) - 2 <= one.doubted + bool(digest["deliveries"][0].get("possible_duplicate"))


@dataclass(frozen=True, slots=True)
class Told:
    """Of whom the user heard on the first day. doubted: whether that may have come twice."""

    id: str
    by: str
    doubted: bool


async def _likes(world: World, user: str, zone: str, midnight: datetime) -> list[str]:
    """All at the same moment, by friends of different names."""
    to = {**people.to_device(user), "time_zone": zone}
    wish: dict[str, Any] = {"to": to, "expires_at": (midnight + WORTH_TELLING).isoformat()}
    return await asyncio.gather(
        *(world.notify(user, "likes", params={"by": f"friend{number}"}, **wish) for number in range(LIKES))
    )


async def _first_told(world: World, user: str, likes: list[str]) -> Told:
    """One like went out, and the others wait for the next day."""

    async def look() -> list[dict[str, Any]]:
        return [await world.status(one) for one in likes]

    def settled(told: list[dict[str, Any]]) -> bool:
        return sorted(one["status"] == "held" for one in told) == [False] + [True] * (LIKES - 1) and all(
            one["status"] in ("held", "sent", "delivered") for one in told
        )

    seen = await world.until(look, settled, f"{user} was told of one like, and the others wait")
    assert {one["deliveries"][0].get("waits_for", "digest") for one in seen} == {"digest"}
    [number] = [number for number, one in enumerate(seen) if one["status"] != "held"]
    return Told(likes[number], f"friend{number}", bool(seen[number]["deliveries"][0].get("possible_duplicate")))


async def _their_digest(world: World, likes: list[str]) -> dict[str, Any]:
    """The one in which all of them are, once it has arrived."""
    told = [await world.until_status(one, "suppressed", within_s=WORTH_TELLING.total_seconds()) for one in likes]
    [(reason, detail)] = {(one["deliveries"][0]["reason"], one["deliveries"][0]["detail"]) for one in told}
    assert reason == "in_digest"
    return await world.until_status(detail.removeprefix("in digest "), "delivered")


def _texts(messages: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    """Their different texts, each as the friends that it names."""
    return {tuple(message["text"].split()) for message in messages}
