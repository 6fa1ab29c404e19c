"""The Kafka door of leadership: who may act as dispatch, and since when.

The leader is the member of a consumer group that owns the one partition of `dispatch.leader`. It writes a record
there, and that record's offset is its epoch. A dead leader is replaced after the group's session time-out.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import OFFSET_END, Consumer, KafkaException

from schemas import codec, metrics
from schemas.clock import Clock
from schemas.errors import Poison, Transient
from schemas.messages import LeaderRecord
from schemas.records import Outgoing, Publisher

log = logging.getLogger(__name__)

POLL_S = 0.1
RETRY_S = 0.5


class Leadership(Protocol):
    """What dispatch asks before it acts."""

    @property
    def epoch(self) -> int | None:
        """The epoch while this process leads, else None."""
        ...

    async def acquired(self) -> int:
        """Returns the epoch as soon as this process leads."""
        ...


@dataclass(frozen=True, slots=True)
class LeaderOptions:
    """A dead leader is noticed after session_timeout_s (the broker's minimum is 6)."""

    session_timeout_s: float = 6.0
    heartbeat_s: float = 1.5


class KafkaLeadership:
    """Body of Leadership. instance: a name of this process, unique among all.

    joined: set once the group has decided who leads; who does not stands by.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        topic: str,
        group: str,
        instance: str,
        publisher: Publisher,
        clock: Clock,
        options: LeaderOptions | None = None,
    ) -> None:
        self._topic = topic
        self._instance = instance
        self._publisher = publisher
        self._clock = clock
        self._consumer = Consumer(_settings(kafka, group, options or LeaderOptions()))
        self._epoch: int | None = None
        self._owns = False
        self._claim: asyncio.Task[None] | None = None
        self._acquired = asyncio.Event()
        self.joined = asyncio.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="leadership", daemon=True)

    @property
    def epoch(self) -> int | None:
        return self._epoch

    async def start(self) -> None:
        """Joins the group."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def acquired(self) -> int:
        while self._epoch is None:
            await self._acquired.wait()
        return self._epoch

    async def close(self) -> None:
        """Steps down and leaves the group, so that another may take over at once."""
        self._lost()
        self._closed.set()
        await asyncio.to_thread(self._thread.join)

    # On the event loop.

    def _gained(self) -> None:
        self._owns = True
        self._write_soon()

    def _lost(self) -> None:
        if self._epoch is not None:
            log.warning("dispatch.leadership_lost", extra={"epoch": self._epoch})
        self._owns, self._epoch = False, None
        self._acquired.clear()
        metrics.LEADER.set(0)

    def _seen(self, offset: int, instance: str) -> None:
        """A later record of somebody else: a former leader that did not know. Write again, to be the newest."""
        if self._epoch is not None and offset > self._epoch and instance != self._instance:
            self._write_soon()

    def _write_soon(self) -> None:
        if self._claim is None or self._claim.done():
            self._claim = self._loop.create_task(self._write())

    async def _write(self) -> None:
        """Writes until the log has it; gives up when leadership is lost meanwhile."""
        while self._owns:
            value = codec.encode(LeaderRecord(self._instance, self._clock.now_ms()))
            try:
                (placed,) = await self._publisher.publish([Outgoing(self._topic, b"leader", value)])
            except Transient as error:
                log.warning("dispatch.leader_record_unwritten", extra={"error": str(error)})
                await asyncio.sleep(RETRY_S)
                continue
            if self._owns:
                self._epoch = placed.offset
                self._acquired.set()
                metrics.LEADER.set(1)
                log.info("dispatch.leadership_gained", extra={"epoch": placed.offset})
            return

    # In the thread.

    def _poll(self) -> None:
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )
        while not self._closed.is_set():
            try:
                message = self._consumer.poll(POLL_S)
            except KafkaException as error:
                log.warning("dispatch.leader_poll_failed", extra={"error": str(error)})
                continue
            if message is not None and message.error() is None:
                self._tell(self._seen, message.offset(), _instance(message.value()))
        self._consumer.close()

    def _on_assign(self, consumer: Any, partitions: Any) -> None:
        for partition in partitions:
            partition.offset = OFFSET_END
        consumer.assign(partitions)
        self._tell(self.joined.set)
        if partitions:
            self._tell(self._gained)

    def _on_revoke(self, _consumer: Any, _partitions: Any) -> None:
        self._tell(self._lost)

    def _tell(self, method: Any, *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(method, *args)
        except RuntimeError:  # the loop has ended, and with it the leadership
            log.debug("dispatch.leadership_ended_with_the_loop")


def _instance(value: bytes | None) -> str:
    try:
        return codec.decode(value, LeaderRecord).instance
    except Poison:
        return ""


def _settings(kafka: Mapping[str, str], group: str, options: LeaderOptions) -> dict[str, Any]:
    return {
        # librdkafka would write a line for every attempt to connect; what matters comes as an error.
        "log_level": 2,
        **kafka,
        "group.id": group,
        "partition.assignment.strategy": "range",
        "session.timeout.ms": int(options.session_timeout_s * 1000),
        "heartbeat.interval.ms": int(options.heartbeat_s * 1000),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "latest",
        # Else a topic that the broker did not know yet when we subscribed would have no leader for five minutes.
        "topic.metadata.refresh.interval.ms": 10_000,
    }
