"""What the broker is asked of topics and partitions: which there are, where they begin and end, what lies at a time.

By a client of its own that reads nothing. A call on a consumer that another thread is polling waits for as long as
that thread goes on (confluent-kafka 2.16), and on a reader's connection each answer would wait behind a fetch, a tenth
of a second where nothing comes.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from schemas.clock import Clock
from schemas.errors import Misconfigured, Transient

Partition = tuple[str, int]
"""Topic, partition."""

LEADER_PAUSE_S = 0.1
_LEADERLESS = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._UNKNOWN_PARTITION}
)


class Asker:
    """Used by several threads; answers come within timeout_s or as Transient."""

    def __init__(self, kafka: Mapping[str, str], timeout_s: float, clock: Clock) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._consumer = Consumer(
            {
                # librdkafka would write a line for every attempt to connect; what matters comes as an error.
                "log_level": 2,
                **kafka,
                # librdkafka asks for a group's name even where no group is used.
                "group.id": "tidings-asking",
            }
        )
        self._one_at_a_time = threading.Lock()
        self._never = threading.Event()

    def partitions(self, topics: Sequence[str]) -> list[Partition]:
        """Those of all these topics. Raises Misconfigured for a topic that does not exist."""
        with self._one_at_a_time:
            return [partition for topic in topics for partition in self._partitions_of(topic)]

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """(first offset, that of the next record)."""
        return self.offsets_of([(topic, partition)])[topic, partition]

    def offsets_of(self, places: Collection[Partition]) -> dict[Partition, tuple[int, int]]:
        """Likewise, of all in two questions."""
        lows, highs = self._at(places, OFFSET_BEGINNING), self._at(places, OFFSET_END)
        return {place: (lows[place], highs[place]) for place in places}

    def ends(self, places: Collection[Partition]) -> dict[Partition, int]:
        """The offset that the next record of each will get, of all in one question."""
        return self._at(places, OFFSET_END)

    def offset_at(self, topic: str, partition: int, at_ms: int) -> int:
        """The first offset written at this moment or later; the end when none was."""
        found = self._at([(topic, partition)], at_ms)[topic, partition]
        return found if found >= 0 else self.offsets(topic, partition)[1]

    def close(self) -> None:
        with self._one_at_a_time:
            self._consumer.close()

    def _at(self, places: Collection[Partition], when: int) -> dict[Partition, int]:
        """Asked again while a partition changes its leader, or has none yet because it is new."""
        if not places:
            return {}
        until_s = self._clock.steady_s() + self._timeout_s
        while True:
            try:
                return self._asked(places, when)
            except KafkaException as error:
                if error.args[0].code() not in _LEADERLESS or self._clock.steady_s() > until_s:
                    raise Transient(f"the offsets of {_named(places)} cannot be read: {error}") from error
            self._never.wait(LEADER_PAUSE_S)

    def _asked(self, places: Collection[Partition], when: int) -> dict[Partition, int]:
        asked = [TopicPartition(topic, partition, when) for topic, partition in places]
        with self._one_at_a_time:
            found = self._consumer.offsets_for_times(asked, timeout=self._timeout_s)
        for place in found:
            if place.error is not None:
                raise KafkaException(place.error)
        return {(place.topic, place.partition): int(place.offset) for place in found}

    def _partitions_of(self, topic: str) -> list[Partition]:
        try:
            metadata = self._consumer.list_topics(topic, timeout=self._timeout_s).topics[topic]
        except KafkaException as error:
            raise Transient(f"the broker does not tell the partitions of {topic}: {error}") from error
        if metadata.error is not None:
            raise Misconfigured(f"topic {topic} cannot be read ({metadata.error}); run `tidings provision --apply`")
        return [(topic, partition) for partition in metadata.partitions]


def _named(places: Collection[Partition]) -> str:
    (topic, partition), *others = places
    return f"{topic}/{partition}" + (f" and {len(others)} others" if others else "")
