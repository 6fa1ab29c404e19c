"""Fan-out while its broker is away for longer than a write may take: nothing is committed, and it goes on by itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.local import jars, tools
from producers.publisher import KafkaPublisher, PublisherOptions
from schemas import codec
from schemas.messages import ReleasedPage
from schemas.records import Headers, Outgoing
from schemas.topics import Topics
from streams.log_reader import KafkaLogReader
from tests.integration.engine.test_broker_outage import OwnBroker
from tests.integration.streams.test_page_agent import Expander, Road, page, until

PATIENT = {"reconnect.backoff.max.ms": "500"}
RECORDS = 250


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OwnBroker]:
    if tools.java() is None or jars.cached() is None:
        pytest.skip("needs a broker of its own, so Java and Kafka's jars")
    own = OwnBroker(tmp_path / "kafka")
    yield own
    own.stop()
    shutil.rmtree(tmp_path, ignore_errors=True)


class Writing(Expander):
    """Writes a page's deliveries, as fan-out does."""

    def __init__(self, publisher: KafkaPublisher, lane: str) -> None:
        super().__init__()
        self._publisher = publisher
        self._lane = lane

    async def expand(self, page: ReleasedPage, headers: Headers) -> None:
        self.tries.append(page.page)
        if (gate := self.gates.get(page.page)) is not None:
            await gate.wait()
        named = [b"%d/%d" % (page.page, number) for number in range(RECORDS)]
        await self._publisher.publish([Outgoing(self._lane, name, name) for name in named])
        self.done.append(page.page)


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_a_page_whose_deliveries_the_log_did_not_take_is_not_committed_and_done_when_it_is_back(
    broker: OwnBroker, tmp_path: Path
) -> None:
    """K28, K08: the writes time out, and the next ones too."""
    topics = Topics("away.")
    lane = topics.lane("push", "bulk")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(topics.pages, 1, 1), NewTopic(lane, 1, 1)]).values():
        made.result(20)
    kafka = {"bootstrap.servers": broker.bootstrap, **PATIENT}
    publisher = KafkaPublisher(kafka, PublisherOptions(delivery_timeout_s=2.0))
    road = Road(broker.bootstrap, topics, tmp_path / "tables", publisher)
    road.expander = Writing(publisher, lane)
    gate = road.expander.gate(1)
    await road.write(codec.encode(page(0)), codec.encode(page(1)))
    async with road.running() as process:
        await until(lambda: road.committed() == 1 and 1 in road.expander.tries)
        broker.kill()
        gate.set()
        await until(lambda: road.expander.tries.count(1) >= 3)
        assert road.expander.done == [0]
        broker.start()
        await until(lambda: road.committed() == 2)
        assert not process.done()
    reader = KafkaLogReader(kafka)
    _, end = await reader.offsets(lane, 0)
    written = {record.value async for record in reader.read_range(lane, 0, 0, end - 1)}
    assert written == {b"%d/%d" % (number, place) for number in (0, 1) for place in range(RECORDS)}
    await reader.close()
    await publisher.close()
