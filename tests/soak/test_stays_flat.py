"""Hours in small: two hundred forced rebalances, and half an hour at half load."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import time
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState
from confluent_kafka.admin import AdminClient

from tests.acceptance import deployment as deployments
from tests.acceptance import people
from tests.acceptance.world import LOOK_EVERY_S, PUSH, World, upload
from tests.soak import footprint
from tests.soak.conftest import STEADY_PER_S

AUDIENCE = 20_000
SINGLES_PER_S = 5
BY_OUTSIDERS, BY_PROCESSES = 90, 10
"""Each comes and goes: two rebalances. Together two hundred."""
MINUTES, SETTLED_MINUTES = 30, 5
REBALANCED_MB, STEADY_MB = 50.0, 20.0
"""What a process may have grown by since the fifth minute, when its caches are full: over two hundred rebalances with a
backlog; to the last minute, which is less than a megabyte a minute."""
USED_SHARE = 0.9
"""Of bulk's part of the provider's rate. Between two campaigns it is not all used."""
POOL = 256
"""Connections that a worker may keep to its provider, by default."""
JOIN_WITHIN_S = 60.0

pytestmark = pytest.mark.soak


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("push_per_s", [1_000], ids=["a quarter of the load"])
async def test_two_hundred_rebalances_under_load_leave_memory_tasks_and_files_as_they_were(world: World) -> None:
    """K23."""
    async with loaded(world) as started:
        await asyncio.sleep(60 * SETTLED_MINUTES)
        before = await footprint.of(world)
        for _ in range(BY_OUTSIDERS):
            async with asyncio.TaskGroup() as guests:
                guests.create_task(asyncio.to_thread(_guest, world, "work push.bulk"))
                guests.create_task(asyncio.to_thread(_guest, world, "route callbacks"))
        for number in range(BY_PROCESSES):
            await asyncio.to_thread(_second_status, world, number)
        after = await footprint.of(world)
    await _all_reached_once(world, started)
    assert footprint.grown(before, after, REBALANCED_MB, POOL) == []


@pytest.mark.timeout(3_600)
async def test_half_an_hour_at_half_load_leaves_memory_tasks_and_files_flat(world: World) -> None:
    samples, sends = [], []
    async with loaded(world) as started:
        begun = time.monotonic()
        for minute in range(1, MINUTES + 1):
            await asyncio.sleep(begun + 60 * minute - time.monotonic())
            samples.append(await footprint.of(world))
            sends.append((await world.ledger(PUSH))["sends"])
    await _all_reached_once(world, started)
    _show(samples, sends)
    per_s = (sends[-1] - sends[SETTLED_MINUTES]) / (60 * (MINUTES - 1 - SETTLED_MINUTES))
    assert per_s >= USED_SHARE * STEADY_PER_S, f"only {per_s:.0f} a second: that is no load"
    early, late = samples[SETTLED_MINUTES : SETTLED_MINUTES + 3], samples[-3:]
    assert footprint.grown(footprint.middle(early), footprint.middle(late), STEADY_MB, POOL) == []


def _show(samples: list[dict[str, footprint.Footprint]], sends: list[int]) -> None:
    """Printed with a failure: what each role held from minute to minute, in MB."""
    print("sends", *sends)
    for role in samples[-1]:
        print(role, *(f"{sample[role].rss_mb:.0f}" if role in sample else "-" for sample in samples))


@contextlib.asynccontextmanager
async def loaded(world: World) -> AsyncIterator[list[str]]:
    """One campaign after the other, the next before the last one ends, and singles beside them; the campaigns' ids."""
    started: list[str] = []

    async def campaigns() -> None:
        for number in count():
            users = [f"reader{number}-{one}" for one in range(AUDIENCE)]
            campaign_id = f"news-{number}"
            await _begin(world, campaign_id, users)
            started.append(campaign_id)
            await world.until_told(campaign_id, _is_mostly_sent, "is mostly sent", within_s=300)

    async def singles() -> None:
        for number in count():
            user = world.name(f"single{number}")
            await world.notify(user, "alert", key=user, params={"text": "x"}, to=people.to_device(user))
            await asyncio.sleep(1 / SINGLES_PER_S)

    async with asyncio.TaskGroup() as both:
        loads = [both.create_task(campaigns()), both.create_task(singles())]
        yield started
        for load in loads:
            load.cancel()


def _is_mostly_sent(told: dict[str, Any]) -> bool:
    return bool(told["progress"]["sent"] >= AUDIENCE * 0.6)


async def _begin(world: World, campaign_id: str, users: list[str]) -> None:
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in people.readers(users))
    definition = {"campaign_id": campaign_id, "template": "news"}
    await world.must("POST", "/v1/campaigns", body=lambda: upload(definition, io.BytesIO(lines)))


async def _all_reached_once(world: World, started: list[str]) -> None:
    for campaign in started:
        told = await world.until_finished(campaign, within_s=300)
        assert (told["status"], told["progress"]["sent"]) == ("processed", AUDIENCE), f"{campaign}: {told}"
    book = await world.ledger(PUSH)
    assert book["repeats"] == 0 and book["distinct_keys"] >= len(started) * AUDIENCE


def _guest(world: World, group: str) -> None:
    """A member of this group comes, is given partitions and goes; it reads nothing. Then all is the others' again."""
    group_id = world.topics.group(group)
    given: list[object] = []  # the first assignment of a cooperative group is empty
    settings = {
        "bootstrap.servers": world.deployment.kafka,
        "group.id": group_id,
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    guest = Consumer(settings)
    guest.subscribe(list(world.topics.groups()[group_id]), on_assign=lambda _, places: given.extend(places))
    try:
        until = time.monotonic() + JOIN_WITHIN_S
        while not given:
            assert time.monotonic() < until, f"nobody gave the guest of {group} anything"
            guest.poll(0.1)
    finally:
        guest.close()
    _until_all_are_held(world, group_id)


def _until_all_are_held(world: World, group_id: str, members: int = 0) -> None:
    """Until the members of the group, so many of them if it is said, hold every partition of its topics.

    Who owns rows is given their changelog as well.
    """
    admin = AdminClient({"bootstrap.servers": world.deployment.kafka, "log_level": 0})
    known, topics = admin.list_topics(timeout=JOIN_WITHIN_S).topics, world.topics.groups()[group_id]
    wanted = sum(len(known[name].partitions) for name in topics)
    until = time.monotonic() + JOIN_WITHIN_S
    while True:
        group = admin.describe_consumer_groups([group_id])[group_id].result(JOIN_WITHIN_S)
        held = sum(place.topic in topics for one in group.members for place in one.assignment.topic_partitions)
        if group.state is ConsumerGroupState.STABLE and held == wanted and members in (0, len(group.members)):
            return
        assert time.monotonic() < until, f"{group_id}: {held} of {wanted} partitions are held"
        time.sleep(LOOK_EVERY_S)


def _second_status(world: World, number: int) -> None:
    """A second `status` process comes, owns a part of the rows, and goes.

    Its rows wait until its session ends, as for a restart: were the next one there before, it would get them, and
    nobody would ever get on with them.
    """
    folder = world.deployment.folder
    own = folder / f"second-{number}.toml"
    text = (folder / deployments.SETTINGS).read_text()
    own.write_text(text.replace('folder = "tables"', f'folder = "tables-{number}"'))
    group_id = world.topics.group("status")
    with deployments.program(folder, ("streams", "status", "--config", str(own))):
        _until_all_are_held(world, group_id, members=2)
    _until_all_are_held(world, group_id, members=1)
