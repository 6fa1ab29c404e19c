"""Nobody is written to in their quiet hours, nobody else waits, and whoever waited is reached within half an hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from retry_topics import hold
from schemas import local_times
from schemas.messages import Channel
from schemas.policies import OFF, MessageClass, QuietWindow, TemplatePolicy
from schemas.quiet_hours import Nights, QuietHours

NIGHT = QuietWindow("22:00", "08:00")
SIESTA = QuietWindow("12:30", "14:00")
OFFER = TemplatePolicy("offer", MessageClass.MARKETING, (Channel.PUSH,))
MINUTE_MS = 60_000
ZONES = (
    "Asia/Ho_Chi_Minh",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "Asia/Kathmandu",
)
CHANGES = (
    "2026-03-28T12:00",
    "2026-10-24T12:00",
    "2026-03-07T20:00",
    "2026-10-31T20:00",
    "2026-04-03T20:00",
    "2026-07-01",
)

times = st.integers(0, 24 * 60 - 1).map(lambda minute: f"{minute // 60:02}:{minute % 60:02}")
moments = st.builds(
    lambda day, second: ms(day) + second * 1_000, st.sampled_from(CHANGES), st.integers(0, int(2.5 * 24 * 3_600))
)
delays = st.integers(0, hold.SPREAD_MS - 1)


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def shown(zone: str, at_ms: int) -> str:
    """The clock on the wall."""
    return f"{datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)):%H:%M}"


def is_inside(window: QuietWindow, clock: str) -> bool:
    if window.begins < window.ends:
        return window.begins <= clock < window.ends
    return clock >= window.begins or clock < window.ends


def changes_its_clock(zone: str, at_ms: int) -> bool:
    around = [datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)) + timedelta(hours=h) for h in (-26, 26)]
    return around[0].utcoffset() != around[1].utcoffset()


@pytest.mark.parametrize(
    ("zone", "until"), [("Asia/Ho_Chi_Minh", "2026-11-01T01:00"), ("Europe/London", ""), ("America/New_York", "")]
)
def test_a_message_of_half_past_four_waits_where_it_is_night_and_goes_at_once_where_it_is_not(
    zone: str, until: str
) -> None:
    nights = QuietHours({"shop": NIGHT}, {}).of("shop", OFFER)
    assert nights.until_ms(zone, ms("2026-10-31T16:30")) == (ms(until) if until else 0)


@pytest.mark.parametrize(
    ("zone", "night", "morning"),
    [
        ("Europe/Berlin", "2026-03-28T23:30", "2026-03-29T06:00"),  # clocks go forward: the night is an hour shorter
        ("Europe/Berlin", "2026-10-24T21:30", "2026-10-25T07:00"),  # clocks go back: it is an hour longer
    ],
)
def test_on_both_clock_change_nights_the_morning_is_eight_by_the_clock_on_the_wall(
    zone: str, night: str, morning: str
) -> None:
    assert Nights(NIGHT, zone).until_ms("", ms(night)) == ms(morning)


def test_a_template_wins_over_its_tenant_and_transactional_goes_at_any_hour() -> None:
    quiet = QuietHours({"shop": NIGHT}, {"shop": "Europe/Berlin"})

    def window(name: str, kind: MessageClass, own: object, tenant: str = "shop") -> QuietWindow | None:
        return quiet.of(tenant, TemplatePolicy(name, kind, (Channel.PUSH,), quiet_hours=own)).window  # type: ignore[arg-type]

    marketing, transactional = MessageClass.MARKETING, MessageClass.TRANSACTIONAL
    assert window("as the tenant", marketing, None) == NIGHT
    assert window("its own", marketing, SIESTA) == SIESTA
    assert window("never", marketing, OFF) is None
    assert window("code", transactional, None) is None
    assert window("its own", marketing, SIESTA, "a tenant without any") == SIESTA
    assert window("as the tenant", marketing, None, "a tenant without any") is None


def test_whose_zone_nobody_knows_sleeps_when_the_tenant_does() -> None:
    """N32"""
    nights = QuietHours({"shop": NIGHT}, {"shop": "Asia/Tokyo"}).of("shop", OFFER)
    at_ms, morning = ms("2026-07-01T14:00"), ms("2026-07-01T23:00")
    assert [nights.until_ms(zone, at_ms) for zone in ("", "Mars/Olympus", "Asia/Tokyo", "UTC")] == [morning] * 3 + [0]
    assert QuietHours({}, {}).of("shop", OFFER).zone == "UTC"


@given(st.sampled_from(ZONES), times, times, moments, delays)
@settings(max_examples=400, deadline=None)
def test_nobody_is_reached_inside_the_window_or_later_than_half_an_hour_after_it(
    zone: str, begins: str, ends: str, at_ms: int, delay_ms: int
) -> None:
    assume(begins != ends)
    window = QuietWindow(begins, ends)
    nights = Nights(window, "UTC")
    until_ms, end_ms = nights.until_ms(zone, at_ms, delay_ms), nights.until_ms(zone, at_ms)
    goes_ms = until_ms or at_ms
    assert not is_inside(window, shown(zone, goes_ms)) and nights.until_ms(zone, goes_ms) == 0
    assert bool(until_ms) == bool(end_ms)
    assert end_ms <= until_ms <= end_ms + delay_ms, "the spread of half an hour, and never before the end"


@given(st.sampled_from(ZONES), times, times, moments)
@settings(max_examples=400, deadline=None)
def test_nobody_outside_the_window_waits(zone: str, begins: str, ends: str, at_ms: int) -> None:
    """But where the clock shows a time twice, and it is not clear whether it is night."""
    assume(begins != ends and not changes_its_clock(zone, at_ms))
    window = QuietWindow(begins, ends)
    assert (Nights(window, "UTC").until_ms(zone, at_ms) > 0) == is_inside(window, shown(zone, at_ms))


def test_after_a_night_everybody_is_spread_over_half_an_hour_and_over_less_where_the_day_is_short() -> None:
    at_ms = ms("2026-07-01T03:00")
    names = [f"user-{number}" for number in range(2_000)]

    def spread(window: QuietWindow) -> list[int]:
        nights = Nights(window, "UTC")
        end_ms = nights.until_ms("", at_ms)
        return [(nights.until_ms("", at_ms, hold.spread_ms(name)) - end_ms) // MINUTE_MS for name in names]

    assert set(spread(NIGHT)) == set(range(30))
    assert set(spread(QuietWindow("08:10", "08:00"))) == set(range(5)), "half of the ten minutes that there are"
    shorter = QuietHours({"shop": NIGHT}, {}, spread_ms=MINUTE_MS).of("shop", OFFER)
    assert shorter.until_ms("", at_ms, 90_000) == shorter.until_ms("", at_ms) + 30_000


def test_the_window_is_reckoned_once_a_second_however_many_ask() -> None:
    """A worker asks for each of its thousands of calls a second."""
    before = local_times.quiet_until_ms
    asked: list[int] = []

    def counting(begins: str, ends: str, zone: str, now_ms: int) -> int:
        asked.append(now_ms)
        return before(begins, ends, zone, now_ms)

    nights = Nights(QuietWindow("03:17", "03:19"), "UTC")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(local_times, "quiet_until_ms", counting)
        for at_ms in range(5_000, 8_000):
            nights.until_ms("Asia/Tokyo", at_ms)
    assert asked == [5_000, 6_000, 7_000]
