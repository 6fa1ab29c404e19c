"""Goal: on a real broker, provisioning makes what is missing, mends what drifted, and never moves an offset."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from rich.console import Console

from deploy import blueprint, provision
from deploy.blueprint import Blueprint, Kind
from deploy.broker_state import Broker
from schemas import metrics
from schemas.errors import Misconfigured, Transient
from schemas.topics import Topics, TopicSpec
from tests.conftest import CreateTopics

KEPT = {"cleanup.policy": "delete", "retention.ms": "3600000"}
COMPACTED = {"cleanup.policy": "compact", "retention.ms": "-1"}


@pytest.fixture
def admin(kafka_bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_bootstrap, "log_level": 0})


@pytest.fixture
def broker(kafka_bootstrap: str) -> Broker:
    return Broker({"bootstrap.servers": kafka_bootstrap})


@pytest.fixture
def wanted(topic_prefix: str, request: pytest.FixtureRequest, create_topics: CreateTopics) -> Blueprint:
    """Two topics and a group of this test's own; deleted at the module's end by their prefix."""
    own = f"{topic_prefix}{request.node.name[:60]}."
    lane = TopicSpec(f"{own}lane", 1, 2, KEPT, "user", "Delivery")
    table = TopicSpec(f"{own}table", 1, 2, COMPACTED, "row", "StatusBatch", keyed=True)
    return Blueprint((lane, table), {f"{own}group": (lane.name,)})


@pytest.fixture
def group(wanted: Blueprint, admin: AdminClient) -> Iterator[str]:
    (name,) = wanted.groups
    yield name
    for future in admin.delete_consumer_groups([name]).values():
        future.exception()


def provisioned(broker: Broker, wanted: Blueprint) -> None:
    provision.apply(broker, wanted, provision.plan(broker, wanted))


def offsets(admin: AdminClient, group: str) -> dict[int, int]:
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {place.partition: place.offset for place in future.result().topic_partitions}


def settings_of(admin: AdminClient, topic: str) -> Mapping[str, str]:
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {key: entry.value for key, entry in future.result().items()}


def set_by_hand(admin: AdminClient, topic: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def write(bootstrap: str, topic: str, count: int = 1) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number).encode(), key=b"k", partition=0)
    assert producer.flush(20) == 0


def test_an_empty_broker_gets_topics_settings_and_first_offsets(
    broker: Broker, admin: AdminClient, wanted: Blueprint, group: str
) -> None:
    planned = provision.plan(broker, wanted)
    assert [change.kind for change in planned] == [Kind.CREATE, Kind.CREATE, Kind.OFFSETS]
    provision.apply(broker, wanted, planned)
    assert settings_of(admin, wanted.specs[0].name)["retention.ms"] == "3600000"
    assert settings_of(admin, wanted.specs[1].name)["cleanup.policy"] == "compact"
    assert offsets(admin, group) == {0: 0}


def test_planning_changes_nothing(broker: Broker, admin: AdminClient, wanted: Blueprint) -> None:
    assert provision.plan(broker, wanted) == provision.plan(broker, wanted)
    assert not {spec.name for spec in wanted.specs} & set(admin.list_topics(timeout=20).topics)


def test_a_second_run_finds_nothing_to_do(broker: Broker, admin: AdminClient, wanted: Blueprint, group: str) -> None:
    provisioned(broker, wanted)
    assert provision.plan(broker, wanted) == []
    provision.check(broker, wanted)


def test_a_role_refuses_to_start_and_names_the_drift(
    broker: Broker, admin: AdminClient, wanted: Blueprint, group: str
) -> None:
    provisioned(broker, wanted)
    set_by_hand(admin, wanted.specs[0].name, "retention.ms", "60000")
    with pytest.raises(Misconfigured, match=r"tidings provision[\s\S]*retention.ms is 60000, wanted 3600000"):
        provision.check(broker, wanted)


def test_drift_is_mended_and_foreign_settings_stay(
    broker: Broker, admin: AdminClient, wanted: Blueprint, group: str
) -> None:
    provisioned(broker, wanted)
    topic = wanted.specs[0].name
    set_by_hand(admin, topic, "retention.ms", "60000")
    set_by_hand(admin, topic, "flush.ms", "5000")
    provisioned(broker, wanted)
    assert settings_of(admin, topic)["retention.ms"] == "3600000"
    assert settings_of(admin, topic)["flush.ms"] == "5000"


def test_partitions_are_added_and_their_offsets_with_them(
    broker: Broker, admin: AdminClient, wanted: Blueprint, group: str
) -> None:
    provisioned(broker, wanted)
    provisioned(broker, replace(wanted, production=True))
    assert {s.name: len(admin.list_topics(s.name, timeout=20).topics[s.name].partitions) for s in wanted.specs} == {
        s.name: 2 for s in wanted.specs
    }
    assert offsets(admin, group) == {0: 0, 1: 0}


def test_a_topic_whose_keys_must_stay_keeps_its_partitions_once_it_has_records(
    broker: Broker, admin: AdminClient, wanted: Blueprint, group: str, kafka_bootstrap: str
) -> None:
    provisioned(broker, wanted)
    table = wanted.specs[1].name
    write(kafka_bootstrap, table)
    provisioned(broker, replace(wanted, production=True))
    assert len(admin.list_topics(table, timeout=20).topics[table].partitions) == 1


def test_a_larger_broker_is_good_enough(broker: Broker, admin: AdminClient, wanted: Blueprint, group: str) -> None:
    provisioned(broker, replace(wanted, production=True))
    provision.check(broker, wanted)
    assert [change.kind for change in provision.plan(broker, wanted)] == [Kind.KEPT, Kind.KEPT]


def test_what_stays_as_it_is_is_not_counted_as_a_change(broker: Broker, wanted: Blueprint, group: str) -> None:
    provisioned(broker, replace(wanted, production=True))
    kept = metrics.PROVISION_CHANGES.labels(Kind.KEPT)
    before = kept._value.get()
    provisioned(broker, wanted)
    assert kept._value.get() == before


def test_an_offset_that_is_there_is_never_moved(
    broker: Broker, admin: AdminClient, wanted: Blueprint, group: str, kafka_bootstrap: str
) -> None:
    provisioned(broker, wanted)
    lane = wanted.specs[0].name
    write(kafka_bootstrap, lane, 5)
    asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [TopicPartition(lane, 0, 3)])])
    assert asked[group].result().topic_partitions[0].error is None
    provisioned(broker, replace(wanted, production=True))
    assert offsets(admin, group) == {0: 3, 1: 0}


def test_a_new_group_begins_at_what_the_log_still_has(
    broker: Broker, admin: AdminClient, wanted: Blueprint, group: str, kafka_bootstrap: str
) -> None:
    provisioned(broker, replace(wanted, groups={}))
    lane = wanted.specs[0].name
    write(kafka_bootstrap, lane, 5)
    (future,) = admin.delete_records([TopicPartition(lane, 0, 4)]).values()
    future.result()
    provisioned(broker, wanted)
    assert offsets(admin, group) == {0: 4}


def test_a_consumer_reads_from_the_first_record_without_a_reset_policy(
    broker: Broker, admin: AdminClient, wanted: Blueprint, group: str, kafka_bootstrap: str
) -> None:
    provisioned(broker, wanted)
    write(kafka_bootstrap, wanted.specs[0].name)
    consumer = member(kafka_bootstrap, group, wanted.specs[0].name)
    try:
        record = consumer.poll(20)
        assert record is not None
        assert record.error() is None
        assert record.value() == b"0"
    finally:
        consumer.close()


def member(bootstrap: str, group: str, topic: str) -> Any:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    return consumer


def test_a_group_at_work_must_be_stopped_before_it_gets_new_partitions(
    broker: Broker, admin: AdminClient, wanted: Blueprint, group: str, kafka_bootstrap: str
) -> None:
    provisioned(broker, wanted)
    write(kafka_bootstrap, wanted.specs[0].name)
    consumer = member(kafka_bootstrap, group, wanted.specs[0].name)
    try:
        assert consumer.poll(20) is not None
        with pytest.raises(Misconfigured, match=f"stop the processes of {group}"):
            provisioned(broker, replace(wanted, production=True))
        assert len(admin.list_topics(timeout=20).topics[wanted.specs[0].name].partitions) == 1
    finally:
        consumer.close()


def test_two_machines_may_provision_at_once(broker: Broker, admin: AdminClient, wanted: Blueprint, group: str) -> None:
    planned = provision.plan(broker, wanted)
    with ThreadPoolExecutor(2) as both:
        for run in [both.submit(provision.apply, broker, wanted, planned) for _ in range(2)]:
            run.result()
    provision.check(broker, wanted)


def test_the_whole_catalogue_is_missing_from_a_broker_that_never_saw_it(broker: Broker, topic_prefix: str) -> None:
    whole = blueprint.blueprint(Topics(topic_prefix + "whole."))
    planned = provision.plan(broker, whole)
    assert [change.name for change in planned if change.kind is Kind.CREATE] == [spec.name for spec in whole.specs]


def test_the_plan_is_shown_as_a_table(broker: Broker, admin: AdminClient, wanted: Blueprint) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(provision.table(provision.plan(broker, wanted)))
    shown = console.export_text()
    assert "create topic" in shown
    assert wanted.specs[0].name in shown


def test_a_broker_that_does_not_answer_is_named_as_that(monkeypatch: pytest.MonkeyPatch, wanted: Blueprint) -> None:
    monkeypatch.setattr("deploy.broker_state.TIMEOUT_S", 0.5)
    nobody = Broker({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(Transient, match=r"no Kafka broker answers at 127\.0\.0\.1:1: "):
        provision.plan(nobody, wanted)
