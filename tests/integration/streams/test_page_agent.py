"""Pages on real Kafka: several in work at a time, acknowledged in order, tried again until done, never skipped."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka.consumer.subscription_state import SubscriptionState
from confluent_kafka import Consumer, KafkaException, TopicPartition

from producers.publisher import KafkaPublisher
from retry_topics.dead_letters import DeadLetters
from schemas import codec
from schemas.clock import SystemClock
from schemas.errors import StoreDown, Transient
from schemas.messages import Priority, Recipient, ReleasedPage
from schemas.records import Headers, Outgoing
from schemas.topics import Topics
from streams import agents
from streams.log_reader import KafkaLogReader
from tests.conftest import CreateTopics
from tests.doubles.manual_clock import START_MS

DEADLINE_S = 60.0
ASK_S = 2.0
_numbers = itertools.count()
pytestmark = pytest.mark.timeout(180)


def page(number: int) -> ReleasedPage:
    recipients = (Recipient("42"),)
    return ReleasedPage(
        "default",
        "spring",
        number,
        "news",
        "{}",
        (),
        Priority.BULK,
        START_MS,
        START_MS,
        START_MS,
        number,
        1,
        (),
        recipients,
    )


class Expander:
    """Notes each page; holds back those it is told to, fails those it is told to."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.tries: list[int] = []
        self.headers: list[Headers] = []
        self.gates: dict[int, asyncio.Event] = {}
        self.failing: dict[int, Exception] = {}

    def gate(self, number: int) -> asyncio.Event:
        """Holds the page back until it is set."""
        return self.gates.setdefault(number, asyncio.Event())

    async def expand(self, page: ReleasedPage, headers: Headers) -> None:
        self.headers.append(headers)
        self.tries.append(page.page)
        if page.page in self.failing:
            raise self.failing[page.page]
        if (gate := self.gates.get(page.page)) is not None:
            await gate.wait()
        self.done.append(page.page)


class Road:
    """One partition of pages, and the process that works on it."""

    def __init__(self, bootstrap: str, topics: Topics, folder: Path, publisher: KafkaPublisher) -> None:
        self.kafka = {"bootstrap.servers": bootstrap}
        self.topics = topics
        self.folder = folder
        self.publisher = publisher
        self.expander = Expander()

    async def write(self, *values: bytes) -> None:
        await self.publisher.publish([Outgoing(self.topics.pages, b"k", value) for value in values])

    @asynccontextmanager
    async def running(self, instance: str = "") -> AsyncIterator[asyncio.Task[None]]:
        options = agents.FaustOptions(self.kafka, self.folder, instance, session_s=6.0, commit_every_s=0.2)
        letters = DeadLetters(self.topics, SystemClock())
        process = agents.fanning_out(self.topics, options, self.expander.expand, self.publisher, letters.letter)
        task = asyncio.ensure_future(process.run())
        try:
            yield task
        finally:
            process.stop()
            await asyncio.gather(task, return_exceptions=True)

    def committed(self) -> int:
        """The group's committed offset; -1 before the first commit, and while the broker cannot say.

        Asked by a consumer: the admin client's question crashes the process while the coordinator is still loading.
        """
        asking = Consumer({**self.kafka, "group.id": self.topics.group("fan_out"), "log_level": 0})
        try:
            (place,) = asking.committed([TopicPartition(self.topics.pages, 0)], timeout=ASK_S)
        except KafkaException:
            return -1
        finally:
            asking.close()
        return max(int(place.offset), -1)


@pytest.fixture
async def road(
    kafka_bootstrap: str, topic_prefix: str, create_topics: CreateTopics, tmp_path: Path
) -> AsyncIterator[Road]:
    topics = Topics(f"{topic_prefix}{next(_numbers)}.")
    create_topics(topics.pages, topics.internal_dlq)
    publisher = KafkaPublisher({"bootstrap.servers": kafka_bootstrap})
    yield Road(kafka_bootstrap, topics, tmp_path, publisher)
    await publisher.close()


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await asyncio.to_thread(look):  # noqa: ASYNC110  (what is looked at lies in the broker)
            await asyncio.sleep(0.1)


async def test_pages_after_a_slow_one_are_worked_on_but_nothing_is_committed_past_it(road: Road) -> None:
    road.expander.gates[0] = asyncio.Event()
    await road.write(*(codec.encode(page(number)) for number in range(20)))
    async with road.running():
        await until(lambda: len(road.expander.done) == agents.PAGES_IN_FLIGHT - 1)
        await asyncio.sleep(1.0)
        assert road.committed() <= 0
        assert road.expander.done == list(range(1, agents.PAGES_IN_FLIGHT))
        road.expander.gates[0].set()
        await until(lambda: road.committed() == 20)
    assert sorted(road.expander.done) == list(range(20))


async def test_a_page_in_work_when_its_process_dies_is_done_by_the_next_one(road: Road) -> None:
    road.expander.gates[0] = asyncio.Event()
    await road.write(*(codec.encode(page(number)) for number in range(6)))
    async with road.running():
        await until(lambda: len(road.expander.done) == 5)
    road.expander = Expander()
    async with road.running():
        await until(lambda: road.committed() == 6)
    assert 0 in road.expander.done


async def test_a_page_is_tried_again_until_redis_is_back_and_the_process_stays(road: Road) -> None:
    road.expander.failing[1] = StoreDown("Redis is away")
    await road.write(*(codec.encode(page(number)) for number in range(3)))
    async with road.running() as task:
        await until(lambda: road.expander.tries.count(1) >= 3)
        assert road.committed() <= 1
        assert not task.done()
        road.expander.failing.clear()
        await until(lambda: road.committed() == 3)
    assert sorted(road.expander.done) == [0, 1, 2]


async def test_the_headers_of_a_page_go_on_with_it(road: Road) -> None:
    trace = (("traceparent", b"00-1-2-01"),)
    await road.publisher.publish([Outgoing(road.topics.pages, b"k", codec.encode(page(0)), trace)])
    async with road.running():
        await until(lambda: road.committed() == 1)
    assert road.expander.headers == [trace]


async def test_garbage_is_parked_byte_for_byte_and_the_pages_around_it_are_fanned_out(road: Road) -> None:
    garbage = codec.encode(page(1)) + b"\x00"
    await road.write(codec.encode(page(0)), garbage, codec.encode(page(2)))
    async with road.running():
        await until(lambda: road.committed() == 3)
    assert sorted(road.expander.done) == [0, 2]
    reader = KafkaLogReader(road.kafka)
    letter = await reader.read(road.topics.internal_dlq, 0, 0)
    await reader.close()
    assert letter is not None
    assert (letter.value, letter.header("tid-error-class")) == (garbage, b"undecodable")


async def test_an_unexpected_error_ends_the_process_and_the_page_is_not_committed(road: Road) -> None:
    road.expander.failing[1] = RuntimeError("a bug")
    await road.write(*(codec.encode(page(number)) for number in range(3)))
    async with road.running() as task:
        with pytest.raises(RuntimeError, match="a bug"):
            await asyncio.wait_for(asyncio.shield(task), DEADLINE_S)
    assert road.committed() <= 1


@pytest.mark.parametrize("waits", [True, False], ids=["waiting for pages", "while nobody waits for a page"])
async def test_of_two_processes_of_one_name_the_first_ends_and_says_why_and_the_second_works_on(
    road: Road, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K24: they would drive each other out of the group at every heartbeat, for ever."""
    if not waits:
        monkeypatch.setattr(SubscriptionState, "abort_waiters", lambda self, error: None)
    async with road.running("the same") as first:
        await road.write(codec.encode(page(0)))
        await until(lambda: road.committed() == 1)
        async with road.running("the same") as second:
            with pytest.raises(Transient, match="another process is the member the same"):
                async with asyncio.timeout(DEADLINE_S):
                    await asyncio.shield(first)
            await road.write(codec.encode(page(1)))
            await until(lambda: road.committed() == 2)
            assert not second.done()
    assert road.expander.done == [0, 1]
