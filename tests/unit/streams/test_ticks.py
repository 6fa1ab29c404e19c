"""Every status partition gets a tick a day, by which old rows go."""

from pathlib import Path

import pytest

from schemas import codec
from schemas.errors import Transient
from schemas.messages import StatusBatch
from streams.status_sweep import KEPT_MS, Sweep
from streams.ticks import DAY_MS
from tests.doubles.campaign_road import CampaignRoad
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_events import planned
from tests.doubles.status_road import TOPICS, batch


@pytest.fixture
def road(tmp_path: Path) -> CampaignRoad:
    return CampaignRoad(tmp_path, {})


def ticks(road: CampaignRoad) -> list[tuple[int, int]]:
    """(partition, time) of every tick."""
    found = [(r.partition, codec.decode(r.value, StatusBatch)) for r in road.log.records(TOPICS.status)]
    return [(partition, told.events[0].at_ms) for partition, told in found if told.row == "tick"]


async def test_the_leader_writes_one_to_every_partition_once_a_day(road: CampaignRoad) -> None:
    leader = await road.leader()
    for _ in range(3):
        await leader.look(1)
    assert ticks(road) == [(0, START_MS), (1, START_MS)]
    road.clock.advance(DAY_MS - 1)
    await leader.look(1)
    assert len(ticks(road)) == 2
    road.clock.advance(1)
    for _ in range(3):
        await leader.look(1)
    assert ticks(road) == [(0, START_MS), (0, START_MS + DAY_MS), (1, START_MS), (1, START_MS + DAY_MS)]


async def test_a_new_leader_writes_at_most_one_too_many(road: CampaignRoad) -> None:
    await (await road.leader()).look(1)
    later = await road.leader(epoch=2)
    for _ in range(3):
        await later.look(2)
    assert len(ticks(road)) == 4


async def test_a_tick_that_could_not_be_written_is_still_due(road: CampaignRoad) -> None:
    leader = await road.leader()
    road.log.fail = True
    with pytest.raises(Transient):
        await leader.look(1)
    road.log.fail = False
    await leader.look(1)
    assert len(ticks(road)) == 2


async def test_rows_that_nothing_has_changed_for_thirty_days_go_with_the_tick(road: CampaignRoad) -> None:
    await road.restart()
    await road.write(batch(planned("email")))
    await road.read()
    (old,) = road.log.records(TOPICS.status)
    assert road.row(partition=old.partition) is not None
    road.clock.advance(KEPT_MS + 1)
    await (await road.leader()).look(1)
    await road.read([record for record in road.records() if record is not old])
    await Sweep(road.flow, road.clock).run_due()
    assert road.row(partition=old.partition) is None
