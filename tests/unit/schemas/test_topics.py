"""Goal: names, cuts and retention are what operators, publishers and the other rooms rely on."""

from __future__ import annotations

import pytest

from producers import requests
from schemas import topics
from schemas.errors import Misconfigured
from schemas.messages import Channel, Priority
from schemas.topics import DAY_MS, Topics

SPECS = {spec.name: spec for spec in Topics().specs()}


def test_names_are_those_of_the_contract() -> None:
    names = Topics()
    assert names.requests("default") == "notification.requests"
    assert names.requests_bulk("default") == "notification.requests.bulk"
    assert names.lane(Channel.PUSH, Priority.BULK) == "push.bulk"
    assert names.tier(Channel.PUSH, Priority.TRANSACTIONAL, "10s") == "push.retry.10s"
    assert names.tier(Channel.PUSH, Priority.BULK, "1m") == "push.bulk.retry.1m"
    assert names.status_changelog == "tidings-status-rows-changelog"


def test_every_name_carries_the_prefix() -> None:
    names = Topics("eu.")
    assert all(spec.name.startswith("eu.") for spec in names.specs())
    assert all(group.startswith("eu.") for group in names.groups())


def test_several_tenants_publish_to_topics_of_their_own() -> None:
    names = Topics(tenants=("shop", "bank"))
    assert names.requests("shop") == "notification.requests.shop"
    assert names.dlq_for("notification.requests.bulk.bank") == "requests.dlq"
    assert names.groups()[names.group("route bulk")] == (
        "notification.requests.bulk.shop",
        "notification.requests.bulk.bank",
    )


def test_one_tenant_publishes_to_the_plain_name_whatever_it_is_called() -> None:
    assert Topics(tenants=("shop",)).requests("shop") == "notification.requests"
    assert Topics(tenants=("shop",)).dlq_for("notification.requests") == "requests.dlq"


def test_a_tenant_that_nobody_configured_is_refused() -> None:
    with pytest.raises(Misconfigured, match=r"\[tenants.ghost\]"):
        Topics().requests("ghost")


@pytest.mark.parametrize("prefix", ["ü.", "a b.", "x" * 240])
def test_a_prefix_that_kafka_would_refuse_is_refused_first(prefix: str) -> None:
    with pytest.raises(Misconfigured, match="topic prefix"):
        Topics(prefix)


def test_poison_of_each_topic_has_its_place() -> None:
    names = Topics("eu.", ("shop", "bank"))
    assert names.dlq_for(names.requests("shop")) == "eu.requests.dlq"
    assert names.dlq_for(names.tier("sms", "bulk", "10m")) == "eu.sms.dlq"
    assert names.dlq_for(names.status) == "eu.internal.dlq"
    assert all(names.dlq_for(spec.name) in {s.name for s in names.specs()} for spec in names.specs())


def test_the_status_table_is_cut_like_its_source() -> None:
    source, changelog = SPECS["delivery.status"], SPECS["tidings-status-rows-changelog"]
    assert (source.partitions, source.partitions_production) == (changelog.partitions, changelog.partitions_production)


def test_a_dead_letter_has_room_for_its_error_headers() -> None:
    for name in ("push.dlq", "requests.dlq", "internal.dlq"):
        assert int(SPECS[name].config["max.message.bytes"]) == topics.MAX_MESSAGE_BYTES + topics.HEADERS_MAX_BYTES
    assert SPECS["push.bulk"].config["max.message.bytes"] == str(topics.MAX_MESSAGE_BYTES)


def test_a_tier_keeps_records_for_longer_than_three_times_its_longest_wait() -> None:
    for tier in Topics().tiers():
        assert int(SPECS[tier].config["retention.ms"]) >= 3 * max(topics.TIERS.values()) + DAY_MS


def test_what_was_accepted_lies_in_the_log_for_as_long_as_it_may_still_be_sent() -> None:
    """A cancel reads the record at the id's address: without it the message could not be stopped any more."""
    limits = requests.Limits()
    assert limits.send_ahead_ms < limits.expires_ahead_ms
    for name in ("notification.requests", "notification.requests.bulk", "campaign.requests", "campaign.audience"):
        assert int(SPECS[name].config["retention.ms"]) >= limits.expires_ahead_ms + DAY_MS, name


def test_what_is_read_from_the_start_is_compacted_and_never_expires() -> None:
    for name in ("campaign.control", "hold", "recipients", "suppressions", "campaign.cursor", "campaign.progress"):
        assert SPECS[name].config["cleanup.policy"] == "compact"
        assert SPECS[name].config["retention.ms"] == "-1"


def test_every_lane_tier_and_entry_topic_has_a_reader() -> None:
    names = Topics()
    read = {topic for read_topics in names.groups().values() for topic in read_topics}
    entries = {names.requests("default"), names.requests_bulk("default")}
    assert {*names.lanes(), *names.tiers(), *entries, names.callbacks, names.pages, names.status} <= read
    assert read <= set(SPECS)


def test_no_topic_is_declared_twice() -> None:
    assert len(SPECS) == len(Topics().specs())
