"""Each repair of Faust beside the fault it repairs: when a test of a fault turns red, the repair can go."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import faust
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition, client
from aiokafka.consumer.fetcher import Fetcher, FetchResult
from aiokafka.errors import KafkaError
from faust.exceptions import ProducerSendError
from faust.transport.consumer import IntervalTree
from faust.transport.producer import ProducerBuffer
from faust.types.tuples import TP

from schemas.errors import Misconfigured, Transient
from schemas.topics import Topics
from streams import agents, faust_patches
from streams.faust_patches import UNPATCHED

PLACE = TP("delivery.status", 0)
Offset = Callable[[Any, TP], int | None]


def consumer(committed: int | None, acked: list[int], in_work: list[int], generation: int = 1) -> Any:
    """What of Faust's consumer decides on commits. Offsets in work are handed out and not acknowledged."""
    return SimpleNamespace(
        app=SimpleNamespace(
            consumer_generation_id=generation, topics=SimpleNamespace(acks_enabled_for=lambda topic: True)
        ),
        _acked=defaultdict(list, {PLACE: list(acked)}),
        _acked_index=defaultdict(set, {PLACE: set(acked)}),
        _gap=defaultdict(list),
        _committed_offset=defaultdict(lambda: None, {PLACE: committed}),
        _unacked_messages={message(offset) for offset in in_work},
        _waiting_for_ack=None,
        _n_acked=0,
    )


class message:  # noqa: N801  (reads as a value below)
    """A record handed out to an agent."""

    def __init__(self, offset: int, generation: int = 1) -> None:
        self.tp, self.topic, self.offset, self.generation_id, self.acked = PLACE, PLACE.topic, offset, generation, False


cases = pytest.mark.parametrize(
    ("committed", "acked", "in_work", "leaky", "safe"),
    [
        pytest.param(31, [32, 33], [31], 34, None, id="the record at the committed offset is in work"),
        pytest.param(None, [5, 6], [3, 4], 7, None, id="nothing committed yet"),
        pytest.param(31, [31, 32, 34], [33], 33, 33, id="a record in the middle is in work"),
        pytest.param(31, [31, 32], [], 33, 33, id="all done"),
        pytest.param(31, [31, 32], [33], 33, 33, id="the next one is in work"),
    ],
)


@cases
def test_an_offset_is_never_committed_past_a_record_in_work(
    committed: int | None, acked: list[int], in_work: list[int], leaky: int, safe: int | None
) -> None:
    assert UNPATCHED["new_offset"](consumer(committed, acked, in_work), PLACE) == leaky
    assert faust_patches.new_offset(consumer(committed, acked, in_work), PLACE) == safe


def test_what_was_held_back_is_committed_once_the_record_in_work_is_done() -> None:
    stub = consumer(31, [32, 33], [31])
    assert faust_patches.new_offset(stub, PLACE) is None
    stub._unacked_messages.clear()
    stub._acked[PLACE].append(31)
    stub._acked_index[PLACE].add(31)
    assert faust_patches.new_offset(stub, PLACE) == 34


def test_a_record_fetched_before_a_rebalance_is_not_acknowledged_after_it() -> None:
    leaky, safe = consumer(None, [], [], generation=2), consumer(None, [], [], generation=2)
    UNPATCHED["ack"](leaky, message(7, generation=1))
    assert leaky._acked[PLACE] == [7]
    assert faust_patches.ack(safe, message(7, generation=1)) is False
    assert safe._acked[PLACE] == []
    assert faust_patches.ack(safe, message(7, generation=2)) is True


async def test_records_that_were_never_handed_out_are_not_committed_past() -> None:
    leaky = consumer(31, [31, 34], [])
    leaky._gap = defaultdict(IntervalTree)
    await UNPATCHED["add_gap"](leaky, PLACE, 32, 33)
    assert UNPATCHED["new_offset"](leaky, PLACE) == 35
    with pytest.raises(Transient, match="went from 32 to 33"):
        await faust_patches.add_gap(consumer(31, [31, 34], []), PLACE, 32, 33)


class SlowChannel:
    """Hands a record to the client only when told to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.published = 0

    async def publish_message(self, _fut: Any, wait: bool) -> None:
        await self.open.wait()
        self.published += 1


@pytest.fixture
async def buffer() -> AsyncIterator[tuple[ProducerBuffer, SlowChannel]]:
    faust_patches.apply()
    channel, buffer = SlowChannel(), ProducerBuffer()
    buffer.app = SimpleNamespace(conf=SimpleNamespace(producer_threaded=False))
    await buffer.start()
    for _ in range(3):
        buffer.put(SimpleNamespace(message=SimpleNamespace(channel=channel)))
    await asyncio.sleep(0)
    yield buffer, channel
    channel.open.set()
    await faust_patches.buffer_flush(buffer)
    await buffer.stop()


async def test_a_commit_waits_until_the_producers_buffer_is_empty(
    buffer: tuple[ProducerBuffer, SlowChannel],
) -> None:
    queue, channel = buffer
    await UNPATCHED["buffer_flush"](queue)
    assert channel.published == 0, "the unpatched flush gave up while nothing was sent"
    flush = asyncio.ensure_future(queue.flush())
    await asyncio.wait({flush}, timeout=0.15)
    assert not flush.done()
    channel.open.set()
    await flush
    assert channel.published == 3


async def test_the_record_on_its_way_out_of_the_buffer_is_waited_for_too() -> None:
    faust_patches.apply()
    channel, queue = SlowChannel(), ProducerBuffer()
    queue.app = SimpleNamespace(conf=SimpleNamespace(producer_threaded=False))
    await queue.start()
    queue.put(SimpleNamespace(message=SimpleNamespace(channel=channel)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert queue.size == 0
    await UNPATCHED["buffer_flush"](queue)
    assert channel.published == 0
    channel.open.set()
    await queue.flush()
    assert channel.published == 1
    await queue.stop()


async def test_whoever_waits_for_acknowledgements_can_be_told_to_stop() -> None:
    for wait, stops in ((UNPATCHED["wait_for_ack"], False), (faust_patches.wait_for_ack, True)):
        waiting = asyncio.ensure_future(wait(SimpleNamespace(loop=asyncio.get_running_loop()), timeout=60))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled() is stops, "the unpatched one swallows it, and goes on waiting for ever"


async def test_a_failed_send_ends_the_process_and_nothing_is_committed_any_more(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    told: list[BaseException] = []
    app.sensors.add(faust_patches.FailedSends(told.append))
    producer = app.producer
    failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    failed.set_exception(RuntimeError("the broker refused"))
    pending = SimpleNamespace(
        set_exception=lambda error: None, message=SimpleNamespace(channel=app.topic("x"), callback=None)
    )
    app.topic("x")._on_published(failed, pending, producer, defaultdict(lambda: None))
    assert [str(error) for error in told] == ["the broker refused"]
    await UNPATCHED["producer_flush"](producer)
    with pytest.raises(ProducerSendError, match="nothing may be committed"):
        await producer.flush()


class Fetched:
    """Records that the client has fetched ahead; handing them out moves its position."""

    def __init__(self) -> None:
        self.next_fetch_offset = 0

    def __iter__(self) -> Iterator[str]:
        yield "a record"
        self.next_fetch_offset = 1


async def test_a_fetch_while_all_partitions_are_paused_takes_nothing() -> None:
    for fetch, taken in ((UNPATCHED["fetch_records"], ["a record"]), (faust_patches.fetch_records, [])):
        position = SimpleNamespace(paused=False, position=0, consumed_to=lambda offset: None)
        assignment = SimpleNamespace(active=True, state_value=lambda place, position=position: position)
        fetched = FetchResult(PLACE, assignment=assignment, partition_records=Fetched(), backoff=0)
        subscriptions = SimpleNamespace(
            reassignment_in_progress=False, is_assigned=lambda place: True, fetch_context=nullcontext
        )
        fetcher = Mock(_records={PLACE: fetched}, _subscriptions=subscriptions, _closed=False)
        fetcher.fetched_records = partial(Fetcher.fetched_records, fetcher)
        thread = SimpleNamespace(consumer=SimpleNamespace(flow_active=True))
        records = await fetch(thread, Mock(_closed=False, _fetcher=fetcher), set(), timeout=0)
        assert [record for found in records.values() for record in found] == taken
        again = await fetch(thread, Mock(_closed=False, _fetcher=fetcher), {PLACE}, timeout=0)
        assert bool(again) is not bool(taken), "what was not taken is there when the partition is read"


@pytest.mark.parametrize(("silent_s", "replaced"), [(5.0, True), (7.0, False)])
async def test_who_was_silent_for_longer_than_its_session_joins_again_and_takes_nobody_for_its_double(
    silent_s: float, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it stood still before its first sign of life, right after the group had let it in."""

    async def disowned(coordinator: Any) -> bool:
        coordinator.member_id = ""
        return False

    monkeypatch.setitem(UNPATCHED, "heartbeat", disowned)
    monkeypatch.setitem(UNPATCHED, "start_heartbeat_task", lambda coordinator: None)
    member = SimpleNamespace(member_id="m-1", group_id="g", _group_instance_id="a name", _session_timeout_ms=6_000)
    faust_patches.start_heartbeat_task(member)
    member.heard_at_s -= silent_s
    with pytest.raises(KafkaError, match="another process is the member a name") if replaced else nullcontext():
        assert not await faust_patches.heartbeat(member)


def restored(steps: list[str]) -> Any:
    """What of Faust's recovery brings a process from its restored tables to reading; tells in which steps."""

    def step(name: str) -> Callable[..., None]:
        return lambda *_: steps.append(name)

    async def nothing(*_: Any) -> None: ...

    async def seek() -> None:
        steps.append("seek")

    consumer = SimpleNamespace(
        assignment=lambda: {PLACE}, perform_seek=seek, resume_partitions=step("read"), resume_flow=step("flow")
    )
    app = SimpleNamespace(
        consumer=consumer,
        consumer_generation_id=1,
        on_rebalance_complete=SimpleNamespace(send=nothing),
        conf=SimpleNamespace(broker_request_timeout=1.0),
        flow_control=SimpleNamespace(resume=lambda: None),
        _fetcher=SimpleNamespace(maybe_start=nothing),
        assignor=SimpleNamespace(assigned_standbys=set),
        on_rebalance_end=step("end"),
    )
    tables = SimpleNamespace(values=list, on_actives_ready=lambda: None, on_standbys_ready=lambda: None)
    return SimpleNamespace(
        app=app,
        tables=tables,
        log=Mock(),
        _set_recovery_ended=lambda: None,
        _is_changelog_tp=lambda place: False,
        _wait=lambda waited, timeout: waited,
        completed=asyncio.Event(),
    )


@pytest.mark.parametrize(
    ("complete", "expected"),
    [
        pytest.param(UNPATCHED["on_recovery_completed"], ["read", "seek", "flow", "end"], id="unpatched"),
        pytest.param(faust_patches.on_recovery_completed, ["seek", "read", "flow", "end"], id="patched"),
    ],
)
async def test_nothing_is_read_after_a_restore_before_the_place_is_found(
    complete: Callable[..., Awaitable[None]], expected: list[str]
) -> None:
    steps: list[str] = []
    await complete(restored(steps), 1)
    assert steps == expected
    steps.clear()
    await complete(restored(steps), 2)
    assert steps == [], "another rebalance has begun meanwhile"


class Client:
    """What of aiokafka's consumer decides where it reads on. Nothing is committed; all has been fetched."""

    seek_to_committed = AIOKafkaConsumer.seek_to_committed

    def __init__(self) -> None:
        source, changelog = TopicPartition("delivery.status", 0), TopicPartition("the-changelog", 0)
        self.positions = {source: 286, changelog: 40}
        self._subscription = SimpleNamespace(assigned_partitions=self.assignment)
        self._fetcher = SimpleNamespace(seek_to=self.positions.__setitem__)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.positions)

    async def committed(self, _place: TopicPartition) -> None:
        return None

    async def seek_to_beginning(self, *places: TopicPartition) -> None:
        self.positions.update(dict.fromkeys(places, 0))


async def test_what_a_restore_fetched_and_dropped_is_read_also_when_nothing_was_committed_yet() -> None:
    for seek, reads_from in ((UNPATCHED["seek_to_committed"], 286), (faust_patches.seek_to_committed, 0)):
        client = Client()

        async def call_thread(act: Callable[..., Any], *places: TopicPartition) -> Any:
            return await act(*places)

        app = SimpleNamespace(tables=SimpleNamespace(changelog_topics={"the-changelog"}))
        await seek(SimpleNamespace(app=app, _ensure_consumer=lambda client=client: client, call_thread=call_thread))
        assert list(client.positions.values()) == [reads_from, 40]


def make_app(tmp_path: Path, **options: Any) -> faust.App:
    settings = agents.FaustOptions({"bootstrap.servers": "127.0.0.1:1"}, tmp_path, **options)
    return agents.make_app("status", Topics(), settings, store="memory://")


async def test_a_process_that_failed_commits_nothing_while_it_ends(tmp_path: Path) -> None:
    """Faust acknowledges what an agent had in hand when it stops it: a record that was never worked on was gone."""
    options = agents.FaustOptions({"bootstrap.servers": "127.0.0.1:1"}, tmp_path)
    process = agents.FaustProcess(agents.make_app("status", Topics(), options))
    process.app.consumer._acked[PLACE].append(7)
    process.fail(Transient("stood still"))
    assert await process.app.consumer.commit() is False
    process.app.consumer._thread.thread_loop.close()  # made for a thread that never started


def test_exactly_once_is_refused_with_the_reason(tmp_path: Path) -> None:
    """K09."""
    with pytest.raises(Misconfigured, match="at_least_once"):
        make_app(tmp_path, processing_guarantee="exactly_once")


def test_another_release_of_faust_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faust_patches, "version", lambda name: "0.16.0")
    with pytest.raises(Misconfigured, match=r"0\.16\.0"):
        faust_patches.check_version()


async def test_an_application_is_set_as_the_rules_ask(tmp_path: Path) -> None:
    conf = make_app(tmp_path).conf
    assert conf.processing_guarantee.value == "at_least_once"
    assert (conf.web_enabled, conf.topic_disable_leader, conf.topic_allow_declare) == (False, True, False)
    assert (conf.broker_max_poll_records, conf.stream_buffer_maxsize, conf.producer_acks) == (500, 2000, -1)
    assert conf.producer_max_request_size == 1_048_576


async def test_nothing_in_the_environment_changes_how_an_application_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K09. Faust prefers variables to what it is told in code, and their names are anybody's."""
    for name in ("PROCESSING_GUARANTEE", "STREAM_WAIT_EMPTY", "BROKER_COMMIT_INTERVAL", "CONSUMER_AUTO_OFFSET_RESET"):
        monkeypatch.setenv(name, {"PROCESSING_GUARANTEE": "exactly_once", "STREAM_WAIT_EMPTY": "0"}.get(name, "77"))
    conf = make_app(tmp_path).conf
    assert conf.processing_guarantee.value == "at_least_once"
    assert (conf.stream_wait_empty, conf.consumer_auto_offset_reset) == (True, "earliest")
    assert conf.broker_commit_interval == agents.FaustOptions({}, tmp_path).commit_every_s


async def test_a_client_that_repeats_itself_a_hundred_times_a_second_is_heard_once_in_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_app(tmp_path)
    make_app(tmp_path / "again")
    for number in range(100):
        client.log.error("Unable connect to node with id %s: %s", number, "refused")
    client.log.error("Topic %s is not available", "pages")
    assert [record.getMessage() for record in caplog.records] == [
        "Unable connect to node with id 0: refused",
        "Topic pages is not available",
    ]


async def test_an_empty_fetch_does_not_hold_up_a_restore_for_a_second_and_a_half(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    thread = app.consumer._thread
    slow, quick = UNPATCHED["worker_consumer"](thread, app.transport), thread._create_worker_consumer(app.transport)
    assert (slow._fetch_max_wait_ms, quick._fetch_max_wait_ms) == (1500, faust_patches.FETCH_WAIT_MS)
    await slow.stop()
    await quick.stop()
    thread.thread_loop.close()
