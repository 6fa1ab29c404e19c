"""When a campaign is complete, and what it is called."""

from dataclasses import replace
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import codec
from schemas.messages import (
    CampaignControl,
    CampaignCursor,
    CampaignOrder,
    CampaignProgress,
    CampaignState,
    CampaignStatus,
    Message,
)
from schemas.records import Record
from schemas.topics import Topics
from streams import campaigns
from streams.campaigns import Campaign
from tests.doubles.campaigns import request
from tests.doubles.manual_clock import START_MS

REQUEST = request(recipients=250)
TOPICS = Topics()


def record(topic: str, message: Message) -> Record:
    return Record(topic, 0, 0, b"default/spring", codec.encode(message), (), 0)


def progress(partition: int, **outcomes: int) -> CampaignProgress:
    finished = sum(outcomes.values())
    return CampaignProgress("default", "spring", partition, 1, finished, finished, 0, 0, outcomes, {}, 0)


def campaign(*vectors: CampaignProgress, released: bool = True) -> Campaign:
    cursor = CampaignCursor("default", "spring", 1, int(released), 1, 250 * released, START_MS)
    return Campaign("default/spring", REQUEST, cursor, progress={vector.partition: vector for vector in vectors})


def told(found: Campaign, now_ms: int = START_MS) -> CampaignState:
    return campaigns.state(found, REQUEST, 1, now_ms)


@settings(deadline=None)
@given(st.lists(st.integers(0, 90), min_size=1, max_size=4), st.integers(0, 40))
def test_it_is_complete_exactly_when_all_recipients_of_all_partitions_are(sent: list[int], failed: int) -> None:
    vectors = [progress(number, sent=count) for number, count in enumerate(sent)] + [progress(9, failed=failed)]
    state = told(campaign(*vectors))
    assert state.finished == sum(sent) + failed
    assert (state.finished_at is not None) == (state.finished >= 250)
    if state.finished < 250:
        assert state.status is CampaignStatus.RUNNING


def test_unconfirmed_sends_make_it_partially_processed() -> None:
    state = told(campaign(progress(0, delivered=249, unconfirmed=1)))
    assert state.status is CampaignStatus.PARTIALLY_PROCESSED


def test_suppressed_recipients_do_not_make_it_less_than_processed() -> None:
    assert told(campaign(progress(0, sent=200, suppressed=50))).status is CampaignStatus.PROCESSED


def test_the_first_completion_stays() -> None:
    found = campaign(progress(0, sent=250))
    found.state = told(found, START_MS)
    found.progress[0] = progress(0, sent=100)
    later = told(found, START_MS + 60_000)
    assert (later.status, later.finished_at, later.finished) == (CampaignStatus.PROCESSED, START_MS, 100)


def test_a_cancel_wins_over_a_pause_and_over_a_later_resume() -> None:
    found = campaign(released=False)
    pause = CampaignControl("default", "spring", CampaignOrder.PAUSED, 0, START_MS)
    found.orders.take(pause)
    assert told(found).status is CampaignStatus.PAUSED
    found.orders.take(replace(pause, order=CampaignOrder.CANCELLED))
    found.orders.take(replace(pause, order=CampaignOrder.RUNNING))
    assert told(found).status is CampaignStatus.CANCELLED


def test_a_campaign_whose_pages_are_all_out_does_not_expire_as_a_whole() -> None:
    late = REQUEST.expires_at_ms + 1
    assert told(campaign(progress(0, sent=10)), late).status is CampaignStatus.RUNNING
    assert told(campaign(released=False), late).status is CampaignStatus.EXPIRED


def test_once_expired_it_stays_so_while_its_last_recipients_finish() -> None:
    found = campaign(released=False)
    found.state = told(found, REQUEST.expires_at_ms)
    found.cursor = CampaignCursor("default", "spring", 1, 1, 1, 250, START_MS)
    found.progress[0] = progress(0, expired=250)
    assert told(found, REQUEST.expires_at_ms + 9).status is CampaignStatus.EXPIRED


def test_a_pace_ordered_later_replaces_that_of_the_request() -> None:
    found = campaign()
    found.request = replace(REQUEST, pace_per_s=50)
    assert found.pace_per_s == 50
    found.orders.take(CampaignControl("default", "spring", CampaignOrder.PACE, 10, START_MS))
    assert found.pace_per_s == 10
    found.orders.take(CampaignControl("default", "spring", CampaignOrder.PACE, 0, START_MS))
    assert found.pace_per_s == 0, "the limit was lifted"


def test_orders_of_different_kinds_do_not_undo_each_other_in_any_order() -> None:
    paused = CampaignControl("default", "spring", CampaignOrder.PAUSED, 0, START_MS)
    pace = CampaignControl("default", "spring", CampaignOrder.PACE, 10, START_MS)
    weight = CampaignControl("default", "spring", CampaignOrder.WEIGHT, 0, START_MS, 7)
    for orders in permutations((paused, pace, weight)):
        known = campaigns.Campaigns(TOPICS, {})
        known.on_record(record(TOPICS.campaign_requests, replace(REQUEST, weight=3)))
        for order in orders:
            known.on_record(record(TOPICS.campaign_control, order))
        [(found, _)] = known.unfinished()
        assert (found.is_paused, found.pace_per_s, found.weight) == (True, 10, 7)


def test_what_an_idle_campaign_waits_for_is_told() -> None:
    found = campaign(released=False)
    found.state = told(found)
    later = START_MS + 11_000
    assert told(found, START_MS + 9_000).waits_for is None, "a look, a page and its sends take seconds"
    assert told(found, later).waits_for == "room"
    found.has_provider = False
    assert told(found, later).waits_for == "provider"
    found.orders.take(CampaignControl("default", "spring", CampaignOrder.PAUSED, 0, START_MS))
    assert told(found).waits_for == "resume"


def test_a_page_without_a_plan_waits_for_fan_out_and_one_with_plans_for_the_senders() -> None:
    found = campaign(progress(0, sent=0))
    found.state = told(found)
    later = START_MS + 11_000
    assert told(found, later).waits_for == "fan_out"
    found.progress[0] = replace(progress(0, sent=0), planned=250)
    assert told(found, later).waits_for == "senders"
    found.progress[0] = replace(progress(0, sent=1), planned=250)
    moved = told(found, later)
    assert (moved.waits_for, moved.progress_at) == (None, later)


def test_a_pause_of_hours_is_no_stall_after_the_resume() -> None:
    found = campaign()
    found.state = told(found)
    pause = CampaignControl("default", "spring", CampaignOrder.PAUSED, 0, START_MS)
    found.orders.take(pause)
    found.state = told(found, START_MS + 1_000)
    found.orders.take(replace(pause, order=CampaignOrder.RUNNING))
    assert told(found, START_MS + 7_200_000).progress_at == START_MS + 7_200_000


def test_only_what_people_see_makes_news() -> None:
    state = told(campaign(progress(0, sent=10)))
    assert not campaigns.differs(state, replace(state, epoch=2, version=9, at=START_MS + 5))
    assert campaigns.differs(state, replace(state, sent=1))
