"""Ways to break what is wanted at a time of day: by whose clock, on which night, and by which part of a page."""

from __future__ import annotations

from tests.teeth.patch import Patch

_TIMES = "tests/unit/schemas/test_local_times.py::"
_WAITS = "tests/unit/streams/test_page_waits.py::"
_PAGES = "tests/integration/streams/test_fan_out_local_starts.py::"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="takes the old offset for a time that is skipped",
        promise=3,
        file="schemas/local_times.py",
        old="    return _gap_end(late, early, place) if late < early else early",
        new="    return early",
        test=_TIMES + "test_on_both_clock_change_nights_it_comes_when_the_clock_first_shows_it",
        suffers="On the last Sunday in March what was wanted at half past two comes after what was wanted at three.",
    ),
    Patch(
        name="ends the night at the first of two half past twos",
        promise=3,
        file="schemas/local_times.py",
        old="    return _gap_end(late, early, place) if late < early else late",
        new="    return _gap_end(late, early, place) if late < early else early",
        test=_TIMES + "test_whoever_sleeps_until_half_past_two_is_not_woken_before_the_second_one",
        suffers="On the last Sunday in October a country is woken an hour early.",
    ),
    Patch(
        name="reckons the next morning from the reading, not from the wish",
        promise=6,
        file="streams/page_waits.py",
        old="page.send_at_local, zone, page.accepted_at_ms)",
        new="page.send_at_local, zone, now_ms)",
        test=_WAITS + "test_everybody_goes_once_not_before_their_own_morning_and_within_half_an_hour_of_it",
        suffers="A page that is read a second too late waits for the next morning, and for the one after it.",
    ),
    Patch(
        name="plans and sends a page whose time has not come",
        promise=3,
        file="streams/page_waits.py",
        old="    if due_ms <= now_ms:",
        new="    if due_ms >= 0:",
        test=_PAGES + "test_those_due_go_at_once_and_the_others_wait_without_any_delivery",
        suffers="Half of the world gets the good morning in the middle of the night.",
    ),
    Patch(
        name="lets a page wait in as many parts as there are zones",
        promise=5,
        file="streams/page_waits.py",
        old="MOST_PARTS if page.hop == 0 else 1)",
        new="len(waits))",
        test=_WAITS + "test_a_page_waits_in_few_parts_and_comes_up_no_oftener_than_it_has_mornings",
        suffers="A campaign around the world fills the memory of the dispatcher with a million parts.",
    ),
    Patch(
        name="lets all of a morning go in the same second",
        promise=8,
        file="streams/page_waits.py",
        old="    over_ms = min(hold.SPREAD_MS, page.page * PAGE_RECIPIENTS * 1_000 // SPREAD_PER_S)",
        new="    over_ms = 0",
        test=_WAITS + "test_a_small_campaign_starts_at_its_moment_and_a_large_one_over_half_an_hour",
        suffers="At eight sharp a million telephones ask the shop's servers for the same page.",
    ),
    Patch(
        name="takes somebody who waits for somebody who was planned",
        promise=6,
        file="streams/fan_out.py",
        old="    return bool(view.deliveries) or view.status not in _OPEN",
        new='    return bool(view.deliveries) or view.status != "accepted"',
        test=_PAGES + "test_a_page_let_go_a_day_ago_still_puts_those_into_hold_who_have_no_plan",
        suffers="After a day's outage of fan-out a campaign never ends: some of its people wait for nothing.",
    ),
    Patch(
        name="lets parts of other slots lie under one id",
        promise=6,
        file="schemas/keys.py",
        old='''    named = f".{_short(','.join(map(str, slots)))[:8]}" if slots else ""''',
        new='    named = ""',
        test="tests/unit/retry_topics/test_hold.py::test_a_smaller_part_of_the_same_slots_takes_nobodys_place",
        suffers="A leader that dies while a campaign is split leaves people in no part at all.",
    ),
    Patch(
        name="lets a campaign's pages go when its first zone is due already",
        promise=5,
        file="producers/requests.py",
        old="    let_go_at_ms = _earliest_start_ms(message, now_ms) - LET_GO_AHEAD_MS",
        new="    let_go_at_ms = _latest_start_ms(message, now_ms)",
        test="tests/unit/producers/test_local_starts.py::"
        "test_its_pages_go_an_hour_before_the_time_comes_in_the_easternmost_zone",
        suffers="New Zealand's good morning comes at night, when America wakes up.",
    ),
)
