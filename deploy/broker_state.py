"""The broker as it is: topics with their cut and settings, and what consumer groups have committed.

Offsets are asked and committed by short-lived consumers, not by the admin client: of this librdkafka release that
client crashes when a group's coordinator is still loading, as it is on a broker just started, and answers "no
leaders found" for ever when a topic just made is asked for its offsets (docs/decisions).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from schemas.errors import Misconfigured, Transient

TIMEOUT_S = 30.0
_AT_ONCE = 8
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
_NO_ANSWER = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE}


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


class Broker:
    """A broker and how it is reached. kafka: the client settings that everybody shares.

    Raises Misconfigured when no client can be made with them.
    """

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        self._kafka = {"log_level": 0, **kafka}
        try:
            self.admin = AdminClient(self._kafka)
        except KafkaException as error:
            raise Misconfigured(f"[kafka] cannot be used: {error.args[0].str()}") from None

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Kafka's errors as ours: Misconfigured when a person must act, else Transient."""
        servers = self._kafka.get("bootstrap.servers")
        try:
            yield
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() in _NO_ANSWER:
                raise Transient(f"no Kafka broker answers at {servers}: {reason.str()}") from error
            kind = Misconfigured if reason.code() in _PERSON_MUST_ACT else Transient
            raise kind(f"Kafka at {servers} answered {reason.name()}: {reason.str()}") from error

    def find(self, names: Iterable[str], groups: Mapping[str, Iterable[str]]) -> Found:
        """What is there of these topics, and of these groups' offsets in them.

        Raises Transient when the broker does not answer, Misconfigured when it refuses to.
        """
        with self.translated():
            wanted = set(names)
            metadata = self.admin.list_topics(timeout=TIMEOUT_S).topics
            present = {name: topic.partitions for name, topic in metadata.items() if name in wanted}
            configs = self._configs(present)
            topics = {
                name: FoundTopic(len(parts), min(len(p.replicas) for p in parts.values()), configs[name])
                for name, parts in present.items()
            }
            return Found(topics, self._committed(groups, topics))

    def with_records(self, topics: Mapping[str, int]) -> set[str]:
        """Those of the topics (name -> partitions) that ever held a record."""
        places = [TopicPartition(name, p) for name, count in topics.items() for p in range(count)]
        return {topic for (topic, _), (_, end) in self._offsets(places).items() if end > 0}

    def starts(self, places: list[TopicPartition]) -> dict[tuple[str, int], int]:
        """(topic, partition) -> the first offset that is kept."""
        return {place: start for place, (start, _) in self._offsets(places).items()}

    def commit(self, group: str, offsets: list[TopicPartition]) -> None:
        """Commits for a group without members; all of it or an error."""
        with self.translated(), self._consumer(group) as consumer:
            for place in consumer.commit(offsets=offsets, asynchronous=False):
                if place.error is not None:
                    raise KafkaException(place.error)

    def busy(self, groups: Sequence[str]) -> list[str]:
        """Those groups that have running members: nobody else may commit for them.

        Ask after `find` has seen a topic of theirs: where no group was ever asked for, this question has no answer.
        """
        if not groups:
            return []
        idle = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
        with self.translated():
            asked = self.admin.describe_consumer_groups(list(groups), request_timeout=TIMEOUT_S)
            return [name for name, future in asked.items() if future.result().state not in idle]

    def _configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        if not resources:
            return {}
        asked = self.admin.describe_configs(resources, request_timeout=TIMEOUT_S)
        return {
            resource.name: {key: entry.value for key, entry in future.result().items()}
            for resource, future in asked.items()
        }

    def _committed(
        self, groups: Mapping[str, Iterable[str]], topics: Mapping[str, FoundTopic]
    ) -> dict[str, frozenset[tuple[str, int]]]:
        def ask(group: str) -> frozenset[tuple[str, int]]:
            read = [name for name in groups[group] if name in topics]
            places = [TopicPartition(name, p) for name in read for p in range(topics[name].partitions)]
            if not places:
                return frozenset()
            with self._consumer(group) as consumer:
                answers = consumer.committed(places, timeout=TIMEOUT_S)
            return frozenset((place.topic, place.partition) for place in answers if place.offset >= 0)

        with ThreadPoolExecutor(_AT_ONCE) as asking:
            return dict(zip(groups, asking.map(ask, groups), strict=True))

    def _offsets(self, places: list[TopicPartition]) -> dict[tuple[str, int], tuple[int, int]]:
        if not places:
            return {}
        with self.translated(), self._consumer(f"tidings-provision-{uuid.uuid4()}") as consumer:
            return {(p.topic, p.partition): consumer.get_watermark_offsets(p, timeout=TIMEOUT_S) for p in places}

    @contextmanager
    def _consumer(self, group: str) -> Iterator[Any]:
        """A consumer that joins nothing."""
        consumer = Consumer({**self._kafka, "group.id": group, "enable.auto.commit": False})
        try:
            yield consumer
        finally:
            consumer.close()
