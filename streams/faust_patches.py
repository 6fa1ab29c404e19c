"""Repairs of faust-streaming 0.15.3, without which records and rows can be lost silently.

1. `Consumer._new_offset` commits past a record that is still being worked on.
2. `ProducerBuffer.flush` gives up after 100 ms without progress, and the commit goes on.
3. A failed send is only logged, and the commit goes on: `FailedSends` ends the process instead.
4. A record skipped because it was fetched before a rebalance is acknowledged in the new assignment.
5. `Consumer._wait_for_ack` swallows its cancellation: a process that failed waits for ever, and nobody restarts it.
6. A member whose fixed name was taken by another takes it back: both do so for ever, and neither reads anything.
7. What a fetch brought and a rebalance kept from being handed out counts as done: the commit goes past it.
8. After a restore reading begins before the seek to where it should: records come twice, or seem to have holes.
9. While every partition is paused, as at the end of a restore, a fetch takes the records of all of them and drops
   them: nobody reads them, and the process stands at their beginning for ever.
10. Where nothing was committed yet, the seek after a restore moves nothing: what was dropped before is not read again.
11. What the client cannot go on from it tells only whoever waits for records at that moment. If nobody does, the
    process stays outside of its group for ever: it goes on reading its old partitions, and can commit nothing.
And one that makes restoring slow:
12. An empty fetch waits 1.5 s at the broker, and so does every other question on its connection behind it.
Each has a test that fails on the unpatched code. With another Faust release this module refuses to be imported:
read its changes first, run the tests against it, then change FAUST_VERSION and the pin in pyproject.toml.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container
from importlib.metadata import version
from typing import Any

import faust
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaError
from faust.exceptions import ProducerSendError
from faust.tables.recovery import Recovery
from faust.transport.consumer import Consumer
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Producer
from faust.transport.producer import ProducerBuffer
from mode.utils.futures import notify

from schemas.errors import Misconfigured, Transient

log = logging.getLogger(__name__)

FAUST_VERSION = "0.15.3"
FLUSH_TIMEOUT_S = 60.0
"""A buffer that is not drained by then fails the commit, and with it the process."""
FETCH_WAIT_MS = 200
"""A rebalance asks for offsets three times over."""
UNPATCHED = {
    "new_offset": Consumer._new_offset,
    "buffer_flush": ProducerBuffer.flush,
    "send_pending": ProducerBuffer._send_pending,
    "producer_flush": Producer.flush,
    "ack": Consumer.ack,
    "wait_for_ack": Consumer._wait_for_ack,
    "add_gap": Consumer._add_gap,
    "fetch_records": AIOKafkaConsumerThread._fetch_records,
    "on_recovery_completed": Recovery.on_recovery_completed,
    "seek_to_committed": AIOKafkaConsumerThread.seek_to_committed,
    "start_heartbeat_task": GroupCoordinator._start_heartbeat_task,
    "heartbeat": GroupCoordinator._do_heartbeat,
    "push_error_to_user": GroupCoordinator._push_error_to_user,
    "worker_consumer": AIOKafkaConsumerThread._create_worker_consumer,
}
"""The originals, for the tests that show why each repair is needed."""


def apply() -> None:
    """Puts the repairs in place, for every Faust application of this process. Doing it again changes nothing."""
    Consumer._new_offset = new_offset
    ProducerBuffer.flush = buffer_flush
    ProducerBuffer._send_pending = send_pending
    Producer.flush = producer_flush
    Consumer.ack = ack
    Consumer._wait_for_ack = wait_for_ack
    Consumer._add_gap = add_gap
    AIOKafkaConsumerThread._fetch_records = fetch_records
    Recovery.on_recovery_completed = on_recovery_completed
    AIOKafkaConsumerThread.seek_to_committed = seek_to_committed
    GroupCoordinator._start_heartbeat_task = start_heartbeat_task
    GroupCoordinator._do_heartbeat = heartbeat
    GroupCoordinator._push_error_to_user = push_error_to_user
    AIOKafkaConsumerThread._create_worker_consumer = worker_consumer


def check_version() -> None:
    """Raises Misconfigured when the installed Faust is not the one these repairs were written for."""
    installed = version("faust-streaming")
    if installed != FAUST_VERSION:
        raise Misconfigured(f"faust-streaming {installed} is installed, but only {FAUST_VERSION} is known to be safe")


def check_guarantee(processing_guarantee: str) -> None:
    """Raises Misconfigured for exactly_once: in this release it duplicates, crashes and loses table writes."""
    if processing_guarantee != "at_least_once":
        raise Misconfigured(
            f"processing_guarantee {processing_guarantee!r} cannot be used: set it to at_least_once. Counts and "
            "statuses are exact all the same, as every merge may be repeated"
        )


class FailedSends(faust.Sensor):
    """Ends the process at the first send that failed: what it should have written may be nowhere else."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        super().__init__()
        self._on_failure = on_failure

    def on_send_error(self, producer: Any, exc: BaseException, state: Any) -> None:
        producer.failed_send = exc
        log.critical("faust.send_failed", extra={"error": str(exc)[:200]})
        self._on_failure(exc)


class Settled(faust.Sensor):
    """Sets the event when a rebalance is through: partitions known, tables restored, reading begun."""

    def __init__(self, event: asyncio.Event) -> None:
        super().__init__()
        self._event = event

    def on_rebalance_end(self, app: Any, state: Any) -> None:
        self._event.set()


def new_offset(self: Any, tp: Any) -> int | None:
    """The offset that may be committed: never past a record that was handed out and not acknowledged yet."""
    in_work = min((message.offset for message in self._unacked_messages if message.tp == tp), default=None)
    acked = self._acked[tp]
    if in_work is None or not acked:
        return original_new_offset(self, tp)
    held_back = [offset for offset in acked if offset >= in_work]
    acked[:] = [offset for offset in acked if offset < in_work]
    try:
        return original_new_offset(self, tp) if acked else None
    finally:
        acked.extend(held_back)


def ack(self: Any, message: Any) -> bool:
    """As the original, but a record fetched before the last rebalance counts for nothing: it is fetched again."""
    if message.generation_id != self.app.consumer_generation_id:
        self._unacked_messages.discard(message)
        message.acked = True
        notify(self._waiting_for_ack)
        return False
    acked: bool = UNPATCHED["ack"](self, message)
    return acked


async def wait_for_ack(self: Any, timeout: float) -> None:
    """Returns at the next acknowledgement, or when the time is up."""
    self._waiting_for_ack = asyncio.get_running_loop().create_future()
    try:
        await asyncio.wait({self._waiting_for_ack}, timeout=timeout)
    finally:
        self._waiting_for_ack = None


def start_heartbeat_task(self: Any) -> None:
    """As the original, and notes that the group has just let this member in."""
    self.heard_as, self.heard_at_s = self.member_id, asyncio.get_running_loop().time()
    UNPATCHED["start_heartbeat_task"](self)


async def heartbeat(self: Any) -> bool:
    """As the original; raises KafkaError, by which the process ends, when another member took our fixed name.

    A member that is unknown although it was heard within its session was replaced, not timed out.
    """
    now_s = asyncio.get_running_loop().time()
    alive: bool = await UNPATCHED["heartbeat"](self)
    if alive:
        self.heard_at_s = now_s
    elif _is_unknown(self) and now_s - self.heard_at_s < self._session_timeout_ms / 1000:
        raise KafkaError(
            f"another process is the member {self._group_instance_id} of {self.group_id} now: two of them share a "
            "machine's name and a [streams] folder. Give each a folder of its own"
        )
    return alive


def _is_unknown(coordinator: Any) -> bool:
    """Whether the group has just disowned a member with a fixed name."""
    return coordinator._group_instance_id is not None and coordinator.member_id != coordinator.heard_as


def push_error_to_user(self: Any, error: BaseException) -> Awaitable[Any]:
    """As the original, and ends the process whether or not anybody waits for records. Called on the client's thread."""
    thread = self._subscription.listener._thread
    asyncio.run_coroutine_threadsafe(thread.app.crash(error), thread.parent_loop)
    told: Awaitable[Any] = UNPATCHED["push_error_to_user"](self, error)
    return told


async def add_gap(self: Any, tp: Any, offset_from: int, offset_to: int) -> None:
    """Ends the process: what we read has no holes, so records were lost on the way. Its next start reads them."""
    raise Transient(f"{tp.topic}/{tp.partition} went from {offset_from} to {offset_to}")


class OnlyThese:
    """Partitions to be read, as they are at each moment. The client takes an empty set, which is false, for all."""

    def __init__(self, places: Container[Any]) -> None:
        self._places = places

    def __contains__(self, place: Any) -> bool:
        return place in self._places


async def fetch_records(self: Any, consumer: Any, active_partitions: Any, **limits: Any) -> Any:
    """As the original, but none are none."""
    only = OnlyThese(active_partitions) if active_partitions is not None else None
    return await UNPATCHED["fetch_records"](self, consumer, only, **limits)


async def on_recovery_completed(self: Any, generation_id: int = 0) -> None:
    """As the original, which lets partitions be read and then seeks."""
    app, consumer = self.app, self.app.consumer
    await app.on_rebalance_complete.send()
    self._set_recovery_ended()
    tables = [
        table.on_recovery_completed(self.actives_for_table[table], self.standbys_for_table[table])
        for table in self.tables.values()
    ]
    await asyncio.gather(*tables)
    assigned = consumer.assignment()
    if app.consumer_generation_id != generation_id:
        return
    if assigned:
        await self._wait(consumer.perform_seek(), timeout=app.conf.broker_request_timeout)
    consumer.resume_partitions({place for place in assigned if not self._is_changelog_tp(place)})
    self.completed.set()
    app.flow_control.resume()
    consumer.resume_flow()
    await app._fetcher.maybe_start()
    self.tables.on_actives_ready()
    if not app.assignor.assigned_standbys():
        self.tables.on_standbys_ready()
    app.on_rebalance_end()


async def seek_to_committed(self: Any) -> Any:
    """As the original, and to the beginning where nothing was committed; changelogs, which never are, stay."""
    committed = await UNPATCHED["seek_to_committed"](self)
    client, changelogs = self._ensure_consumer(), self.app.tables.changelog_topics
    fresh = [place for place, offset in committed.items() if not offset and place.topic not in changelogs]
    if still_ours := client.assignment().intersection(fresh):
        await self.call_thread(client.seek_to_beginning, *still_ours)
    return committed


def worker_consumer(self: Any, transport: Any) -> Any:
    """The same client, whose fetches wait only so long for a record to come."""
    made = UNPATCHED["worker_consumer"](self, transport)
    made._fetch_max_wait_ms = FETCH_WAIT_MS
    return made


def original_new_offset(self: Any, tp: Any) -> int | None:
    offset: int | None = UNPATCHED["new_offset"](self, tp)
    return offset


async def send_pending(self: Any, fut: Any) -> None:
    """As the original, and tells the flush while a record is on its way from the queue to the client."""
    self.in_hand = True
    try:
        await UNPATCHED["send_pending"](self, fut)
    finally:
        self.in_hand = False
        self.message_sent.set()


async def buffer_flush(self: Any) -> None:
    """Returns when everything put so far is with the client: queue and record in hand."""
    async with asyncio.timeout(FLUSH_TIMEOUT_S):
        while self.size or getattr(self, "in_hand", False):
            if self.state != "running":
                raise RuntimeError("Faust's producer stopped with records unsent")
            self.message_sent.clear()
            await self.message_sent.wait()


async def producer_flush(self: Any) -> None:
    """As the original, and refuses when any send failed: what comes next is a commit."""
    await UNPATCHED["producer_flush"](self)
    if (error := getattr(self, "failed_send", None)) is not None:
        raise ProducerSendError(f"an earlier send failed, nothing may be committed: {error}")


check_version()
