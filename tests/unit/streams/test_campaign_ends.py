"""A campaign ends, and its sum closes, also when its template, its providers or its pages are gone."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from schemas import codec, keys
from schemas.errors import Transient
from schemas.messages import (
    AudiencePage,
    CampaignControl,
    CampaignCursor,
    CampaignOrder,
    CampaignRequested,
    CampaignState,
    CampaignStatus,
    Channel,
    EventKind,
    Recipient,
    StatusEvent,
)
from schemas.policies import MessageClass, TemplatePolicy
from schemas.records import Outgoing
from tests.doubles import campaigns as accepted
from tests.doubles.campaign_road import CampaignRoad
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_road import TOPICS, batch

POLICIES = {"offer": TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH,))}
Open = Callable[..., CampaignRoad]


@pytest.fixture
def open_road(tmp_path: Path) -> Open:
    return lambda **options: CampaignRoad(tmp_path, options.pop("policies", POLICIES), **options)


@pytest.fixture
async def road(open_road: Open) -> CampaignRoad:
    road = open_road()
    await road.restart()
    return road


async def send_all(road: CampaignRoad) -> None:
    """Every recipient of the pages let go was sent to."""
    for page in road.pages():
        row = keys.recipient_address(page.campaign_id, page.page, 0).row
        planned = [
            StatusEvent(slot, EventKind.PLANNED, START_MS, plan=("push",), source_offset=1, user_id=one.user_id)
            for slot, one in enumerate(page.recipients)
        ]
        sent = [replace(e, kind=EventKind.SENT, plan=(), source_offset=-1, delivery="push", call=1) for e in planned]
        await road.write(batch(*planned, row=row), batch(*sent, row=row))


async def test_without_its_template_every_recipient_fails_and_the_campaign_ends(open_road: Open) -> None:
    road = open_road(policies={})
    await road.restart()
    await accepted.accept(road.log, TOPICS, "spring", 1_100)
    await road.settle(await road.leader())
    state = road.campaign("spring")
    assert road.pages() == []
    assert (state.status, state.finished) == (CampaignStatus.PARTIALLY_PROCESSED, 1_100)
    assert (state.outcomes, state.reasons) == ({"failed": 1_100}, {"unknown_template": 1_100})
    assert state.finished_at is not None


async def test_a_template_that_vanishes_on_the_way_fails_only_who_was_not_let_go(road: CampaignRoad) -> None:
    await accepted.accept(road.log, TOPICS, "spring", 5_000)
    await (await road.leader()).look(1)
    released = sum(len(page.recipients) for page in road.pages())
    await send_all(road)
    assert 0 < released < 5_000
    road.policies = {}
    await road.settle(await road.leader())
    state = road.campaign("spring")
    assert state.outcomes == {"sent": released, "failed": 5_000 - released}
    assert state.status is CampaignStatus.PARTIALLY_PROCESSED


async def test_a_template_may_still_come_before_the_campaigns_time_or_while_it_is_paused(open_road: Open) -> None:
    road = open_road(policies={})
    await road.restart()
    await accepted.accept(road.log, TOPICS, "later", 300, send_at_ms=START_MS + 60_000)
    await accepted.accept(road.log, TOPICS, "paused", 300)
    order = CampaignControl("default", "paused", CampaignOrder.PAUSED, 0, START_MS)
    await road.log.publish([Outgoing(TOPICS.campaign_control, b"default/paused", codec.encode(order))])
    await road.settle(await road.leader())
    assert road.ends() == {}


async def test_without_any_provider_every_recipient_is_told_so(open_road: Open) -> None:
    road = open_road(served={Channel.EMAIL, Channel.INAPP})
    await road.restart()
    await accepted.accept(road.log, TOPICS, "spring", 600)
    await road.settle(await road.leader())
    state = road.campaign("spring")
    assert (state.outcomes, state.reasons) == ({"suppressed": 600}, {"no_provider": 600})
    assert state.finished_at is not None


async def test_pages_that_the_log_no_longer_holds_fail_and_the_others_go_out(road: CampaignRoad) -> None:
    wanted = await accepted.accept(road.log, TOPICS, "spring", 1_100)
    road.log.expire(TOPICS.audience, wanted.partition, wanted.first_offset + 2)
    leader = await road.leader()
    await road.settle(leader)
    assert [page.page for page in road.pages()] == [2, 3, 4]
    assert {page: len(events) for page, events in road.ends().items()} == {0: 250, 1: 250}
    await send_all(road)
    await road.settle(leader)
    state = road.campaign("spring")
    assert (state.outcomes, state.reasons) == ({"sent": 600, "failed": 500}, {"audience_lost": 500})
    assert (state.status, state.released) == (CampaignStatus.PARTIALLY_PROCESSED, 1_100)


async def test_with_all_pages_gone_the_last_one_ends_with_the_rest_of_the_recipients(road: CampaignRoad) -> None:
    wanted = await accepted.accept(road.log, TOPICS, "spring", 1_100)
    road.log.expire(TOPICS.audience, wanted.partition, wanted.last_offset + 1)
    await road.settle(await road.leader())
    assert {page: len(events) for page, events in road.ends().items()} == {0: 250, 1: 250, 2: 250, 3: 250, 4: 100}
    state = road.campaign("spring")
    assert (state.status, state.reasons) == (CampaignStatus.PARTIALLY_PROCESSED, {"audience_lost": 1_100})


async def with_long_values(road: CampaignRoad, values: int, own: Sequence[int]) -> None:
    """A campaign of one page, accepted when nobody looked how long values were; own: those of each recipient."""
    wanted = await accepted.accept(road.log, TOPICS, "other", 1, params="{}")
    users = tuple(Recipient(f"u{n}", text(size)) for n, size in enumerate(own))
    page = AudiencePage("default", "spring", "upload-1", 0, users)
    (placed,) = await road.log.publish(
        [Outgoing(TOPICS.audience, b"x", codec.encode(page), partition=wanted.partition)]
    )
    spring = replace(wanted, campaign_id="spring", recipients=len(users), params=text(values))
    spring = replace(spring, first_offset=placed.offset, last_offset=placed.offset)
    await road.log.publish([Outgoing(TOPICS.campaign_requests, b"default/spring", codec.encode(spring))])


def text(size: int) -> str:
    return '{"x":"' + "y" * (size - 8) + '"}'


async def test_a_campaign_with_very_long_values_reaches_everybody_and_holds_up_nobody(road: CampaignRoad) -> None:
    """Its page and its values together are more than a record of the log may be."""
    await with_long_values(road, 600_000, [3_000] * 250)
    await road.settle(await road.leader())
    mine = [page for page in road.pages() if page.campaign_id == "spring"]
    assert sorted(slot for page in mine for slot in page.slots) == list(range(250))
    for page in mine:
        assert [n for n, one in enumerate(page.recipients) if one.user_id] == list(page.slots), "each travels once"
    assert [page.campaign_id for page in road.pages() if page.campaign_id == "other"] == ["other"]


async def test_whom_no_record_can_hold_with_the_campaigns_values_fails_and_the_others_go_out(
    road: CampaignRoad,
) -> None:
    await with_long_values(road, 600_000, [3_000, 500_000, 3_000])
    leader = await road.leader()
    await road.settle(leader)
    assert sorted(slot for page in road.pages() if page.campaign_id == "spring" for slot in page.slots) == [0, 2]
    state = road.campaign("spring")
    assert (state.outcomes, state.reasons) == ({"failed": 1}, {"too_large": 1})
    assert state.released == 3
    again = [(event.slot, event.reason) for event in road.ends()[0]]
    assert again == [(1, "too_large")], "once"


async def with_unreadable_page(road: CampaignRoad) -> CampaignRequested:
    """A campaign of three pages, the second of which is garbage."""
    first = await accepted.accept(road.log, TOPICS, "other", 250)
    await road.log.publish([Outgoing(TOPICS.audience, b"x", b"garbage", partition=first.partition)])
    last = accepted.page_record(TOPICS, "spring", "upload-1", 2, ["ann", "bob"], partition=first.partition)
    (placed,) = await road.log.publish([last])
    wanted = replace(first, campaign_id="spring", pages=3, recipients=250 + 40 + 2, last_offset=placed.offset)
    await road.log.publish([Outgoing(TOPICS.campaign_requests, b"default/spring", codec.encode(wanted))])
    return wanted


async def test_recipients_of_an_unreadable_page_fail_once_their_number_is_known(road: CampaignRoad) -> None:
    await with_unreadable_page(road)
    leader = await road.leader()
    await road.settle(leader)
    assert {page: len(events) for page, events in road.ends().items()} == {1: 40}
    assert {event.kind for event in road.ends()[1]} == {EventKind.FAILED}
    await send_all(road)
    await road.settle(leader)
    assert road.campaign("spring").outcomes == {"sent": 252, "failed": 40}


async def test_a_new_leader_knows_which_pages_are_missing(road: CampaignRoad) -> None:
    await with_unreadable_page(road)
    await (await road.leader()).look(1)
    assert road.ends() == {}, "noted, and ended in the next look"
    await (await road.leader(epoch=2)).look(2)
    assert {page: len(events) for page, events in road.ends().items()} == {1: 40}
    await (await road.leader(epoch=3)).look(3)
    assert {page: len(events) for page, events in road.ends().items()} == {1: 40}, "once"


async def test_missing_pages_ended_twice_after_a_crash_count_once(road: CampaignRoad) -> None:
    await with_unreadable_page(road)
    await (await road.leader()).look(1)
    before = codec.decode(road.log.records(TOPICS.cursor)[-1].value, CampaignCursor)
    await (await road.leader(epoch=2)).look(2)
    await road.log.publish([Outgoing(TOPICS.cursor, b"default/spring", codec.encode(replace(before, epoch=3)))])
    await road.settle(await road.leader(epoch=3), epoch=3)
    assert len(road.ends()[1]) == 80
    assert road.campaign("spring").outcomes == {"failed": 40}


async def test_lost_pages_of_an_expired_campaign_end_as_expired_like_the_others(road: CampaignRoad) -> None:
    wanted = await accepted.accept(road.log, TOPICS, "spring", 1_100, expires_at_ms=START_MS)
    road.log.expire(TOPICS.audience, wanted.partition, wanted.first_offset + 2)
    await road.settle(await road.leader())
    state = road.campaign("spring")
    assert (state.status, state.outcomes) == (CampaignStatus.EXPIRED, {"expired": 1_100})
    assert state.finished_at is not None


async def test_what_a_leader_let_go_and_died_before_noting_counts_as_let_go_when_all_have_ended(
    road: CampaignRoad,
) -> None:
    """Its successor finds everything done before it has let anything go by itself."""
    await accepted.accept(road.log, TOPICS, "spring", 500)
    dying = await road.leader()
    road.log.only, road.log.fail = frozenset({TOPICS.cursor}), True
    with pytest.raises(Transient):
        await dying.look(1)
    road.log.fail = False
    await send_all(road)
    await road.read()
    await road.flow.publish_progress()
    await road.settle(await road.leader(epoch=2), epoch=2)
    told = [codec.decode(record.value, CampaignState) for record in road.log.records(TOPICS.campaign_state)]
    ended = [(state.status, state.released) for state in told if state.finished_at is not None]
    assert ended and set(ended) == {(CampaignStatus.PROCESSED, 500)}
