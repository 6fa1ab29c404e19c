"""The keepers of the status rows lose their disk, or own a partition together for a moment: every row stays whole."""

from __future__ import annotations

import pytest

from tests.acceptance.world import World
from tests.kills.flow import Flow, caught
from tests.kills.standing import second, standing_still, until_logged
from tests.kills.traps import Fate, Trap, Traps

STATUS = "streams-status"


async def test_a_status_process_that_dies_with_its_disk_has_every_row_again(world: World, traps: Traps) -> None:
    deployment = world.deployment
    disk = deployment.folder / "tables" / f"{deployment.topics.prefix}status"
    trap = Trap("after_changelog", Fate.BEREFT, passing=2, folder=str(disk))
    flow, dead = await caught(world, traps, STATUS, trap)
    ended = await flow.ended()
    assert (ended.repeats, ended.doubted) == (0, 0)
    assert await world.running(STATUS, besides=dead)
    await _has_every_row(world, flow)


@pytest.mark.long
async def test_what_a_deposed_owner_of_rows_writes_is_gone_when_they_are_read_from_the_log(
    world: World, traps: Traps
) -> None:
    before = Flow(world, recipients=1, singles=0)
    await before.begin()
    await before.ended()  # from here on each merge has rows to write
    flow, sleeper = await caught(world, traps, STATUS, Trap("before_changelog", Fate.STOPPED))
    with second(world, "streams", "status") as folder:
        with standing_still(sleeper):
            await world.until_finished(flow.campaign)
        await until_logged(world, folder / "streams.log", "status_rivals.written_over")
        await world.running(STATUS, besides=sleeper)
    await _has_every_row(world, flow)
    ended = await flow.ended()
    assert (ended.repeats, ended.doubted) == (0, 0)


async def _has_every_row(world: World, flow: Flow) -> None:
    """As the process that has the rows now restored them."""
    listed = await world.recipients(flow.campaign)
    assert sorted(one["user_id"] for one in listed) == sorted(flow.readers)
    assert {one["status"] for one in listed} <= {"sent", "delivered"}
