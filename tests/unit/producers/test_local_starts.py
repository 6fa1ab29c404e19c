"""A campaign wanted in local time: when its pages must go, and which dates the door refuses, to the minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from producers import request_bodies, requests
from schemas import local_times
from schemas.errors import Refused
from schemas.messages import CampaignRequested, Channel
from schemas.policies import MessageClass, TemplatePolicy

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
POLICIES = {"news": TemplatePolicy("news", MessageClass.MARKETING, (Channel.EMAIL,))}


def accepted(local: str, date: str | None = None, **wish: object) -> CampaignRequested:
    start = {"local": local} if date is None else {"local": local, "date": date}
    body = request_bodies.CampaignBody.model_validate({"template": "news", "send_at": start, **wish})
    return requests.campaign(body, "spring", "default", POLICIES, NOW_MS, requests.Limits())


def refused(local: str, date: str | None = None, **wish: object) -> str:
    with pytest.raises(Refused) as refusal:
        accepted(local, date, **wish)
    return refusal.value.field


def test_its_pages_go_an_hour_before_the_time_comes_in_the_easternmost_zone() -> None:
    first_ms = local_times.due_ms("2026-12-05", "08:00", "Pacific/Kiritimati", NOW_MS)
    assert accepted("08:00", "2026-12-05").send_at_ms == first_ms - HOUR_MS


@pytest.mark.parametrize(
    ("local", "date"),
    [
        ("08:00", None),  # somewhere it comes within the hour
        ("02:30", "2026-12-01"),  # 30 minutes ahead in the far east
        ("08:00", "2026-11-30"),  # over there, still to come further west
    ],
)
def test_they_go_at_once_where_the_time_has_nearly_come_or_is_over_in_some_zone(local: str, date: str | None) -> None:
    request = accepted(local, date)
    assert (request.send_at_ms, request.send_at_local, request.send_on) == (0, local, date or "")


def test_a_time_that_is_over_in_every_zone_is_refused() -> None:
    """At 12:00 UTC it is 00:00 of this day in the last zone."""
    assert accepted("00:00", "2026-11-30").send_on == "2026-11-30"
    assert refused("23:59", "2026-11-29") == "send_at.date"


def test_a_first_zone_more_than_fourteen_days_ahead_is_refused() -> None:
    """At 12:00 UTC it is 02:00 of the next day in the first one."""
    limit = (NOW + timedelta(days=15)).date().isoformat()
    assert accepted("02:00", limit).send_on == limit
    assert refused("02:01", limit) == "send_at"


def test_it_expires_by_default_as_long_after_its_last_zone_as_its_template_says() -> None:
    last_ms = local_times.due_ms("2026-12-05", "08:00", "Etc/GMT+12", NOW_MS)
    assert accepted("08:00", "2026-12-05").expires_at_ms == last_ms + 3 * DAY_MS
    assert accepted("02:00", "2026-12-15").expires_at_ms <= NOW_MS + 21 * DAY_MS


def test_an_expiry_before_its_first_zone_is_refused() -> None:
    first = NOW + timedelta(days=4, hours=6)  # 08:00 of the fifth at UTC+14
    assert refused("08:00", "2026-12-05", expires_at=first.isoformat()) == "expires_at"
    assert accepted("08:00", "2026-12-05", expires_at=(first + timedelta(seconds=1)).isoformat()).expires_at_ms
