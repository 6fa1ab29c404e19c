"""What counts as waiting in a lane, so that dispatch neither floods nor starves it."""

from schemas.messages import CampaignCursor, CampaignProgress
from schemas.records import Outgoing
from streams import backlog
from streams.backlog import Backlog, OnTheirWay, Partition, Stuck
from streams.campaigns import Campaign
from tests.doubles.campaign_road import QuietTrips
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_log import MemoryLog
from tests.doubles.status_road import TOPICS

RATE = 100.0


def test_all_that_workers_have_not_finished_counts() -> None:
    assert Stuck().counted("push.bulk", {0: Partition(30, 5), 1: Partition(12, 9)}, RATE, 0.0) == 42


def test_a_partition_that_stands_still_beside_a_working_one_is_left_out() -> None:
    stuck = Stuck()
    for now_s in range(4):
        counted = stuck.counted("push.bulk", {0: Partition(30, 5), 1: Partition(12, now_s)}, RATE, now_s)
    assert counted == 12


def test_it_counts_again_as_soon_as_it_moves() -> None:
    stuck = Stuck()
    for now_s in range(4):
        stuck.counted("push.bulk", {0: Partition(30, 5), 1: Partition(12, now_s)}, RATE, now_s)
    assert stuck.counted("push.bulk", {0: Partition(29, 6), 1: Partition(12, 9)}, RATE, 4) == 41


def test_it_counts_again_once_a_minute_of_the_lanes_rate_lies_in_it() -> None:
    stuck = Stuck()
    for now_s in range(4):
        counted = stuck.counted("push.bulk", {0: Partition(6_001, 5), 1: Partition(12, now_s)}, RATE, now_s)
    assert counted == 6_013


def test_while_nobody_works_at_all_the_lane_is_not_filled_further() -> None:
    stuck = Stuck()
    for now_s in range(9):
        counted = stuck.counted("push.bulk", {0: Partition(30, 5), 1: Partition(12, 0)}, RATE, now_s)
    assert counted == 42


def test_an_empty_partition_is_not_stuck() -> None:
    stuck = Stuck()
    for now_s in range(9):
        stuck.counted("push.bulk", {0: Partition(0, 5), 1: Partition(12, now_s)}, RATE, now_s)
    assert stuck.counted("push.bulk", {0: Partition(30, 5), 1: Partition(12, 9)}, RATE, 9) == 42


def test_before_any_worker_spoke_everything_kept_in_the_lane_counts() -> None:
    assert backlog.partition(first=100, end=160, progress=None) == Partition(60, 100)


def test_what_is_done_above_the_watermark_does_not_count() -> None:
    assert backlog.partition(first=100, end=160, progress=(120, 15)) == Partition(25, 135)


def test_a_watermark_below_the_logs_start_speaks_of_records_long_gone() -> None:
    assert backlog.partition(first=100, end=160, progress=(90, 3)) == Partition(60, 100)


def campaign(released: int, planned: int = 0) -> Campaign:
    progress = CampaignProgress("default", "spring", 0, 1, planned, 0, 0, 0, {}, {}, 0)
    cursor = CampaignCursor("default", "spring", 1, 4, 0, released, 0)
    return Campaign("default/spring", cursor=cursor, progress={0: progress})


def on_their_way(*marks: str) -> OnTheirWay:
    """250 recipients for each mark, let go at 0.0."""
    way = OnTheirWay()
    for mark in marks:
        way.add(campaign(0), mark, 250, 0.0)
    return way


def test_pages_let_go_are_expected_in_the_lane_until_fan_out_has_marked_them() -> None:
    way = on_their_way("a", "b", "c", "d")
    assert way.recipients(campaign(1_000)) == 1_000
    way.arrived({"a", "b", "d"}, 1.0)
    assert way.marks() == ["c"]
    assert way.recipients(campaign(1_000)) == 250
    way.arrived({"c"}, 2.0)
    assert way.recipients(campaign(1_000)) == 0


def test_when_the_marks_are_lost_the_plans_in_the_rows_tell() -> None:
    assert on_their_way("a", "b", "c", "d").recipients(campaign(1_000, planned=900)) == 100


def test_a_page_that_others_overtook_is_not_expected_for_ever() -> None:
    way = on_their_way("a", "b")
    way.add(campaign(0), "later", 250, 10.0)
    way.arrived({"later"}, 29.0)
    assert way.recipients(campaign(1_000)) == 500
    way.arrived(set(), 31.0)
    assert way.recipients(campaign(1_000)) == 0


def test_while_nobody_fans_out_anything_pages_do_not_heap_up() -> None:
    way = on_their_way("a", "b")
    way.arrived(set(), 299.0)
    assert way.recipients(campaign(500)) == 500
    way.arrived(set(), 301.0)
    assert way.recipients(campaign(500)) == 0


def test_whoever_leads_again_begins_anew() -> None:
    way = on_their_way("a", "b")
    way.start_over()
    assert way.marks() == []


LANE, TIER = TOPICS.lane("push", "bulk"), TOPICS.tier("push", "bulk", "10s")


async def test_what_waits_in_tiers_counts_beyond_five_seconds_of_rate() -> None:
    clock, log = ManualClock(), MemoryLog(1)
    seen = Backlog(log, QuietTrips(), {LANE: 1, TIER: 1}, clock, {LANE: (TIER,)})
    await log.publish([Outgoing(LANE, None, b"")] * 40 + [Outgoing(TIER, None, b"")] * 500)
    assert (await seen.lying({LANE: RATE}))[LANE] == 40
    await log.publish([Outgoing(TIER, None, b"")] * 60)
    clock.advance(1_000)
    assert (await seen.lying({LANE: RATE}))[LANE] == 100
