"""A broker that dies and comes back: nobody hangs, nobody pretends to be well, everybody goes on by themselves."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from deploy import children
from deploy.local import jars, kafka, tools
from producers.publisher import KafkaPublisher, PublisherOptions
from schemas.errors import Transient
from schemas.records import Outgoing, Placed
from schemas.topics import Topics
from streams.log_reader import KafkaLogReader, LogReaderOptions
from streams.tails import KafkaTails
from tests.integration.engine.bench import Bench, Told, eventually, running

HEAP_MB = 384


class OwnBroker:
    """A broker of this test alone; start and stop block, since a child must belong to the main thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = 0
        self.start()

    def start(self) -> None:
        java = tools.java()
        assert java is not None
        self._running = kafka.start(java, jars.fetch(), self._folder, HEAP_MB, self._port)
        self._port = int(self._running.bootstrap.rpartition(":")[2])

    def kill(self) -> None:
        self._running.child.kill()
        self._running.child.wait()

    def stand_still(self) -> None:
        """It keeps its connections and answers nothing until it goes on."""
        self._running.child.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._running.child.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        children.stop(self._running.child)

    @property
    def bootstrap(self) -> str:
        return self._running.bootstrap


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OwnBroker]:
    if tools.java() is None or jars.cached() is None:
        pytest.skip("needs a broker of its own, so Java and Kafka's jars")
    own = OwnBroker(tmp_path / "kafka")
    yield own
    own.stop()
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.long
@pytest.mark.timeout(300)  # it starts a broker twice
async def test_engine_views_reads_and_writes_survive_a_broker_that_dies(broker: OwnBroker) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "reconnect.backoff.max.ms": "500"}
    topics = Topics("outage.")
    lane = topics.lane("push", "bulk")
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(lane, 1, 1)])[lane].result(20)
    publisher = KafkaPublisher(settings, PublisherOptions(delivery_timeout_s=2.0))
    reader = KafkaLogReader(settings, LogReaderOptions(timeout_s=2.0))
    tails, handler = KafkaTails(settings), Told()
    bench = Bench(settings, publisher, topics, lane, topics.group("work push.bulk"), 1)
    view = await tails.follow([lane], lambda record: None)
    async with running(bench.engine(handler)) as engine:
        await bench.write(b"before")
        await handler.until_got(1)
        assert engine.healthy

        broker.kill()
        with pytest.raises(Transient):
            await publisher.publish([Outgoing(lane, b"k", b"during")])
        with pytest.raises(Transient):
            await reader.offsets(lane, 0)
        await eventually(lambda: not engine.healthy)

        broker.start()
        placed = await written(publisher, lane, b"after")
        await handler.until(lambda: b"after" in {record.value for record in handler.got})
        async with asyncio.timeout(30):
            await view.seen(lane, placed)
        await eventually(lambda: engine.healthy)
        assert (await reader.read(lane, 0, placed.offset)) is not None
        await bench.committed_reaches([placed.offset + 1])
    await asyncio.gather(publisher.close(), reader.close(), tails.close())


async def written(publisher: KafkaPublisher, topic: str, value: bytes) -> Placed:
    """As a caller of the API would: again, until it is accepted."""
    async with asyncio.timeout(30):
        while True:
            try:
                return (await publisher.publish([Outgoing(topic, b"k", value)]))[0]
            except Transient:
                continue
