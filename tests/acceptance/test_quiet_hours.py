"""Marketing at night: who is awake gets it at once, who sleeps in their morning, once, and not a second before."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp
import pytest

from tests.acceptance import deployment as deployments
from tests.acceptance import people
from tests.acceptance.conftest import TEMPLATES
from tests.acceptance.world import PUSH, World

EACH = 20
HALF_AN_HOUR = timedelta(minutes=30)
SLEEPY = "Asia/Kathmandu"
"""Five hours and 45 minutes ahead of UTC: no other zone has its time."""
AWAKE = timedelta(minutes=6)
"""How long the people of the long test are awake; whoever was held is spread over half of it."""
QUIET = 'quiet_hours = {{ from = "{:%H:%M}", to = "{:%H:%M}" }}\n'


async def test_who_sleeps_is_shown_as_waiting_for_the_morning_and_who_is_awake_or_wants_a_code_does_not_wait(
    world: World,
) -> None:
    """Quiet until noon: it is about six in the morning for the ones, and six in the evening for the others."""
    asleep, awake = _people(world, "sleeper"), _people(world, "owl")
    zone = _zone_where_it_is(6)
    noon = datetime.now(ZoneInfo(zone)).replace(hour=12, minute=0, second=0, microsecond=0)
    await asyncio.gather(*(world.user(user, devices=people.devices(user), time_zone=zone) for user in asleep))
    campaign = await world.campaign("night", [*_lines(asleep), *_lines(awake, _zone_where_it_is(18))])
    await world.until_told(campaign, lambda seen: seen["outcomes"] == {"delivered": EACH}, "has reached who is awake")
    waiting = [one for one in await world.recipients(campaign) if one["status"] == "held"]
    assert {one["user_id"] for one in waiting} == set(asleep)
    assert {one["waits_for"] for one in waiting} == {"quiet_hours"}
    assert {datetime.fromisoformat(one["waits_until"]) for one in waiting} == {noon}
    assert not any(one["deliveries"] for one in waiting), "nothing is planned by what is known at night"

    single = await world.notify(asleep[0], "night", params={"name": "you"})
    [delivery] = (await world.until_status(single, "held"))["deliveries"]
    assert (delivery["waits_for"], delivery["calls"]) == ("quiet_hours", 0)
    assert noon <= datetime.fromisoformat(delivery["waits_until"]) < noon + HALF_AN_HOUR
    code = await world.notify(asleep[0], "code", params={"code": "1234"}, to={"phone": people.phone(asleep[0])})
    await world.until_status(code, "sent", "delivered")

    await world.must("DELETE", f"/v1/notifications/{single}")
    await world.until_status(single, "cancelled")
    await world.must("POST", f"/v1/campaigns/{campaign}/cancel")
    told = await world.until_told(campaign, lambda seen: sum(seen["outcomes"].values()) == 2 * EACH, "has ended")
    assert told["outcomes"] == {"delivered": EACH, "cancelled": EACH}
    assert await _calls(world, campaign, asleep) == [(0, 0)] * EACH


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_in_the_morning_everybody_is_reached_once_though_processes_die_in_the_night_and_in_the_morning(
    tmp_path: Path, kafka_bootstrap: str, redis_url: str
) -> None:
    """A night that ends at the next full minute but one, and falls again soon: the spread is as short as the day."""
    morning = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=4)
    folder = _with_a_night_until(morning, tmp_path / "templates")
    database = deployments.database(redis_url, deployments.OTHER_DATABASES[0])
    with deployments.running(tmp_path, kafka_bootstrap, database, folder) as found:
        async with aiohttp.ClientSession() as client:
            world = World(found, client)
            assert datetime.now(UTC) < morning - timedelta(seconds=45), "it came up too slowly to see the night"
            asleep, singles = _people(world, "sherpa", 600), _people(world, "porter")
            campaign = await world.campaign("night", _lines(asleep, SLEEPY))
            sent = [await _single(world, user) for user in singles]
            for one in sent:
                await world.until_status(one, "held")
            await _until_all_wait(world, campaign, len(asleep))
            for role in ("streams-fan_out", "dispatch", "work-push.bulk"):
                await world.running(role, world.kill(role))
            assert (await world.ledger(PUSH))["calls"] == 0 and datetime.now(UTC) < morning
            await world.until(
                lambda: world.ledger(PUSH), lambda seen: seen["sends"] > len(asleep) * 0.2, "a fifth is reached", 240
            )
            for role in ("work-push.bulk-2", "dispatch"):
                await world.running(role, world.kill(role))
            told = await world.until_finished(campaign, within_s=AWAKE.total_seconds())
            assert sum(told["outcomes"].get(one, 0) for one in ("sent", "delivered")) == len(asleep)
            for one in sent:
                await world.until_status(one, "sent", "delivered", within_s=AWAKE.total_seconds())
            sends = [sends for _, sends in await _calls(world, campaign, asleep)]
            assert min(sends) == 1
            await world.until_repeats_are_told(campaign, sum(sends) - len(asleep))
            twice_where_a_worker_died = {(1, 1), (2, 2)}
            assert set(await _single_calls(world, singles)) <= twice_where_a_worker_died
            shown = [*await world.recipients(campaign), *[await world.status(single) for single in sent]]
            for [delivery] in [told["deliveries"] for told in shown]:
                assert morning <= datetime.fromisoformat(delivery["sent_at"]) < morning + AWAKE


def _with_a_night_until(morning: datetime, folder: Path) -> Path:
    """The templates, of which one is quiet in Kathmandu from AWAKE after this moment until this moment."""
    shutil.copytree(TEMPLATES, folder)
    local = morning.astimezone(ZoneInfo(SLEEPY))
    file = folder / "night" / "template.toml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("quiet_hours")]
    file.write_text("\n".join([*lines, QUIET.format(local + AWAKE, local)]))
    return folder


async def _single(world: World, user: str) -> str:
    to = {**people.to_device(user), "time_zone": SLEEPY}
    return await world.notify(user, "night", key=user, params={"name": user}, to=to)


async def _until_all_wait(world: World, campaign: str, count: int) -> None:
    async def waiting() -> int:
        return sum(one.get("waits_for") == "quiet_hours" for one in await world.recipients(campaign))

    await world.until(waiting, lambda seen: seen == count, f"all of {campaign} wait for the morning")


def _zone_where_it_is(hour: int) -> str:
    """One of the 24; they are named for how far UTC is from them."""
    ahead = (hour - datetime.now(UTC).hour + 12) % 24 - 12
    return f"Etc/GMT{-ahead:+d}"


def _people(world: World, word: str, count: int = EACH) -> list[str]:
    return [world.name(f"{word}{number}") for number in range(count)]


def _lines(users: Sequence[str], zone: str = "") -> list[dict[str, Any]]:
    """Lines of an audience; without a zone only the profile says where they are, and by what they are reached."""
    lines = people.readers(users)
    for line in lines:
        line["to"] = {**line["to"], "time_zone": zone} if zone else {}
    return lines


async def _calls(world: World, campaign: str, users: Sequence[str]) -> list[tuple[int, int]]:
    return _values(await world.calls(PUSH, people.reader_keys(campaign, users)))


async def _single_calls(world: World, users: Sequence[str]) -> list[tuple[int, int]]:
    return _values(await world.calls(PUSH, [people.push_key(user) for user in users]))


def _values(book: Mapping[str, tuple[int, int]]) -> list[tuple[int, int]]:
    return list(book.values())
