"""Goal: what lies in hold a day after it was due goes out unless its row knows that it went."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from retry_topics import hold
from schemas import codec, keys
from schemas.errors import Transient
from schemas.messages import Channel, Delivery, Held, Priority
from schemas.policies import MessageClass, TemplatePolicy
from schemas.stores import DeliveryView, SlotView
from streams.dispatch import Dispatch
from tests.doubles.campaign_road import CampaignRoad
from tests.doubles.deliveries import single
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_road import TOPICS

POLICIES = {"offer": TemplatePolicy("offer", MessageClass.TRANSACTIONAL, (Channel.SMS,))}
HOUR_MS = 3_600_000
DUE_MS = START_MS + HOUR_MS
ADDRESS = keys.single_address("0a1b2c3d", 0, 35)


class Rows:
    """One row. state: of the delivery by SMS in its slot, after so many calls; None: nobody can read it now."""

    def __init__(self) -> None:
        self.asked = 0
        self.says("accepted", 0)

    def says(self, state: str | None, calls: int) -> None:
        self._state, self._calls = state, calls

    async def row(self, tenant: str, row: str) -> Sequence[SlotView | None]:
        assert (tenant, row) == ("default", ADDRESS.row)
        self.asked += 1
        if self._state is None:
            raise Transient("no owner now")
        sms = DeliveryView("sms", "", self._state, "", "", "", self._calls, 0, 0, 0)
        slot = SlotView(self._state, "", "", "42", "welcome", START_MS, (sms,))
        return [None] * ADDRESS.slot + [slot]

    async def slot(self, tenant: str, address: keys.Address) -> SlotView | None:
        raise AssertionError("rows are read as a whole")


@pytest.fixture
async def road(tmp_path: Path) -> CampaignRoad:
    road = CampaignRoad(tmp_path, POLICIES)
    await road.restart()
    road.rows = Rows()
    return road


async def overdue(road: CampaignRoad, hours: int, call: int = 1, due_ms: int = DUE_MS) -> Dispatch:
    """A leader that looks at something so long after it was due."""
    later = single(
        row=ADDRESS.row,
        slot=ADDRESS.slot,
        priority=Priority.BULK,
        hop=1,
        call=call,
        expires_at_ms=DUE_MS + 99 * HOUR_MS,
    )
    reason = "scheduled" if due_ms else "campaign_paused"
    await road.log.publish([hold.delivery_record(TOPICS, Held("default", due_ms, reason, 1, DUE_MS, delivery=later))])
    road.clock.advance((1 + hours) * HOUR_MS)
    leader = await road.leader()
    await leader.look(1)
    return leader


def went(road: CampaignRoad) -> list[Delivery]:
    lane = TOPICS.lane(Channel.SMS, Priority.BULK)
    return [codec.decode(record.value, Delivery) for record in road.log.records(lane)]


def is_buried(road: CampaignRoad) -> bool:
    return any(record.value is None for record in road.log.records(TOPICS.hold))


@pytest.mark.parametrize(("state", "calls", "call"), [("sent", 1, 1), ("retrying", 2, 2), ("cancelled", 0, 1)])
@pytest.mark.parametrize("due_ms", [DUE_MS, 0])
async def test_what_was_called_or_has_ended_is_only_buried(
    road: CampaignRoad, state: str, calls: int, call: int, due_ms: int
) -> None:
    assert isinstance(road.rows, Rows)
    road.rows.says(state, calls)
    await overdue(road, 21, call, due_ms)
    assert went(road) == [] and is_buried(road)


@pytest.mark.parametrize(("state", "calls", "call"), [("scheduled", 0, 1), ("held", 1, 2), ("accepted", 0, 1)])
async def test_what_waits_still_goes_out_late(road: CampaignRoad, state: str, calls: int, call: int) -> None:
    assert isinstance(road.rows, Rows)
    road.rows.says(state, calls)
    await overdue(road, 21, call)
    assert [one.call for one in went(road)] == [call] and is_buried(road)


async def test_while_nobody_can_read_the_row_it_stays_and_goes_when_somebody_can(road: CampaignRoad) -> None:
    assert isinstance(road.rows, Rows)
    road.rows.says(None, 0)
    leader = await overdue(road, 21)
    assert went(road) == [] and not is_buried(road)
    road.rows.says("scheduled", 0)
    await leader.look(1)
    assert len(went(road)) == 1 and is_buried(road)


async def test_what_claims_still_know_of_needs_no_row(road: CampaignRoad) -> None:
    assert isinstance(road.rows, Rows)
    await overdue(road, 19)
    assert len(went(road)) == 1 and road.rows.asked == 0
