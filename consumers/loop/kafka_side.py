"""The Kafka thread of the engine: polls, answers rebalances, commits by low watermark, presses back.

It alone touches the consumer (a call from another thread would wait for as long as this one polls). It talks to
the engine's event loop through `LoopSide`, and reads the trackers' numbers. Rules and traps: DESIGN section 8.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from consumers.loop import assignment, commits, options, pressure
from consumers.loop.tracker import Tracker
from schemas import metrics
from schemas.clock import Clock
from schemas.errors import Misconfigured
from schemas.gaps import Gap
from schemas.records import Record

log = logging.getLogger(__name__)

Fresh = list[tuple[Tracker, list[Record]]]
"""Fresh records by partition."""

POLL_S = 0.1
MARKS_POLL_S = 0.002
"""While records are handled alone, each waits for its mark to be served."""
CONSUME_RECORDS = 500
DRAIN_TURN_S = 0.02
ENDS_S = 1.0
LOOK_AT_ENDS_S = 10.0
"""The broker is asked this often where its partitions end: a consumer that has gone deaf cannot know."""


class LoopSide(Protocol):
    """The engine's event loop, as the Kafka thread sees it. All but `drain` return at once."""

    def assigned(self, trackers: Sequence[Tracker]) -> None: ...

    def receive(self, fresh: Fresh) -> None: ...

    def drain(self, trackers: Sequence[Tracker], within_s: float) -> Coroutine[Any, Any, None]: ...

    def forget(self, trackers: Sequence[Tracker]) -> None: ...

    def committed(self) -> None: ...

    def ended(self, error: BaseException | None) -> None: ...


class KafkaSide:
    """One consumer and its thread. `room` is set by the event loop whenever it has taken records."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        kafka_options: options.KafkaOptions,
        clock: Clock,
        gap: Gap | None,
        exit_process: Callable[[int], None],
    ) -> None:
        self._options = kafka_options
        self._clock = clock
        self._exit_process = exit_process
        self._settings = options.settings(kafka, kafka_options)
        self._trackers: dict[tuple[str, int], Tracker] = {}
        self._pressure = pressure.Pressure(kafka_options.pressure, kafka_options.group)
        self._stopping = threading.Event()
        self._stop_by_s = 0.0
        self._commits = commits.Commits(kafka_options.group, gap, self._tell, self._committed)
        self._thread = threading.Thread(target=self._run, name="kafka", daemon=True)
        self.brokers_away = False
        self.last_turn_s = clock.steady_s()

    def start(self, loop: asyncio.AbstractEventLoop, side: LoopSide) -> None:
        self._loop, self._side = loop, side
        self._thread.start()

    def stop(self) -> None:
        """Asks the thread to finish what is begun, commit, leave the group and end; within stop_s."""
        if not self._stopping.is_set():
            self._stop_by_s = self._clock.steady_s() + self._options.stop_s
            self._stopping.set()
            self._pressure.room.set()

    def give_room(self) -> None:
        self._pressure.room.set()

    async def mark_alone(self, tracker: Tracker, offset: int | None) -> None:
        """Writes into the commit's metadata which record is in hand alone (None: none); returns once it is there."""
        marked: asyncio.Future[None] = self._loop.create_future()
        self._commits.marks.put((tracker, offset, marked))
        await marked

    def _committed(self) -> None:
        self._side.committed()

    # Everything below runs in the Kafka thread.

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._consumer = Consumer(
                self._settings | {"error_cb": self._on_error, "on_commit": self._commits.answered}
            )
            self._ends = Consumer(self._settings)
            self._consumer.subscribe(
                list(self._options.topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            self._turns()
        except BaseException as failure:  # whatever it is, the engine must end by it
            error = failure
        finally:
            error = self._finish(error)
            self._tell(self._side.ended, error)

    def _turns(self) -> None:
        commit_at = look_at = self._clock.steady_s()
        while not self._stopping.is_set():
            now = self.last_turn_s = self._clock.steady_s()
            self._commits.serve_marks(self._consumer, self._trackers.values())
            if self._pressure.steer(self._consumer, self._trackers.values(), now):
                self._pressure.wait_for_room()
            else:
                self._read()
            if now >= commit_at:
                commit_at = now + self._options.commit_every_s
                self._commits.progress(self._consumer, self._trackers.values())
            if now >= look_at:
                look_at = now + LOOK_AT_ENDS_S
                self._look_at_ends()

    def _read(self) -> None:
        first = self._consumer.poll(POLL_S if not any(t.alone_left for t in self._trackers.values()) else MARKS_POLL_S)
        if first is None:
            return
        batch = self._fresh([first, *self._consumer.consume(CONSUME_RECORDS, 0)])
        if batch:
            self._tell(self._side.receive, batch)

    def _fresh(self, messages: Sequence[Any]) -> Fresh:
        """By partition; without those of partitions that are not (or no longer) ours, and without repeats."""
        found: dict[tuple[str, int], list[Record]] = {}
        trackers = self._trackers
        for message in messages:
            if message.error() is not None:
                self._check(message)
                continue
            place = (message.topic(), message.partition())
            tracker = trackers.get(place)
            if tracker is None or message.offset() < tracker.handed_to:
                continue
            record = _record(message, place)
            tracker.handed_to = record.offset + 1
            tracker.handed += 1
            tracker.handed_bytes += len(record.value or b"")
            found.setdefault(place, []).append(record)
        return [(trackers[place], records) for place, records in found.items()]

    def _check(self, message: Any) -> None:
        """Raises for what a person must mend; the rest passes by itself."""
        error = message.error()
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise Misconfigured(
                f"group {self._options.group}: the committed offset of {message.topic()}/{message.partition()} is no "
                f"longer in the log ({error.str()}). Records were deleted unread; set the offset by hand to go on"
            )
        if error.fatal() or error.code() in _REFUSALS:
            raise Misconfigured(f"group {self._options.group} cannot read {self._options.topics}: {error.str()}")
        log.warning("engine.read_failed", extra={"topic": message.topic(), "error": error.str()})

    def _on_assign(self, consumer: Any, partitions: Sequence[Any]) -> None:
        if self._stopping.is_set():
            return  # leaving the group: it is taken away again before anything is read
        trackers = assignment.begin(consumer, self._ends, partitions, self._options.strict_offsets)
        for tracker in trackers:
            self._trackers[tracker.topic, tracker.partition] = tracker
        consumer.incremental_assign([TopicPartition(t.topic, t.partition, t.watermark) for t in trackers])
        # A pause outlives an assignment in the client: state it for each partition.
        consumer.resume([TopicPartition(t.topic, t.partition) for t in trackers])
        assignment.count_start(consumer, trackers)
        metrics.ENGINE_REBALANCES.labels(self._options.group, "assigned").inc(len(trackers))
        log.info("partitions.assigned", extra={"group": self._options.group, "partitions": _names(trackers)})
        self._tell(self._side.assigned, trackers)

    def _on_revoke(self, consumer: Any, partitions: Sequence[Any]) -> None:
        trackers = [
            self._trackers[p.topic, p.partition] for p in partitions if (p.topic, p.partition) in self._trackers
        ]
        self._give_up(trackers, self._options.drain_s)
        metrics.ENGINE_REBALANCES.labels(self._options.group, "revoked").inc(len(trackers))
        log.info("partitions.revoked", extra={"group": self._options.group, "partitions": _names(trackers)})

    def _on_lost(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Somebody else may own them already: forget, commit nothing."""
        lost = [self._trackers.pop((p.topic, p.partition), None) for p in partitions]
        trackers = [tracker for tracker in lost if tracker is not None]
        for tracker in trackers:
            tracker.alive = False
        metrics.ENGINE_REBALANCES.labels(self._options.group, "lost").inc(len(trackers))
        log.warning("partitions.lost", extra={"group": self._options.group, "partitions": _names(trackers)})
        self._tell(self._side.forget, trackers)

    def _give_up(self, trackers: Sequence[Tracker], within_s: float) -> None:
        """Waits for the work begun on these partitions, commits it, and forgets them."""
        if not trackers:
            return
        self._drain(trackers, within_s)
        self._commits.end(self._consumer, trackers)
        for tracker in trackers:
            del self._trackers[tracker.topic, tracker.partition]
            tracker.alive = False
        self._tell(self._side.forget, trackers)

    def _drain(self, trackers: Sequence[Tracker], within_s: float) -> None:
        drained = asyncio.run_coroutine_threadsafe(self._side.drain(trackers, within_s), self._loop)
        deadline_s = self._clock.steady_s() + within_s
        while self._clock.steady_s() < deadline_s:
            # A record in hand alone waits for its mark before it can be finished.
            self._commits.serve_marks(self._consumer, self._trackers.values())
            try:
                drained.result(DRAIN_TURN_S)
                break
            except TimeoutError:
                continue
        if any(tracker.in_hand for tracker in trackers):
            log.warning("partitions.given_up_with_work_begun", extra={"partitions": _names(trackers)})

    def _on_error(self, error: Any) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN and not self.brokers_away:
            self.brokers_away = True
            metrics.LOG_DOWN.set(1)
            log.warning("engine.lost_all_brokers", extra={"group": self._options.group, "error": error.str()})

    def _look_at_ends(self) -> None:
        """Notes where the partitions end; an answer also shows that the brokers are there (again).

        Asked by a client of its own, which joins nothing: on the consumer's connection each question would wait
        behind a fetch, half a second long where nothing comes.
        """
        asked = [TopicPartition(topic, partition, OFFSET_END) for topic, partition in self._trackers]
        try:
            found = self._ends.offsets_for_times(asked, timeout=ENDS_S) if asked else []
        except KafkaException:
            return
        for place in found:
            if place.error is None:
                self._trackers[place.topic, place.partition].end = place.offset
        if found and self.brokers_away:
            self.brokers_away = False
            metrics.LOG_DOWN.set(0)
            log.info("engine.brokers_are_back", extra={"group": self._options.group})

    def _finish(self, error: BaseException | None) -> BaseException | None:
        """Commits what is done, leaves the group and closes the client, in time or by ending the process."""
        left_s = max(2.0, (self._stop_by_s or self._clock.steady_s() + self._options.stop_s) - self._clock.steady_s())
        watchdog = threading.Timer(left_s, self._close_hangs)
        watchdog.daemon = True
        watchdog.start()
        try:
            self._give_up(list(self._trackers.values()), min(self._options.drain_s, left_s / 2))
        except BaseException as failure:
            error = error or failure
        self._trackers.clear()
        try:
            self._leave(left_s / 4)
            self._consumer.close()
            self._ends.close()
        except BaseException as failure:
            error = error or failure
        watchdog.cancel()
        return error

    def _leave(self, within_s: float) -> None:
        """Returns once the group has let go of us, or after that long.

        By close alone a member that holds no partition would not leave (librdkafka 2.16), and the next rebalance would
        wait for its session to end, and with it whoever commits meanwhile. And a revocation that still waits to be
        served when close begins is told twice: the second answer may come when nobody is there to take it, and close
        never returns.
        """
        deadline_s = self._clock.steady_s() + within_s
        self._consumer.unsubscribe()
        while self._consumer.memberid() and self._clock.steady_s() < deadline_s:
            self._consumer.poll(DRAIN_TURN_S)

    def _close_hangs(self) -> None:
        log.critical("engine.close_hangs", extra={"group": self._options.group})
        self._exit_process(3)

    def _tell(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed: the process is ending
            log.debug("engine.loop_is_gone")


_REFUSALS = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
)


def _record(message: Any, place: tuple[str, int]) -> Record:
    headers = message.headers()
    return Record(
        place[0],
        place[1],
        message.offset(),
        message.key(),
        message.value(),
        tuple([(name, value or b"") for name, value in headers]) if headers else (),
        message.timestamp()[1],
    )


def _names(trackers: Sequence[Tracker]) -> list[str]:
    return [f"{tracker.topic}/{tracker.partition}" for tracker in trackers]
