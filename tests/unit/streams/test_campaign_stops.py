"""A campaign that was cancelled or has expired: nobody further is written to, the sum closes, and it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from schemas import codec, keys
from schemas.messages import (
    CampaignControl,
    CampaignCursor,
    CampaignOrder,
    CampaignState,
    CampaignStatus,
    Channel,
    EventKind,
    StatusEvent,
)
from schemas.policies import MessageClass, TemplatePolicy
from schemas.records import Outgoing, Placed
from streams.dispatch import Dispatch
from tests.doubles import campaigns as accepted
from tests.doubles.campaign_road import CampaignRoad
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_road import TOPICS, batch

POLICIES = {"offer": TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH,))}
SIZE = 5_000
RELEASED = 3_500
"""Five seconds of what bulk may have of the provider."""
IN_FLIGHT = 7


@pytest.fixture
async def road(tmp_path: Path) -> CampaignRoad:
    road = CampaignRoad(tmp_path, POLICIES)
    await road.restart()
    return road


async def order(road: CampaignRoad, wanted: CampaignOrder) -> None:
    control = CampaignControl("default", "spring", wanted, 0, road.clock.now_ms())
    key = keys.control_key("default", "spring", wanted).encode()
    await road.log.publish([Outgoing(TOPICS.campaign_control, key, codec.encode(control))])


async def tell(road: CampaignRoad, kind: EventKind, reason: str = "", first: int = 0, count: int = 250) -> None:
    """What became of the deliveries of every page let go, from the first of each on."""
    for page in road.pages():
        row = keys.recipient_address(page.campaign_id, page.page, 0).row
        planned = [
            StatusEvent(slot, EventKind.PLANNED, START_MS, plan=("push",), source_offset=1, user_id=one.user_id)
            for slot, one in enumerate(page.recipients)
        ]
        call = 1 if kind is EventKind.SENT else 0
        told = [
            replace(event, kind=kind, plan=(), source_offset=-1, delivery="push", call=call, reason=reason)
            for event in planned[first : first + count]
        ]
        await road.write(batch(*planned, row=row), batch(*told, row=row))


async def begun(road: CampaignRoad) -> Dispatch:
    """A campaign of which more than half was let go; its leader."""
    await accepted.accept(road.log, TOPICS, "spring", SIZE)
    leader = await road.leader()
    await leader.look(1)
    assert sum(len(page.recipients) for page in road.pages()) == RELEASED
    return leader


async def test_after_an_outage_past_its_expiry_nobody_is_written_to_and_everyone_is_told_as_expired(
    road: CampaignRoad,
) -> None:
    """N07: an old campaign went out late. One event a recipient says so here."""
    await accepted.accept(road.log, TOPICS, "spring", 1_100, expires_at_ms=START_MS + 3_600_000)
    road.clock.advance(4 * 3_600_000)
    await road.settle(await road.leader())
    state = road.campaign("spring")
    assert road.pages() == []
    assert (state.status, state.outcomes) == (CampaignStatus.EXPIRED, {"expired": 1_100})
    assert sum(len(events) for events in road.ends().values()) == 1_100 and state.finished_at is not None


async def test_a_cancel_ends_pages_not_let_go_at_once_and_the_campaign_with_its_last_delivery(
    road: CampaignRoad,
) -> None:
    leader = await begun(road)
    await order(road, CampaignOrder.CANCELLED)
    await road.settle(leader)
    state = road.campaign("spring")
    assert (state.status, state.outcomes) == (CampaignStatus.CANCELLED, {"cancelled": SIZE - RELEASED})
    assert state.finished_at is None, "senders have not met all of its deliveries yet"
    await tell(road, EventKind.CANCELLED, "campaign_cancelled")
    await road.settle(leader)
    state = road.campaign("spring")
    assert (state.outcomes, state.reasons) == ({"cancelled": SIZE}, {"campaign_cancelled": SIZE})
    assert state.finished_at is not None and len(road.pages()) * 250 == RELEASED


async def test_a_call_in_flight_at_the_cancel_counts_as_sent_also_when_it_is_told_last(road: CampaignRoad) -> None:
    leader = await begun(road)
    await order(road, CampaignOrder.CANCELLED)
    await tell(road, EventKind.CANCELLED, "campaign_cancelled", first=IN_FLIGHT)
    await road.settle(leader)
    assert road.campaign("spring").finished_at is None
    await tell(road, EventKind.SENT, count=IN_FLIGHT)
    await road.settle(leader)
    state = road.campaign("spring")
    sent = IN_FLIGHT * len(road.pages())
    assert (state.outcomes, state.sent) == ({"sent": sent, "cancelled": SIZE - sent}, sent)
    assert state.status is CampaignStatus.CANCELLED and state.finished_at is not None


async def test_no_later_order_undoes_a_cancel_or_lets_another_page_go(road: CampaignRoad) -> None:
    leader = await begun(road)
    await order(road, CampaignOrder.CANCELLED)
    for later in (CampaignOrder.PAUSED, CampaignOrder.RUNNING):
        await order(road, later)
        await road.settle(leader)
        assert road.campaign("spring").status is CampaignStatus.CANCELLED
    await road.settle(await road.leader(epoch=2), epoch=2)
    assert road.campaign("spring").status is CampaignStatus.CANCELLED
    assert len(road.pages()) * 250 == RELEASED


async def test_a_paused_campaign_lets_nothing_go_and_expires_all_the_same(road: CampaignRoad) -> None:
    await accepted.accept(road.log, TOPICS, "spring", 500, expires_at_ms=START_MS + 60_000)
    await order(road, CampaignOrder.PAUSED)
    leader = await road.leader()
    await road.settle(leader)
    assert road.pages() == [] and road.campaign("spring").status is CampaignStatus.PAUSED
    road.clock.advance(60_000)
    await road.settle(leader)
    state = road.campaign("spring")
    assert (state.status, state.outcomes) == (CampaignStatus.EXPIRED, {"expired": 500})
    assert state.finished_at is not None


async def test_a_leader_deposed_between_a_page_and_its_cursor_knows_what_was_done_since_when_it_leads_again(
    road: CampaignRoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accepted.accept(road.log, TOPICS, "spring", SIZE)
    first, second = await road.leader(), await road.leader(epoch=2)
    publish = road.log.publish

    async def held_up(outgoing: Sequence[Outgoing]) -> list[Placed]:
        placed = await publish(outgoing)
        if any(record.topic == TOPICS.pages for record in outgoing):
            monkeypatch.setattr(road.log, "publish", publish)
            await order(road, CampaignOrder.CANCELLED)
            await road.settle(second, epoch=2)
        return placed

    monkeypatch.setattr(road.log, "publish", held_up)
    await first.look(1)
    cursors = [codec.decode(record.value, CampaignCursor) for record in road.log.records(TOPICS.cursor)]
    assert [cursor.epoch for cursor in cursors[-2:]] == [2, 1], "it wrote over the newer one"
    for _ in range(3):
        await first.look(3)
    cursor = codec.decode(road.log.records(TOPICS.cursor)[-1].value, CampaignCursor)
    assert cursor.released == SIZE
    assert codec.decode(road.log.records(TOPICS.campaign_state)[-1].value, CampaignState).released == SIZE


async def test_what_is_resumed_goes_on_where_it_was_paused(road: CampaignRoad) -> None:
    leader = await begun(road)
    await order(road, CampaignOrder.PAUSED)
    await tell(road, EventKind.SENT)
    await road.settle(leader)
    assert len(road.pages()) * 250 == RELEASED
    await order(road, CampaignOrder.RUNNING)
    await road.settle(leader)
    assert sorted(page.page for page in road.pages()) == list(range(SIZE // 250)), "every page once"
