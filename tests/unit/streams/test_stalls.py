"""A campaign that makes no progress is reported as such, with what it waits for, and can still be cancelled (N11)."""

from pathlib import Path

import pytest

from schemas import codec, keys, metrics, standstill
from schemas.messages import CampaignControl, CampaignOrder, CampaignStatus, Channel, EventKind, StatusEvent
from schemas.policies import MessageClass, TemplatePolicy
from schemas.records import Outgoing
from tests.doubles import campaigns as accepted
from tests.doubles.campaign_road import CampaignRoad
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_road import TOPICS, batch

POLICIES = {"offer": TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH,))}


@pytest.fixture
async def road(tmp_path: Path) -> CampaignRoad:
    road = CampaignRoad(tmp_path, POLICIES)
    await road.restart()
    return road


async def order(road: CampaignRoad, wanted: CampaignOrder) -> None:
    control = CampaignControl("default", "spring", wanted, 0, road.clock.now_ms())
    key = keys.control_key("default", "spring", wanted).encode()
    await road.log.publish([Outgoing(TOPICS.campaign_control, key, codec.encode(control))])


def stalled(waits_for: str) -> float:
    return metrics.REGISTRY.get_sample_value("tidings_campaigns_stalled", {"waits_for": waits_for}) or 0.0


async def test_a_campaign_without_fan_out_is_reported_once_and_a_cancel_still_works(
    road: CampaignRoad, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await accepted.accept(road.log, TOPICS, "spring", 500)
    leader = await road.leader()
    await road.settle(leader)
    assert len(road.pages()) == 2
    road.clock.advance(standstill.STALLED_AFTER_MS - 1)
    await road.settle(leader)
    assert stalled("fan_out") == 0 and road.campaign("spring").waits_for == "fan_out"
    road.clock.advance(2)
    await road.settle(leader)
    assert stalled("fan_out") == 1 and caplog.messages.count("campaign.stalled") == 1

    await order(road, CampaignOrder.CANCELLED)
    await road.settle(leader)
    assert road.campaign("spring").status is CampaignStatus.CANCELLED
    assert stalled("fan_out") == 0 and "campaign.stall_ended" in caplog.messages


async def test_without_a_usable_provider_it_says_so_and_moves_again_with_one(road: CampaignRoad) -> None:
    road.rates[Channel.PUSH] = 0
    await accepted.accept(road.log, TOPICS, "spring", 500)
    leader = await road.leader()
    await road.settle(leader)
    road.clock.advance(standstill.STALLED_AFTER_MS)
    await road.settle(leader)
    assert road.campaign("spring").waits_for == "provider"
    assert stalled("provider") == 1
    road.rates[Channel.PUSH] = 1_000
    await road.settle(leader)
    assert len(road.pages()) == 2
    assert road.campaign("spring").waits_for is None and stalled("provider") == 0


@pytest.mark.parametrize("paused", [True, False])
async def test_what_somebody_asked_for_is_no_stall(road: CampaignRoad, paused: bool) -> None:
    start_ms = 0 if paused else START_MS + 4 * standstill.STALLED_AFTER_MS
    await accepted.accept(road.log, TOPICS, "spring", 500, send_at_ms=start_ms)
    if paused:
        await order(road, CampaignOrder.PAUSED)
    leader = await road.leader()
    await road.settle(leader)
    road.clock.advance(2 * standstill.STALLED_AFTER_MS)
    await road.settle(leader)
    assert road.campaign("spring").waits_for == ("resume" if paused else "start")
    assert stalled("resume") == stalled("start") == 0


async def test_a_new_leader_knows_how_long_a_campaign_has_stood_still(road: CampaignRoad) -> None:
    await accepted.accept(road.log, TOPICS, "spring", 250)
    await road.settle(await road.leader())
    road.clock.advance(standstill.STALLED_AFTER_MS)
    await road.settle(await road.leader(epoch=2), epoch=2)
    assert stalled("fan_out") == 1
    row = keys.recipient_address("spring", 0, 0).row
    planned = [StatusEvent(slot, EventKind.PLANNED, START_MS, plan=("push",), source_offset=1) for slot in range(250)]
    sent = [StatusEvent(slot, EventKind.SENT, START_MS, delivery="push", call=1) for slot in range(250)]
    await road.write(batch(*planned, row=row), batch(*sent, row=row))
    await road.settle(await road.leader(epoch=3), epoch=3)
    assert road.campaign("spring").finished_at is not None and stalled("fan_out") == 0
