"""What a broker has: topics with their cut and settings, and which partitions a consumer group has committed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from schemas.errors import Misconfigured, Transient

TIMEOUT_S = 30.0
RECHECK_S = 0.05
_PERSON_MUST_ACT = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError._AUTHENTICATION,
}


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """One topic as it is. has_records is known only for topics that somebody asked about."""

    partitions: int
    replicas: int
    config: Mapping[str, str]
    has_records: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """committed: consumer group -> (topic, partition) with an offset."""

    topics: Mapping[str, FoundTopic]
    committed: Mapping[str, frozenset[tuple[str, int]]]


@contextmanager
def translated() -> Iterator[None]:
    """Kafka's errors as ours: Misconfigured when a person must act, else Transient."""
    try:
        yield
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        kind = Misconfigured if reason.code() in _PERSON_MUST_ACT else Transient
        raise kind(f"Kafka answered {reason.name()}: {reason.str()}") from error


def find(admin: AdminClient, names: Iterable[str], groups: Iterable[str]) -> Found:
    """What is there of these topics and groups. Raises Transient when the broker does not answer."""
    with translated():
        wanted = set(names)
        metadata = admin.list_topics(timeout=TIMEOUT_S).topics
        present = {name: topic.partitions for name, topic in metadata.items() if name in wanted}
        configs = _configs(admin, present)
        topics = {
            name: FoundTopic(len(parts), min(len(p.replicas) for p in parts.values()), configs[name])
            for name, parts in present.items()
        }
        return Found(topics, _committed(admin, groups))


def with_records(admin: AdminClient, topics: Mapping[str, int]) -> set[str]:
    """Those of the topics (name -> partitions) that ever held a record."""
    places = [TopicPartition(name, p) for name, count in topics.items() for p in range(count)]
    ends = offsets(admin, places, OffsetSpec.latest())
    return {topic for (topic, _), offset in ends.items() if offset > 0}


def offsets(admin: AdminClient, places: list[TopicPartition], spec: OffsetSpec) -> dict[tuple[str, int], int]:
    """(topic, partition) -> its first or end offset. A broker that has just made a topic is asked again."""
    deadline = time.monotonic() + TIMEOUT_S
    with translated():
        while places:
            asked = admin.list_offsets(dict.fromkeys(places, spec), request_timeout=TIMEOUT_S)
            try:
                return {(place.topic, place.partition): future.result().offset for place, future in asked.items()}
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
                time.sleep(RECHECK_S)
        return {}


def busy_groups(admin: AdminClient, groups: list[str]) -> list[str]:
    """Those that have running members: nobody else may commit for them."""
    if not groups:
        return []
    idle = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
    with translated():
        asked = admin.describe_consumer_groups(groups, request_timeout=TIMEOUT_S)
        return [name for name, future in asked.items() if future.result().state not in idle]


def _configs(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    if not resources:
        return {}
    asked = admin.describe_configs(resources, request_timeout=TIMEOUT_S)
    return {
        resource.name: {key: entry.value for key, entry in future.result().items()}
        for resource, future in asked.items()
    }


def _committed(admin: AdminClient, groups: Iterable[str]) -> dict[str, frozenset[tuple[str, int]]]:
    """The API takes one group at a time; all are asked before the first answer is awaited."""
    asked: dict[str, Any] = {}
    for group in groups:
        asked |= admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=TIMEOUT_S)
    return {
        group: frozenset((p.topic, p.partition) for p in future.result().topic_partitions if p.offset >= 0)
        for group, future in asked.items()
    }
