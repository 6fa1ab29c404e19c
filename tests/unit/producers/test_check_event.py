"""Events that others publish themselves meet the API's rules when they are routed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import orjson
import pytest

from producers import request_bodies, requests
from schemas.errors import Refused
from schemas.messages import Channel, Contact, Device, NotificationRequested
from tests.doubles.api import POLICIES

NOW_MS = 1_796_000_000_000
HOUR_MS = 3_600_000
EVENT = NotificationRequested(tenant="default", event_id="e1", user_id="u1", template="code")
LIMITS = requests.Limits()


def registered_at(at_ms: int) -> Contact:
    return Contact(devices=(Device("d", "t", "ios", registered_at_ms=at_ms),))


def check(event: NotificationRequested, now_ms: int = NOW_MS) -> NotificationRequested:
    return requests.check_event(event, POLICIES, now_ms, LIMITS)


def test_times_that_are_not_set_follow_from_the_record() -> None:
    checked = check(EVENT)
    assert checked == replace(EVENT, accepted_at_ms=NOW_MS, expires_at_ms=NOW_MS + 20 * HOUR_MS)


def test_a_second_reading_gives_the_same() -> None:
    assert check(check(EVENT), NOW_MS + HOUR_MS) == check(EVENT)


def test_a_phone_whose_clock_runs_ahead_by_hours_is_no_fault_of_the_event() -> None:
    ahead = registered_at(NOW_MS + 23 * HOUR_MS)
    assert check(replace(EVENT, to=ahead)).to == ahead


def test_a_device_registered_since_the_publisher_accepted_the_event_is_none_to_refuse_when_it_is_moved() -> None:
    """The second reading goes by the time of acceptance, which may lie days before that of the first record."""
    phone = registered_at(NOW_MS)
    moved = replace(EVENT, to=phone, accepted_at_ms=NOW_MS - 48 * HOUR_MS, origin_row="n.0a1b2c3d.0.1")
    assert check(moved, NOW_MS - 48 * HOUR_MS).to == phone


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
        ({"to": registered_at(2**60)}, "to.devices.registered_at_ms"),
        ({"to": registered_at(-1)}, "to.devices.0.registered_at"),
        ({"to": registered_at(NOW_MS + 25 * HOUR_MS)}, "to.devices.0.registered_at"),
        ({"send_at_local": "08:00", "send_on": "0001-01-01"}, "send_at.date"),
        ({"send_at_local": "08:00", "send_on": "9999-12-31"}, "send_at"),
        ({"send_on": "2026-12-01"}, "send_at_local"),
        ({"send_at_local": "08:00", "send_at_ms": NOW_MS + 1}, "send_at_local"),
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


def test_an_event_whose_start_passed_on_the_way_goes_out_now() -> None:
    late = replace(EVENT, send_at_ms=NOW_MS - HOUR_MS)
    assert check(late) == replace(late, accepted_at_ms=NOW_MS, expires_at_ms=NOW_MS + 20 * HOUR_MS)


@pytest.mark.parametrize(("behind_ms", "passes"), [(requests.JUST_NOW_MS, True), (requests.JUST_NOW_MS + 1, False)])
def test_a_start_in_the_past_is_refused_at_the_door_unless_clocks_or_repeats_explain_it(
    behind_ms: int, passes: bool
) -> None:
    at = datetime.fromtimestamp((NOW_MS - behind_ms) / 1000, UTC).isoformat()
    raw = orjson.dumps({"user_id": "42", "template": "code", "send_at": at})
    if passes:
        assert requests.notification(raw, "k", "default", POLICIES, NOW_MS, LIMITS).expires_at_ms > NOW_MS
        return
    with pytest.raises(Refused, match="lies in the past") as refusal:
        requests.notification(raw, "k", "default", POLICIES, NOW_MS, LIMITS)
    assert refusal.value.field == "send_at"


def test_a_local_start_is_kept_for_until_the_last_zone_of_the_earth_has_had_it() -> None:
    """The expiry by default and the idempotency answer both outlast it: 08:00 at UTC-12 is 20:00 UTC."""
    body = {"user_id": "42", "template": "code", "send_at": {"local": "08:00", "date": "2026-12-01"}}
    message = requests.notification(orjson.dumps(body), "k", "default", POLICIES, NOW_MS, LIMITS)
    last_ms = int(datetime(2026, 12, 1, 20, tzinfo=UTC).timestamp() * 1000)
    assert NOW_MS + requests.starts_in_ms(message, NOW_MS) == last_ms
    assert message.expires_at_ms == last_ms + 20 * HOUR_MS


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
