"""Topics, filled and watched from outside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.programs import NotMeasured
from producers.publisher import KafkaPublisher, PublisherOptions
from schemas import codec
from schemas.messages import CampaignProgress
from schemas.records import Outgoing

AT_ONCE = 5_000
LOOK_S = 0.05
TIMEOUT_S = 30
NOBODY = "tidings-bench"


async def fill(bootstrap: str, records: Iterable[Outgoing]) -> int:
    """Writes them all; how many."""
    publisher = KafkaPublisher({"bootstrap.servers": bootstrap}, PublisherOptions(linger_ms=20))
    waiting, written = iter(records), 0
    try:
        while part := list(islice(waiting, AT_ONCE)):
            await publisher.publish(part)
            written += len(part)
    finally:
        await publisher.close()
    return written


@asynccontextmanager
async def topic_of_its_own(bootstrap: str, name: str, partitions: int) -> AsyncIterator[str]:
    """A topic outside of the catalogue, gone on the way out."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    made = admin.create_topics([NewTopic(name, partitions, 1)])
    await asyncio.to_thread(made[name].result, TIMEOUT_S)
    try:
        yield name
    finally:
        await asyncio.to_thread(remove_topics, bootstrap, name)


def remove_topics(bootstrap: str, prefix: str) -> None:
    """Every topic that begins with the prefix."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    names = [name for name in admin.list_topics(timeout=TIMEOUT_S).topics if name.startswith(prefix)]
    for deleted in admin.delete_topics(names).values() if names else ():
        deleted.result(timeout=TIMEOUT_S)


class Watch:
    """Asks the broker how far somebody is. group: whose commits `left` compares with."""

    def __init__(self, bootstrap: str, group: str = NOBODY) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 2}
        )

    def ends(self, topic: str) -> int:
        """Records ever written to the topic."""
        return sum(self._ends(topic).values())

    def left(self, *topics: str) -> int:
        """Records that the group has not committed yet."""
        return sum(map(self._left, topics))

    def _left(self, topic: str) -> int:
        ends = self._ends(topic)
        places = self._consumer.committed([TopicPartition(topic, number) for number in ends], TIMEOUT_S)
        return sum(max(0, ends[place.partition] - max(0, place.offset)) for place in places)

    def records(self, topic: str) -> Iterator[bytes]:
        """The values of all that is in the topic now."""
        ends = self._ends(topic)
        self._consumer.assign([TopicPartition(topic, number, 0) for number, end in ends.items() if end])
        missing = sum(ends.values())
        while missing:
            found = self._consumer.consume(min(missing, 1_000), TIMEOUT_S)
            if not found:
                raise NotMeasured(f"{topic} cannot be read to its end")
            missing -= len(found)
            yield from (message.value() for message in found)
        self._consumer.unassign()

    def close(self) -> None:
        self._consumer.close()

    def _ends(self, topic: str) -> dict[int, int]:
        numbers = self._consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        return {
            number: self._consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)[1]
            for number in numbers
        }


async def until(holds: Any, what: str, within_s: float) -> None:
    """Until `holds()`, which may ask the broker, is true. Raises NotMeasured when that takes too long."""
    deadline_s = time.monotonic() + within_s
    while not await asyncio.to_thread(holds):
        if time.monotonic() > deadline_s:
            raise NotMeasured(f"not within {within_s:g} s: {what}")
        await asyncio.sleep(LOOK_S)


class Progress:
    """Reads `campaign.progress` on and on: recipients told delivered of each campaign."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": NOBODY, "log_level": 2})
        numbers: Sequence[int] = list(self._consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
        self._consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        self._newest: dict[tuple[str, int], tuple[int, int]] = {}

    def delivered(self, campaign_id: str) -> int:
        """What its readers know now."""
        while found := self._consumer.consume(1_000, 0.0):
            for message in found:
                told = codec.decode(message.value(), CampaignProgress)
                place = (told.campaign_id, told.partition)
                self._newest[place] = max(self._newest.get(place, (-1, 0)), (told.version, told.delivered))
        return sum(count for (campaign, _), (_, count) in self._newest.items() if campaign == campaign_id)

    def close(self) -> None:
        self._consumer.close()
