"""Workers join and leave in the middle of a campaign: each delivery is still called once, and the counts are exact."""

from __future__ import annotations

import os
import signal

import pytest

from tests.acceptance.world import PUSH, World
from tests.kills.flow import Flow
from tests.kills.standing import second

pytestmark = pytest.mark.long
RECIPIENTS = 5_000
"""Enough for the campaign to last until the last of them has come or gone."""
WORKERS = ("work-push.bulk", "work-push.bulk-2")


async def test_a_worker_that_joins_in_the_middle_repeats_no_call(world: World) -> None:
    """K05"""
    flow = await _begun(world)
    with second(world, "work", "push.bulk"):
        assert (await world.ledger(PUSH))["sends"] < RECIPIENTS, "it came too late"
        ended = await flow.ended()
    assert (ended.repeats, ended.doubted, ended.never_made) == (0, 0, 0)


async def test_workers_that_are_replaced_one_by_one_repeat_no_call(world: World) -> None:
    flow = await _begun(world)
    for worker in WORKERS:
        pid = await world.running(worker)
        os.kill(pid, signal.SIGTERM)
        assert await world.running(worker, besides=pid)
    assert (await world.ledger(PUSH))["sends"] < RECIPIENTS, "they went too late"
    ended = await flow.ended()
    assert (ended.repeats, ended.doubted, ended.never_made) == (0, 0, 0)


async def _begun(world: World) -> Flow:
    flow = Flow(world, RECIPIENTS, singles=0)
    await flow.begin()
    await world.until(lambda: world.ledger(PUSH), lambda seen: seen["sends"] > RECIPIENTS / 10, "it has begun")
    return flow
