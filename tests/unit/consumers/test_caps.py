"""Which day a message counts on, and against which caps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers import caps
from consumers.caps import CapRules, Place
from schemas.local_times import local_date
from schemas.messages import Channel, Delivery
from schemas.policies import MessageClass, TemplatePolicy
from tests.doubles import deliveries

SALE = TemplatePolicy("sale", MessageClass.MARKETING, (Channel.SMS,), caps={"day": 3})
NEWS = TemplatePolicy("news", MessageClass.MARKETING, (Channel.SMS,))
CODE = TemplatePolicy("code", MessageClass.TRANSACTIONAL, (Channel.SMS,))
TEN_UTC = 1_793_440_800_000  # 2026-10-31 10:00
RULES = CapRules({"default": 5}, {"default": "Europe/Berlin"})


def place(policy: TemplatePolicy, zone: str = "", rules: CapRules = RULES, at_ms: int = TEN_UTC) -> Place | None:
    return rules.place(deliveries.single(), policy, zone, at_ms)


def limits(found: Place | None) -> list[tuple[str, int]]:
    return [(cap.kind, cap.most) for cap in found.caps] if found is not None else []


def days(found: Place | None) -> set[str]:
    assert found is not None
    return {cap.key.split("}:")[1].partition(":")[0] for cap in found.caps}


def test_a_template_counts_against_its_own_cap_and_marketing_against_that_of_the_tenant_too() -> None:
    assert limits(place(SALE)) == [("/sale", 3), ("marketing", 5)]
    assert limits(place(NEWS)) == [("marketing", 5)]
    assert limits(place(SALE, rules=CapRules({}, {}))) == [("/sale", 3)]


def test_without_any_cap_there_is_no_place_to_ask_for() -> None:
    assert place(NEWS, rules=CapRules({"other": 5}, {})) is None


def test_transactional_messages_are_capped_only_where_their_template_asks_for_it() -> None:
    assert place(CODE) is None
    asked = TemplatePolicy("code", MessageClass.TRANSACTIONAL, (Channel.SMS,), caps={"day": 10})
    assert limits(place(asked)) == [("/code", 10)]


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Pacific/Kiritimati", "2026-11-01"),
        ("Asia/Ho_Chi_Minh", "2026-10-31"),
        ("Pacific/Pago_Pago", "2026-10-30"),
        ("", "2026-10-31"),
        ("Atlantis/Capital", "2026-10-31"),
    ],
)
def test_the_day_is_the_one_on_the_users_own_calendar(zone: str, day: str) -> None:
    assert days(place(SALE, zone)) == {day}


def test_who_has_no_zone_of_their_own_lives_by_the_tenants() -> None:
    east = CapRules({}, {"default": "Pacific/Kiritimati"})
    assert days(place(SALE, "", east)) == days(place(SALE, "Nowhere/Land", east)) == {"2026-11-01"}


@given(st.sampled_from(["Pacific/Apia", "Europe/London", "America/St_Johns", "UTC"]), st.integers(0, 2 * 10**12))
def test_a_date_lasts_less_long_than_its_count_is_kept(zone: str, at_ms: int) -> None:
    assert local_date(zone, at_ms) != local_date(zone, at_ms + caps.KEPT_S * 1_000)


def member(delivery: Delivery) -> tuple[bytes, bytes]:
    found = RULES.place(delivery, SALE, "", TEN_UTC)
    assert found is not None
    return found.group, found.member


def test_devices_share_a_group_and_channels_and_notifications_do_not() -> None:
    phone, tablet = (member(deliveries.single(channel=Channel.PUSH, device=device)) for device in ("phone", "tablet"))
    assert phone[0] == tablet[0] and phone[1] != tablet[1]
    assert member(deliveries.single())[0] != phone[0] != member(deliveries.single(event_id="order-2"))[0]
