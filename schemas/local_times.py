"""Instants of wall-clock times: when "08:00" comes in somebody's own zone, and when their quiet hours end.

Pure; zones and their clock changes are those of `zoneinfo` (the system's, else the tzdata package).
Two nights a year a wall clock is no function of time. The rules here:

- A time that is skipped (clocks go forward) means the first moment after the gap, as cron runs what fell into it.
  RFC 5545 would keep the old offset: 02:30 would become 03:30 and come after 03:00. Here a later wish never comes
  earlier.
- A time that comes twice (clocks go back) means the first of the two (RFC 5545, 3.3.5). Quiet hours end at the
  second of the two: where it is not clear whether it is night, it is.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

EASTERNMOST = timedelta(hours=14)
"""A date begins there this long before UTC's (Pacific/Kiritimati) ..."""
WESTERNMOST = timedelta(hours=12)
"""... and there this long after (Etc/GMT+12)."""
NEXT_WITHIN_MS = 26 * 3_600_000
"""A time of day comes again within this: the longest day has 26 hours (Antarctica/Troll goes back by two)."""
REMEMBERED = 4_096
"""A campaign asks for the same moment once for each of its recipients; there are about 600 zones."""
_DAY = timedelta(days=1)
_SECOND_MS = 1_000
_NIGHTS_JOINED = 4
"""Windows that begin before the last one ended, one after the other: only a clock change makes two of them do so."""


@lru_cache(REMEMBERED)
def due_ms(send_on: str, send_at_local: str, zone: str, now_ms: int) -> int:
    """The instant of a wall time ("HH:MM") in a zone that is known.

    send_on: the date ("YYYY-MM-DD"), whose instant may lie in the past. "": the next such time that is not before
    now_ms, so two readings of one wish must give the moment of the wish, not of the reading.
    """
    wall, place = _time(send_at_local), _place(zone)
    if send_on:
        return _ms(_first(date.fromisoformat(send_on), wall, place))
    now = _instant(now_ms)
    day = now.astimezone(place).date()
    while (due := _first(day, wall, place)) < now or not _exists(day, place):
        day += _DAY
    return _ms(due)


@lru_cache(REMEMBERED)
def is_known(zone: str) -> bool:
    """Whether there is such a zone, by its name in the IANA data base."""
    try:
        _place(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def known_zone(wanted: str, default: str) -> tuple[str, bool]:
    """The zone to reckon in, and whether it is the one that was wanted: an unknown one gives way to the default.

    wanted "": nobody said any, so the default is right.
    """
    if not wanted:
        return default, True
    return (wanted, True) if is_known(wanted) else (default, False)


def local_date(zone: str, now_ms: int) -> str:
    """The date ("YYYY-MM-DD") that a wall calendar shows in a zone that is known."""
    return _date(zone, now_ms // _SECOND_MS)


def earliest_ms(send_on: str, send_at_local: str, now_ms: int) -> int:
    """No zone has this wish's moment before; at least now_ms when it has no date."""
    return _everywhere_ms(send_on, send_at_local, -EASTERNMOST) if send_on else now_ms


def latest_ms(send_on: str, send_at_local: str, now_ms: int) -> int:
    """No zone has this wish's moment after."""
    return _everywhere_ms(send_on, send_at_local, WESTERNMOST) if send_on else now_ms + NEXT_WITHIN_MS


def quiet_until_ms(quiet_from: str, quiet_to: str, zone: str, now_ms: int) -> int:
    """0 outside of quiet hours ("HH:MM" to "HH:MM" in a known zone); else when they end.

    A window over midnight is the normal case. Both times equal: raises ValueError, as nobody could ever be reached
    or the window were empty.
    """
    begins, ends, place = _time(quiet_from), _time(quiet_to), _place(zone)
    if begins == ends:
        raise ValueError(f"quiet hours from {quiet_from} to {quiet_to} have no length")
    until = now = _instant(now_ms)
    for _ in range(_NIGHTS_JOINED):
        following = _quiet_end(begins, ends, place, until)
        if following is None:
            break
        until = following
    return 0 if until == now else _ms(until)


def _quiet_end(begins: time, ends: time, place: ZoneInfo, now: datetime) -> datetime | None:
    """The end of the window in which this moment lies."""
    today = now.astimezone(place).date()
    for day in (today - _DAY, today):
        end = _last(day + _DAY if ends < begins else day, ends, place)
        if _first(day, begins, place) <= now < end:
            return end
    return None


@lru_cache(REMEMBERED)
def _date(zone: str, now_s: int) -> str:
    """The same for all of whom a worker sends something to in this second: dates begin with a second everywhere."""
    return _instant(now_s * _SECOND_MS).astimezone(_place(zone)).date().isoformat()


@lru_cache(REMEMBERED)
def _first(day: date, wall: time, place: ZoneInfo) -> datetime:
    """The first moment at which this wall time has come, in UTC."""
    early, late = _readings(day, wall, place)
    return _gap_end(late, early, place) if late < early else early


@lru_cache(REMEMBERED)
def _last(day: date, wall: time, place: ZoneInfo) -> datetime:
    """The last moment at which it comes."""
    early, late = _readings(day, wall, place)
    return _gap_end(late, early, place) if late < early else late


def _readings(day: date, wall: time, place: ZoneInfo) -> tuple[datetime, datetime]:
    """By the offset before a clock change and by the one after (PEP 495): of a skipped time the second is earlier."""
    early, late = (datetime.combine(day, wall.replace(fold=fold), place).astimezone(UTC) for fold in (0, 1))
    return early, late


def _gap_end(before: datetime, after: datetime, place: ZoneInfo) -> datetime:
    """The moment of the clock change between two moments; zones change on whole seconds."""
    old = before.astimezone(place).utcoffset()
    low, high = 0, int((after - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if (before + timedelta(seconds=middle)).astimezone(place).utcoffset() == old:
            low = middle
        else:
            high = middle
    return before + timedelta(seconds=high)


def _exists(day: date, place: ZoneInfo) -> bool:
    """False for a date left out where a zone went over the date line: it has no morning that could be meant."""
    return _first(day, time.min, place) != _first(day, time(23, 59), place)


def _everywhere_ms(send_on: str, send_at_local: str, offset: timedelta) -> int:
    return _ms(datetime.combine(date.fromisoformat(send_on), _time(send_at_local), UTC) + offset)


@lru_cache(REMEMBERED)
def _place(zone: str) -> ZoneInfo:
    return ZoneInfo(zone)


def _time(text: str) -> time:
    hour, minute = text.split(":")
    return time(int(hour), int(minute))


def _instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
