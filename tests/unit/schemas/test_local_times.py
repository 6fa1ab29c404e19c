"""When a wall time comes in a zone, and when a night ends: checked against zoneinfo read the other way round.

From an instant to the wall clock there is one answer and no rule to choose; so the judge walks along the minutes
of a clock and looks at what it shows, while the code goes from the wall time to the instant.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schemas import local_times

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
YEAR = 2026
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # by half an hour
    "America/Santiago",  # at midnight: a day begins at 01:00
    "America/Nuuk",  # the gap ends at midnight: the last hour of a day is missing
    "Antarctica/Troll",  # by two hours
)
DATE_LINE = (("Pacific/Apia", date(2011, 12, 30)), ("Pacific/Kwajalein", date(1993, 8, 21)))
"""Zones that went over the date line to the west, and the date they left out."""


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def at(instant_ms: int) -> str:
    return datetime.fromtimestamp(instant_ms / 1000, UTC).isoformat().removesuffix("+00:00")


@lru_cache(None)
def clock_changes(zone: str) -> Sequence[date]:
    """The dates of the year in whose course the clock is changed."""
    place = ZoneInfo(zone)
    noons = [datetime(YEAR, 1, 1, 12, tzinfo=place) + n * DAY for n in range(365)]
    return [later.date() for before, later in pairwise(noons) if before.utcoffset() != later.utcoffset()]


class Clock(NamedTuple):
    """What a wall clock shows in each minute around a clock change. so_far: the latest it has shown; ahead: the
    earliest that it will still show.
    """

    moments: Sequence[datetime]
    shown: Sequence[datetime]
    so_far: Sequence[datetime]
    ahead: Sequence[datetime]


@lru_cache(None)
def clock(zone: str, change: date) -> Clock:
    start, place = datetime.combine(change, time.min, UTC) - 5 * DAY, ZoneInfo(zone)
    moments = [start + n * MINUTE for n in range(11 * 1440)]
    shown = [moment.astimezone(place).replace(tzinfo=None) for moment in moments]
    return Clock(moments, shown, list(accumulate(shown, max)), list(accumulate(reversed(shown), min))[::-1])


def clock_around(zone: str, day: date) -> Clock:
    return clock(zone, min(clock_changes(zone), key=lambda change: abs(day - change)))


def first_shown(zone: str, day: date, wall: time) -> datetime:
    """The first moment at which the clock shows this or something later."""
    walk = clock_around(zone, day)
    return walk.moments[bisect_left(walk.so_far, datetime.combine(day, wall))]


def last_shown(zone: str, day: date, wall: time) -> datetime:
    """The last moment at which the clock shows this; if it never does, the first at which it shows something later."""
    walk, wanted = clock_around(zone, day), datetime.combine(day, wall)
    last = bisect_right(walk.ahead, wanted) - 1
    return walk.moments[last if walk.shown[last] == wanted else last + 1]


def nights(zone: str) -> Sequence[date]:
    """The dates around both clock changes."""
    return [change + n * DAY for change in clock_changes(zone) for n in (-1, 0, 1)]


def hhmm(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def of_day(minute: int) -> time:
    return time(minute // 60, minute % 60)


minutes = st.one_of(st.integers(0, 1439), st.integers(0, 200), st.integers(1370, 1439))
"""Of a day; clocks are changed in its first and last hours."""
zones = st.sampled_from(ZONES)
days = st.integers(0, 5)


@pytest.mark.parametrize(
    ("send_on", "wall", "zone", "expected"),
    [
        # in summer and in winter
        ("2026-07-01", "09:00", "Europe/Paris", "2026-07-01T07:00:00"),
        ("2026-12-01", "09:00", "Europe/Paris", "2026-12-01T08:00:00"),
        # a day before, at, and after the change
        ("2026-03-28", "08:00", "Europe/Paris", "2026-03-28T07:00:00"),
        ("2026-03-29", "08:00", "Europe/Paris", "2026-03-29T06:00:00"),
        ("2026-03-30", "08:00", "Europe/Paris", "2026-03-30T06:00:00"),
        # skipped: the first moment after; twice: the first
        ("2026-03-29", "02:30", "Europe/Paris", "2026-03-29T01:00:00"),
        ("2026-10-25", "02:30", "Europe/Paris", "2026-10-25T00:30:00"),
    ],
)
def test_a_wall_time_comes_at_its_own_instant_of_each_day(send_on: str, wall: str, zone: str, expected: str) -> None:
    """N29: in the zone that was meant. N30: by that day's offset, not by the one of the day it was wished."""
    assert at(local_times.due_ms(send_on, wall, zone, 0)) == expected


@pytest.mark.parametrize("zone", ZONES)
def test_each_of_the_six_zones_has_a_gap_and_a_repeat_in_the_year_tested(zone: str) -> None:
    walks = [clock(zone, change).shown for change in clock_changes(zone)]
    steps = [{after - before for before, after in pairwise(walk)} - {MINUTE} for walk in walks]
    assert sorted(len(step) for step in steps) == [1, 1]
    assert {max(step) > MINUTE for step in steps} == {True, False}


@given(zones, days, minutes)
@settings(max_examples=150, deadline=None)
def test_on_both_clock_change_nights_it_comes_when_the_clock_first_shows_it(zone: str, n: int, minute: int) -> None:
    day = nights(zone)[n]
    due = local_times.due_ms(day.isoformat(), hhmm(minute), zone, 0)
    assert at(due) == first_shown(zone, day, of_day(minute)).isoformat().removesuffix("+00:00")


@given(zones, days, minutes, minutes)
@settings(deadline=None)
def test_a_later_wall_time_of_a_day_never_comes_earlier(zone: str, n: int, one: int, other: int) -> None:
    day = nights(zone)[n].isoformat()
    dues = [local_times.due_ms(day, hhmm(minute), zone, 0) for minute in sorted((one, other))]
    assert dues == sorted(dues)


@pytest.mark.parametrize(("zone", "skipped"), DATE_LINE)
def test_on_a_date_that_a_zone_left_out_it_comes_as_the_next_date_begins(zone: str, skipped: date) -> None:
    following = local_times.due_ms((skipped + DAY).isoformat(), "00:00", zone, 0)
    assert {local_times.due_ms(skipped.isoformat(), wall, zone, 0) for wall in ("00:00", "08:00", "23:59")} == {
        following
    }


@pytest.mark.parametrize(("zone", "skipped"), DATE_LINE)
def test_a_morning_without_date_is_none_of_a_date_that_was_left_out(zone: str, skipped: date) -> None:
    evening_before = local_times.due_ms((skipped - DAY).isoformat(), "21:00", zone, 0)
    due = local_times.due_ms("", "08:00", zone, evening_before)
    assert due == local_times.due_ms((skipped + DAY).isoformat(), "08:00", zone, 0)


@given(zones, days, minutes, minutes)
@settings(max_examples=150, deadline=None)
def test_without_a_date_it_is_the_next_time_from_now(zone: str, n: int, minute: int, now_minute: int) -> None:
    day = nights(zone)[n]
    now = datetime.combine(day, of_day(now_minute), UTC)
    candidates = [first_shown(zone, day + later * DAY, of_day(minute)) for later in (-1, 0, 1, 2)]
    expected = min(moment for moment in candidates if moment >= now)
    due = local_times.due_ms("", hhmm(minute), zone, int(now.timestamp() * 1000))
    assert at(due) == expected.isoformat().removesuffix("+00:00")


def test_a_time_that_is_now_is_due_now_and_a_second_later_tomorrow() -> None:
    now_ms = ms("2026-07-01T06:00:00+00:00")
    assert local_times.due_ms("", "08:00", "Europe/Berlin", now_ms) == now_ms
    assert at(local_times.due_ms("", "08:00", "Europe/Berlin", now_ms + 1000)) == "2026-07-02T06:00:00"


@given(st.sampled_from(sorted(available_timezones())), st.dates(date(2026, 1, 1), date(2028, 12, 31)), minutes)
@settings(max_examples=300, deadline=None)
def test_no_zone_is_earlier_than_the_earliest_or_later_than_the_latest(zone: str, day: date, minute: int) -> None:
    now_ms = int(datetime.combine(day, time(11, 11), UTC).timestamp() * 1000)
    for send_on in (day.isoformat(), ""):
        wish = (send_on, hhmm(minute))
        due = local_times.due_ms(*wish, zone, now_ms)
        assert local_times.earliest_ms(*wish, now_ms) <= due <= local_times.latest_ms(*wish, now_ms)


def test_the_first_and_the_last_zone_are_the_bounds() -> None:
    wish = ("2026-07-01", "08:00")
    assert local_times.earliest_ms(*wish, 0) == local_times.due_ms(*wish, "Pacific/Kiritimati", 0)
    assert local_times.latest_ms(*wish, 0) == local_times.due_ms(*wish, "Etc/GMT+12", 0)


@pytest.mark.parametrize(
    ("now", "zone", "expected"),
    [
        ("2026-10-31T16:30:00+00:00", "Asia/Ho_Chi_Minh", "2026-11-01T01:00:00"),
        ("2026-10-31T16:30:00+00:00", "Europe/London", ""),
        ("2026-10-31T16:30:00+00:00", "America/New_York", ""),
        # a zone on the half hour
        ("2026-11-01T16:40:00+00:00", "Asia/Kolkata", "2026-11-02T02:30:00"),
        # to the second: the window's first moment is quiet, its last is not
        ("2026-07-01T20:00:00+00:00", "Europe/Berlin", "2026-07-02T06:00:00"),
        ("2026-07-01T19:59:59+00:00", "Europe/Berlin", ""),
        ("2026-07-02T05:59:59+00:00", "Europe/Berlin", "2026-07-02T06:00:00"),
        ("2026-07-02T06:00:00+00:00", "Europe/Berlin", ""),
    ],
)
def test_a_message_in_the_night_waits_for_the_morning_of_its_reader(now: str, zone: str, expected: str) -> None:
    """N32 among them: ten past ten in the evening in Kolkata."""
    until = local_times.quiet_until_ms("22:00", "08:00", zone, ms(now))
    assert (at(until) if until else "") == expected


@given(zones, days, minutes, minutes, minutes)
@settings(max_examples=300, deadline=None)
def test_a_window_is_quiet_from_its_first_minute_to_its_last_also_where_clocks_change(
    zone: str, n: int, begins: int, ends: int, now_minute: int
) -> None:
    assume(begins != ends)
    day = nights(zone)[n]
    now = datetime.combine(day, of_day(now_minute), UTC)
    windows = [
        (
            first_shown(zone, night, of_day(begins)),
            last_shown(zone, night + DAY if ends < begins else night, of_day(ends)),
        )
        for night in (day - 2 * DAY, day - DAY, day, day + DAY)
    ]
    expected = now
    for start, end in windows:
        if start <= expected < end:
            expected = end
    until = local_times.quiet_until_ms(hhmm(begins), hhmm(ends), zone, int(now.timestamp() * 1000))
    assert until == (0 if expected == now else int(expected.timestamp() * 1000))


@given(zones, days, minutes, minutes, minutes)
@settings(deadline=None)
def test_when_quiet_hours_end_they_have_ended(zone: str, n: int, begins: int, ends: int, now_minute: int) -> None:
    assume(begins != ends)
    window = (hhmm(begins), hhmm(ends), zone)
    now = datetime.combine(nights(zone)[n], of_day(now_minute), UTC)
    until = local_times.quiet_until_ms(*window, int(now.timestamp() * 1000))
    assert until == 0 or local_times.quiet_until_ms(*window, until) == 0


def test_whoever_sleeps_until_half_past_two_is_not_woken_before_the_second_one() -> None:
    half_past_two = [ms(f"2026-10-25T0{hour}:30:00+00:00") for hour in (0, 1)]
    assert local_times.quiet_until_ms("22:00", "02:30", "Europe/Berlin", half_past_two[0]) == half_past_two[1]


def test_quiet_hours_without_length_are_refused() -> None:
    with pytest.raises(ValueError, match="have no length"):
        local_times.quiet_until_ms("22:00", "22:00", "Europe/Berlin", 0)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "a\0b", "Europe", "x" * 300])
def test_an_unknown_zone_gives_way_to_the_default(zone: str) -> None:
    """N32: there, whose zone nobody knew was never written to."""
    assert local_times.known_zone(zone, "Europe/Berlin") == ("Europe/Berlin", False)


def test_a_known_zone_is_taken_and_nobodys_zone_is_the_default() -> None:
    assert local_times.known_zone("Asia/Kolkata", "Europe/Berlin") == ("Asia/Kolkata", True)
    assert local_times.known_zone("", "Europe/Berlin") == ("Europe/Berlin", True)
