"""Events that others publish themselves meet the API's rules when they are routed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producers import request_bodies, requests
from schemas.errors import Refused
from schemas.messages import Channel, Contact, Device, NotificationRequested
from tests.doubles.api import POLICIES

NOW_MS = 1_796_000_000_000
HOUR_MS = 3_600_000
EVENT = NotificationRequested(tenant="default", event_id="e1", user_id="u1", template="code")
LIMITS = requests.Limits(schedules=True)


def check(event: NotificationRequested, now_ms: int = NOW_MS) -> NotificationRequested:
    return requests.check_event(event, POLICIES, now_ms, LIMITS)


def test_times_that_are_not_set_follow_from_the_record() -> None:
    checked = check(EVENT)
    assert checked == replace(EVENT, accepted_at_ms=NOW_MS, expires_at_ms=NOW_MS + 20 * HOUR_MS)


def test_a_second_reading_gives_the_same() -> None:
    assert check(check(EVENT), NOW_MS + HOUR_MS) == check(EVENT)


def test_what_the_api_accepted_passes_unchanged() -> None:
    raw = b'{"user_id":42,"template":"code","params":{"b":1,"a":null},"channels":["sms"],"to":{"locale":"de"}}'
    accepted = requests.notification(raw, "k", "default", POLICIES, NOW_MS, LIMITS)
    assert check(accepted, NOW_MS + 5) == accepted


def test_without_an_event_id_there_is_no_key_to_tell_repeats_by() -> None:
    with pytest.raises(Refused, match="must carry an event_id") as refusal:
        check(replace(EVENT, event_id=""))
    assert refusal.value.field == "event_id"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"event_id": "x" * 129}, "event_id"),
        ({"user_id": ""}, "user_id"),
        ({"user_id": "a\nb"}, "user_id"),
        ({"template": "nope"}, "template"),
        ({"params": "[]"}, "params"),
        ({"params": "{"}, "params"),
        ({"params": '{"a":"' + "x" * 65_536 + '"}'}, "params"),
        ({"to": Contact(devices=(Device("d", "t", "ios", registered_at_ms=2**60),))}, "to.devices.registered_at_ms"),
        ({"send_at_local": "08:00", "send_on": "0001-01-01"}, "send_at.date"),
        ({"priority": "urgent"}, "priority"),
        ({"channels": (Channel.PUSH,)}, "channels"),
        ({"to": Contact(email="nobody")}, "to.email"),
        ({"to": Contact(phone="12")}, "to.phone"),
        ({"to": Contact(devices=(Device("d", "", "ios"),))}, "to.devices.0.token"),
        ({"to": Contact(time_zone="a\nb")}, "to.time_zone"),
        ({"send_at_local": "8 o'clock"}, "send_at_local"),
        ({"send_at_local": "08:00", "send_on": "soon"}, "send_on"),
        ({"send_at_ms": NOW_MS + 15 * 24 * HOUR_MS}, "send_at"),
        ({"expires_at_ms": NOW_MS}, "expires_at"),
        ({"expires_at_ms": NOW_MS + 22 * 24 * HOUR_MS}, "expires_at"),
    ],
)
def test_a_wrong_event_is_refused_by_field(change: dict[str, object], field: str) -> None:
    with pytest.raises(Refused) as refusal:
        check(replace(EVENT, **change))  # type: ignore[arg-type]
    assert refusal.value.field == field


def test_an_unknown_zone_of_a_published_event_is_left_to_routing() -> None:
    checked = check(replace(EVENT, to=Contact(time_zone="Europe/Atlantis")))
    assert checked.to == Contact(time_zone="Europe/Atlantis")


def test_a_publisher_cannot_date_its_event_into_the_future() -> None:
    assert check(replace(EVENT, accepted_at_ms=NOW_MS + HOUR_MS)).accepted_at_ms == NOW_MS


def test_addresses_are_brought_into_one_form() -> None:
    checked = check(replace(EVENT, to=Contact(email="Jo@EXAMPLE.org", phone="+49 170 1234567")))
    assert checked.to == Contact(email="Jo@example.org", phone="+491701234567")


def test_sending_later_is_refused_by_a_release_that_cannot_keep_it() -> None:
    for change in ({"send_at_ms": NOW_MS + 1}, {"send_at_local": "08:00"}):
        with pytest.raises(Refused, match="send_at"):
            requests.check_event(replace(EVENT, **change), POLICIES, NOW_MS, requests.Limits())
    past = replace(EVENT, send_at_ms=NOW_MS - HOUR_MS)
    assert requests.check_event(past, POLICIES, NOW_MS, requests.Limits()).send_at_ms == past.send_at_ms


def test_a_campaign_expires_within_21_days_even_when_it_starts_late() -> None:
    body = request_bodies.CampaignBody.model_validate({"template": "news", "send_at": "2026-12-13T00:00:00Z"})
    message = requests.campaign(body, "c", "default", POLICIES, NOW_MS, LIMITS)
    assert message.expires_at_ms == message.send_at_ms + 72 * HOUR_MS
    local = request_bodies.CampaignBody.model_validate(
        {"template": "news", "send_at": {"local": "08:00", "date": "2026-12-12"}}
    )
    assert (
        requests.campaign(local, "c", "default", POLICIES, NOW_MS, LIMITS).expires_at_ms <= NOW_MS + 21 * 24 * HOUR_MS
    )
