"""Goal: a page that went out and was not noted, as its leader died, goes again a day later only past its row."""

import asyncio
from pathlib import Path

import pytest

from schemas import codec, keys
from schemas.errors import Transient
from schemas.messages import CampaignControl, CampaignCursor, CampaignOrder, Channel, Priority, ReleasedPage
from schemas.policies import MessageClass, TemplatePolicy
from schemas.records import Outgoing
from streams.dispatch import UNNOTED_PAGES, Dispatch
from streams.fan_out import ASK_ROWS_AFTER_MS
from streams.released_before import OTHERS_MS
from tests.doubles import campaigns as accepted
from tests.doubles.campaign_road import CampaignRoad
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_road import TOPICS

POLICIES = {"offer": TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH,))}
HOUR_MS = 3_600_000
A_LOOK = 14
"""Pages that the lane has room for."""


@pytest.fixture
async def road(tmp_path: Path) -> CampaignRoad:
    road = CampaignRoad(tmp_path, POLICIES)
    await road.restart()
    return road


async def dies_unnoted(road: CampaignRoad, leader: Dispatch, epoch: int = 1) -> None:
    """Its pages are in the log, its cursor is not."""
    road.log.only, road.log.fail = frozenset({TOPICS.cursor}), True
    with pytest.raises(Transient):
        await leader.look(epoch)
    road.log.only, road.log.fail = frozenset(), False


async def order(road: CampaignRoad, wanted: CampaignOrder) -> None:
    key = keys.control_key("default", "spring", wanted).encode()
    control = CampaignControl("default", "spring", wanted, 0, START_MS)
    await road.log.publish([Outgoing(TOPICS.campaign_control, key, codec.encode(control))])


def places(road: CampaignRoad) -> set[tuple[int, int]]:
    return {(record.partition, record.offset) for record in road.log.records(TOPICS.pages)}


def since(road: CampaignRoad, before: set[tuple[int, int]]) -> dict[int, bool]:
    """Page -> whether fan-out asks its row, of those let go since these places were all."""
    new = [record for record in road.log.records(TOPICS.pages) if (record.partition, record.offset) not in before]
    pages = [codec.decode(record.value, ReleasedPage) for record in new]
    return {page.page: road.clock.now_ms() - page.released_at_ms >= ASK_ROWS_AFTER_MS for page in pages}


async def let_go(road: CampaignRoad, leader: Dispatch, epoch: int) -> dict[int, bool]:
    """The same of one look."""
    before = places(road)
    await leader.look(epoch)
    return since(road, before)


async def next_page(road: CampaignRoad) -> None:
    """Returns when one is in the log."""
    await next_record(road, TOPICS.pages)


async def next_record(road: CampaignRoad, topic: str) -> None:
    is_there = asyncio.Event()
    road.log.listen(topic, lambda record: is_there.set())
    async with asyncio.timeout(10):
        await is_there.wait()


def cursor(road: CampaignRoad) -> CampaignCursor:
    return codec.decode(road.log.records(TOPICS.cursor)[-1].value, CampaignCursor)


async def test_pages_let_go_and_not_noted_ask_their_rows_when_the_next_leader_comes_a_day_later(
    road: CampaignRoad,
) -> None:
    await accepted.accept(road.log, TOPICS, "spring", 250 * 40)
    await dies_unnoted(road, await road.leader())
    went = {page.page for page in road.pages()}
    assert went == set(range(A_LOOK))
    road.clock.advance(25 * HOUR_MS)
    again = await let_go(road, await road.leader(epoch=2), 2)
    assert set(again) == went
    assert all(again.values())


async def test_a_minute_later_their_plans_are_there_and_nobody_is_asked(road: CampaignRoad) -> None:
    await accepted.accept(road.log, TOPICS, "spring", 250 * 40)
    await dies_unnoted(road, await road.leader())
    road.clock.advance(60_000)
    assert not any((await let_go(road, await road.leader(epoch=2), 2)).values())


@pytest.mark.parametrize("third", [False, True])
async def test_what_a_dead_leader_let_go_is_asked_about_though_its_successor_has_begun_with_it_at_once(
    road: CampaignRoad, third: bool
) -> None:
    """The successor let a few of these pages go in time; then the campaign was paused for a day."""
    await accepted.accept(road.log, TOPICS, "spring", 250 * 40)
    await dies_unnoted(road, await road.leader())
    road.clock.advance(60_000)
    await road.fill(TOPICS.lane(Channel.PUSH, Priority.BULK), 2_500)
    leader = await road.leader(epoch=2)
    assert set(await let_go(road, leader, 2)) == {0, 1, 2, 3}
    await order(road, CampaignOrder.PAUSED)
    await leader.look(2)
    road.clock.advance(25 * HOUR_MS)
    await order(road, CampaignOrder.RUNNING)
    again = await let_go(road, await road.leader(epoch=3), 3) if third else await let_go(road, leader, 2)
    assert all(again[page] for page in range(4, 8))


@pytest.mark.parametrize("third", [False, True])
async def test_all_of_it_is_asked_about_though_it_goes_again_bit_by_bit_and_by_one_leader_after_the_other(
    road: CampaignRoad, third: bool
) -> None:
    await accepted.accept(road.log, TOPICS, "spring", 250 * 40)
    await dies_unnoted(road, await road.leader())
    road.clock.advance(25 * HOUR_MS)
    await road.fill(TOPICS.lane(Channel.PUSH, Priority.BULK), 2_500)
    leader = await road.leader(epoch=2)
    assert set(await let_go(road, leader, 2)) == {0, 1, 2, 3}
    again = await let_go(road, await road.leader(epoch=3), 3) if third else await let_go(road, leader, 2)
    assert set(again) == {4, 5, 6, 7} and all(again.values())


async def test_behind_what_one_leader_can_have_let_go_nobody_is_asked(road: CampaignRoad) -> None:
    users = [f"u{n}" for n in range(UNNOTED_PAGES + 600)]
    accepted.written(road.log.append, TOPICS, "spring", users, page_size=1)
    leader = await road.leader()
    while len(road.pages()) < UNNOTED_PAGES + 5:
        await leader.look(1)
    road.clock.advance(25 * HOUR_MS)
    assert not any((await let_go(road, leader, 1)).values())
    assert cursor(road).at_ms == road.clock.now_ms()


async def leads(road: CampaignRoad) -> Dispatch:
    """One that has led for a minute."""
    leader = await road.leader()
    running = asyncio.create_task(leader.run())
    await next_record(road, TOPICS.status)
    leader.stop()
    await running
    road.clock.advance(OTHERS_MS)
    return leader


async def test_a_slow_campaign_that_came_when_its_leader_led_already_asks_nobody(road: CampaignRoad) -> None:
    """SMS at ten a second: its page 144 goes an hour after the first, and no other leader was ever there."""
    leader = await leads(road)
    await accepted.accept(road.log, TOPICS, "spring", 250 * 40, accepted_at_ms=road.clock.now_ms())
    for _ in range(2):
        assert not any((await let_go(road, leader, 1)).values())
        assert cursor(road).at_ms == road.clock.now_ms()
        road.clock.advance(25 * HOUR_MS)
    assert not any((await let_go(road, leader, 1)).values())


async def test_one_that_came_within_the_minute_in_which_a_deposed_leader_may_still_act_asks(road: CampaignRoad) -> None:
    leader = await leads(road)
    await accepted.accept(road.log, TOPICS, "spring", 250 * 40, accepted_at_ms=road.clock.now_ms() - 1)
    await leader.look(1)
    road.clock.advance(25 * HOUR_MS)
    assert all((await let_go(road, leader, 1)).values())


async def test_after_an_answer_that_never_came_its_leader_asks_about_what_it_tried_and_nothing_behind_it(
    road: CampaignRoad,
) -> None:
    leader = await road.leader()
    running = asyncio.create_task(leader.run())
    await next_record(road, TOPICS.status)
    road.clock.advance(OTHERS_MS)
    road.log.only, road.log.lose_ack = frozenset({TOPICS.pages}), True
    await accepted.accept(road.log, TOPICS, "spring", 250 * 40, accepted_at_ms=road.clock.now_ms())
    await next_page(road)
    await order(road, CampaignOrder.PAUSED)
    seen = places(road)
    road.log.lose_ack = False
    road.clock.advance(25 * HOUR_MS)
    await order(road, CampaignOrder.RUNNING)
    while len(since(road, seen)) < 40:
        await next_page(road)
    leader.stop()
    await running
    assert {page for page, asks in since(road, seen).items() if asks} == set(range(A_LOOK))


async def test_looks_that_fail_behind_what_they_let_go_and_noted_make_nobody_ask(road: CampaignRoad) -> None:
    """As they do where Redis does not answer, or the topic of ticks."""
    users = [f"u{n}" for n in range(2 * UNNOTED_PAGES)]
    accepted.written(road.log.append, TOPICS, "spring", users, page_size=1)
    leader = await road.leader()
    road.log.only, road.log.fail = frozenset({TOPICS.status}), True
    running = asyncio.create_task(leader.run())
    while len(road.pages()) < UNNOTED_PAGES + 5:
        await next_page(road)
    seen = places(road)
    road.clock.advance(25 * HOUR_MS)
    await next_page(road)
    leader.stop()
    await running
    again = since(road, seen)
    assert again and not any(again.values())


async def test_a_campaign_that_was_accepted_days_before_its_start_asks_nobody(road: CampaignRoad) -> None:
    await accepted.accept(road.log, TOPICS, "spring", 1_000, send_at_ms=START_MS + 48 * HOUR_MS)
    leader = await road.leader()
    await leader.look(1)
    road.clock.advance(48 * HOUR_MS)
    again = await let_go(road, leader, 1)
    assert len(again) == 4 and not any(again.values())


async def test_a_leader_that_got_no_answer_from_the_log_asks_as_its_successor_would(road: CampaignRoad) -> None:
    """It leads on, the campaign is paused within the outage, and resumed the day after."""
    await accepted.accept(road.log, TOPICS, "spring", 250 * 40)
    leader = await road.leader()
    await leader.look(1)
    assert len(road.pages()) == A_LOOK
    road.clock.advance(60_000)
    road.log.only, road.log.lose_ack = frozenset({TOPICS.pages}), True
    running = asyncio.create_task(leader.run())
    await next_page(road)
    await order(road, CampaignOrder.PAUSED)
    seen = places(road)
    road.log.lose_ack = False
    road.clock.advance(25 * HOUR_MS)
    await order(road, CampaignOrder.RUNNING)
    await next_page(road)
    leader.stop()
    await running
    again = since(road, seen)
    assert set(again) == set(range(A_LOOK, 2 * A_LOOK)) and all(again.values())
