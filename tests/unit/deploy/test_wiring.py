"""What a deployment says reaches those who act on it."""

from __future__ import annotations

from consumers.loop import options as kafka_options
from deploy import engines, sections, senders
from deploy.processes import facing_across
from deploy.settings import Settings
from retry_topics.ladder import LadderOptions
from schemas.messages import Channel
from schemas.policies import MessageClass, TemplatePolicy
from schemas.topics import TIERS
from streams import lanes
from tests.doubles import deliveries


def test_the_ladder_has_the_tries_and_waits_of_the_settings() -> None:
    sending = sections.Sending(tries=3, retry_base_s=0.2, retry_cap_s=4)
    tiers = sections.Tiers.model_validate({"10s": 0.5, "1m": 1, "10m": 2})
    wanted = LadderOptions(3, 200, 4_000, {"10s": 500, "1m": 1_000, "10m": 2_000})
    assert senders._ladder(Settings(sending=sending, tiers=tiers)) == wanted


def test_without_a_word_the_ladder_and_the_lanes_are_the_documented_ones() -> None:
    assert senders._ladder(Settings()) == LadderOptions(8, 1_000, 300_000, TIERS)
    assert facing_across._window(Settings()) == lanes.Window(0.7, 2.0, 5.0)


def test_bulk_lanes_are_kept_as_full_as_the_settings_say() -> None:
    chosen = Settings(
        sending=sections.Sending(bulk_share=0.5), dispatch=sections.Dispatch(backlog_min_s=1, backlog_max_s=3)
    )
    assert facing_across._window(chosen) == lanes.Window(0.5, 1.0, 3.0)


def test_what_somebody_waits_for_is_given_up_by_a_dead_member_sooner_than_bulk() -> None:
    bulk, urgent = (engines._consumer(sections.Engine(), "group", ("topic",), urgent) for urgent in (False, True))
    assert (bulk.session_timeout_s, urgent.session_timeout_s) == (30.0, 10.0)


def test_an_engines_heartbeat_is_the_one_it_was_told() -> None:
    made = kafka_options.settings({}, kafka_options.KafkaOptions("group", ("topic",), heartbeat_s=2.5))
    assert made["heartbeat.interval.ms"] == 2_500


def test_the_cap_of_a_tenant_counts_its_marketing_by_its_own_midnight_for_users_without_a_zone() -> None:
    tenant = sections.Tenant(time_zone="Pacific/Kiritimati", caps=sections.Caps(day=4))
    rules = senders._cap_rules(Settings(tenants={"default": tenant, "other": sections.Tenant()}))
    offer = TemplatePolicy("offer", MessageClass.MARKETING, (Channel.SMS,))
    noon_utc_ms = 1_793_448_000_000  # 2026-10-31
    place = rules.place(deliveries.single(), offer, "", noon_utc_ms)
    assert place is not None and [(cap.kind, cap.most) for cap in place.caps] == [("marketing", 4)]
    assert "2026-11-01" in place.caps[0].key
    assert rules.place(deliveries.single(tenant="other"), offer, "", noon_utc_ms) is None
