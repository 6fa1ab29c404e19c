"""The Faust applications: `status` (a table of rows) and `fan_out` (no table). Only here is Faust known.

Faust gives partitions, prefetching, commits and the restoring of tables. What a record means is decided in
`streams/status_flow.py` and by the work handed to `page_agent`. Rules F1 to F15 hold: raw bytes, noack, acks in
offset order, every failure ends the process (a supervisor starts it again) and is never an acknowledged record.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faust
from faust.types import TP
from yarl import URL

from schemas import codec, metrics
from schemas.errors import Misconfigured, Poison, Transient
from schemas.messages import ReleasedPage
from schemas.records import Headers, Publisher, Record
from schemas.topics import MAX_MESSAGE_BYTES, STATUS_TABLE, Topics
from streams import faust_patches
from streams.row_store import RowMemory, RowStore
from streams.status_flow import StatusFlow
from streams.status_table import Park

log = logging.getLogger(__name__)

BATCH_RECORDS = 500
BATCH_WITHIN_S = 0.02
REST_S = 0.25
"""Between the beginnings of two merges while many events come. Rows are written and deliveries told of once a merge,
however many events it holds: at some thousand a second that is half as often as without a rest."""
MANY_BYTES = 4_096
"""Of events in one merge, about 60 of them: who waits for the status of a single meets no rest."""
PAGES_IN_FLIGHT = 8
"""Per partition: begun and not acknowledged yet."""
RETRY_FIRST_S = 0.1
RETRY_MOST_S = 5.0
STOP_WITHIN_S = 15.0
FAILED_STOP_WITHIN_S = 2.0
"""After a failure Faust would wait for records that nobody will ever acknowledge."""
SAID_AGAIN_AFTER_S = 10.0
CHATTY = ("aiokafka", "aiokafka.conn", "aiokafka.consumer.fetcher", "aiokafka.consumer.group_coordinator")


@dataclass(frozen=True, slots=True)
class FaustOptions:
    """kafka: librdkafka's client settings. data_dir: of this process alone; holds the table.

    instance: the member's own fixed name in its group, so that a quick restart moves no partitions; "" = none.
    session_s: how long a silent process keeps its partitions; it gives a sign of life every heartbeat_s.
    """

    kafka: Mapping[str, str]
    data_dir: Path
    instance: str = ""
    session_s: float = 20.0
    heartbeat_s: float = 3.0
    commit_every_s: float = 1.0
    processing_guarantee: str = "at_least_once"


class FaustProcess:
    """Runs one Faust application inside the calling event loop until it is stopped or something fails.

    settled: set once it has got its first partitions, or knows that there are none for it, and works.
    """

    def __init__(self, app: faust.App) -> None:
        self.app = app
        self._stop = asyncio.Event()
        self._failure: asyncio.Future[None] | None = None
        self._has_failed = False
        self.settled = asyncio.Event()
        app.sensors.add(faust_patches.FailedSends(self.fail))
        app.sensors.add(faust_patches.Settled(self.settled))

    async def run(self, *beside: Awaitable[None]) -> None:
        """Until `stop`. Raises what ended it; then the process must end. beside: loops that run as long."""
        self._failure = asyncio.get_running_loop().create_future()
        start = asyncio.ensure_future(self.app.start())
        tasks = [asyncio.ensure_future(one) for one in (self._stop.wait(), self._crashed(), self._failure, *beside)]
        try:
            await asyncio.wait({start, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            if start.done() and start.exception() is None:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in (start, *tasks):
                if task.done():
                    task.result()
        except Exception:
            self._commit_no_more()
            raise
        finally:
            await self._end([start, *tasks])

    def stop(self) -> None:
        self._stop.set()

    async def read_again(self, topic: str, partition: int, offset: int) -> None:
        """Has an owned partition read from this offset on; what is read twice is merged once.

        Not while records behind it are in hand: they would come after those that are read again, as if some were lost.
        """
        place, consumer = TP(topic, partition), self.app.consumer
        has_more_in_hand = (consumer._read_offset.get(place) or 0) > offset
        if place in consumer.assignment() and not has_more_in_hand:
            await self.app.consumer.seek(place, offset)
            self.app.consumer.resume_partitions({place})

    def fail(self, error: BaseException) -> None:
        """Ends `run` with this error. Whatever is in work is neither acknowledged nor committed."""
        self._commit_no_more()
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _commit_no_more(self) -> None:
        """Faust acknowledges what an agent had in hand when it stops it, and commits while it stops."""

        async def commit(*_: Any, **__: Any) -> bool:
            return False

        self._has_failed = True
        self.app.consumer.commit = commit

    async def _crashed(self) -> None:
        await self.app._crashed.wait()
        raise Transient(f"Faust crashed: {self.app.crash_reason!r}") from self.app.crash_reason

    async def _end(self, tasks: Sequence[asyncio.Future[Any]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(FAILED_STOP_WITHIN_S if self._has_failed else STOP_WITHIN_S):
                await self.app.stop()
        except TimeoutError:
            log.error("faust.stop_timed_out", extra={"app": self.app.conf.id})


def make_app(role: str, topics: Topics, options: FaustOptions, **settings: Any) -> faust.App:
    """A Faust application with every setting that the rules ask for. Raises Misconfigured for exactly_once."""
    faust_patches.check_guarantee(options.processing_guarantee)
    faust_patches.apply()
    _quiet()
    options.data_dir.mkdir(parents=True, exist_ok=True)
    return faust.App(
        topics.group(role),
        # Its variables (PROCESSING_GUARANTEE, STREAM_WAIT_EMPTY, ...) would outvote everything below.
        env={},
        broker=_brokers(options.kafka),
        broker_credentials=_credentials(options.kafka),
        datadir=str(options.data_dir),
        processing_guarantee="at_least_once",
        autodiscover=False,
        web_enabled=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        producer_acks=-1,
        producer_max_request_size=MAX_MESSAGE_BYTES,
        broker_max_poll_records=BATCH_RECORDS,
        broker_session_timeout=options.session_s,
        broker_heartbeat_interval=options.heartbeat_s,
        broker_commit_interval=options.commit_every_s,
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=options.instance or None,
        stream_buffer_maxsize=2000,
        stream_recovery_delay=0.0,
        table_standby_replicas=0,
        **settings,
    )


def merging(topics: Topics, options: FaustOptions, flow: StatusFlow) -> FaustProcess:
    """The materialiser: `delivery.status` -> rows. flow gets its store here and is told of every assignment."""
    app = make_app("status", topics, options, store="rocksdb://")
    process = FaustProcess(app)
    source = app.topic(topics.status, key_type=bytes, value_type=bytes, value_serializer="raw", key_serializer="raw")
    table = app.Table(
        STATUS_TABLE,
        key_type=bytes,
        value_type=bytes,
        partitions=None,
        options={"driver": "rocksdict"},
    )
    if table.changelog_topic_name != topics.status_changelog:
        raise Misconfigured(f"Faust's changelog is {table.changelog_topic_name}, not {topics.status_changelog}")
    memory = RowMemory()
    table.data.rocksdb_options.as_options = memory.options
    metrics.STATUS_MEMORY.set_function(memory.held)
    flow.store = RowStore(lambda: table.data._dbs, table.data.offset_key)

    async def recovered() -> None:
        try:
            await flow.assigned(await _positions(app, topics.status))
        except Exception as error:
            await _stand_still(process, error)

    async def revoked(_sender: Any, partitions: Any, **_: Any) -> None:
        if flow.last_look is not None:
            await flow.last_look()
        flow.revoked({tp.partition for tp in partitions if tp.topic == topics.status})

    async def merge(stream: Any) -> None:
        loop = asyncio.get_running_loop()
        async for events in stream.noack_take(BATCH_RECORDS, within=BATCH_WITHIN_S):
            began_s = loop.time()
            records = [_record(event) for event in events]
            try:
                await flow.work(records)
            except Exception as error:
                await _stand_still(process, error)
            for event in events:
                await stream.ack(event)
            await asyncio.sleep(rest_s(records) - (loop.time() - began_s))

    table.on_recover(recovered)
    app.on_partitions_revoked.connect(revoked, weak=False)
    app.agent(source, name="merge", concurrency=1)(merge)
    return process


def rest_s(records: Sequence[Record]) -> float:
    """How long after its beginning a merge of these records is to be followed by the next: a full one at once."""
    if len(records) >= BATCH_RECORDS:
        return 0.0
    return REST_S if sum(len(record.value or b"") for record in records) > MANY_BYTES else 0.0


Expand = Callable[[ReleasedPage, Headers], Awaitable[None]]
"""(page, headers of its record). Returns once all of the page is in the log; Transient: it must be tried again."""


def fanning_out(
    topics: Topics, options: FaustOptions, expand: Expand, publisher: Publisher, park: Park
) -> FaustProcess:
    """`campaign.pages` -> lane records, by `expand`."""
    app = make_app("fan_out", topics, options, store="memory://", stream_wait_empty=False)
    process = FaustProcess(app)

    async def work(record: Record) -> None:
        try:
            page = codec.decode(record.value, ReleasedPage)
        except Poison as error:
            await publisher.publish([park(record, error.reason, error.text)])
            return
        await expand(page, record.headers)

    page_agent(process, topics.pages, work)
    return process


def page_agent(process: FaustProcess, topic: str, work: Callable[[Record], Awaitable[None]]) -> None:
    """Several records in work per partition, acknowledged strictly in offset order.

    Transient: the same record again after a wait, for as long as it takes; it is never skipped. Any other error
    ends the process. What is in work when its partition is taken away is dropped: the next owner does it.
    """
    app = process.app
    source = app.topic(topic, key_type=bytes, value_type=bytes, value_serializer="raw", key_serializer="raw")
    lines: dict[int, _Line] = {}

    async def revoked(_sender: Any, partitions: Any, **_: Any) -> None:
        for tp in partitions:
            if (line := lines.pop(tp.partition, None)) is not None:
                line.drop()

    async def pages(stream: Any) -> None:
        async for event in stream.noack().events():
            line = lines.setdefault(event.message.partition, _Line(process, work))
            await line.begin(event)

    app.on_partitions_revoked.connect(revoked, weak=False)
    app.agent(source, name="pages", concurrency=1)(pages)


class _Line:
    """The records of one partition that are in work, oldest first."""

    def __init__(self, process: FaustProcess, work: Callable[[Record], Awaitable[None]]) -> None:
        self._process = process
        self._work = work
        self._waiting: deque[tuple[Any, asyncio.Task[None]]] = deque()
        self._room = asyncio.Semaphore(PAGES_IN_FLIGHT)
        self._dropped = False

    async def begin(self, event: Any) -> None:
        """Starts the record's work; waits while too many records are not acknowledged yet."""
        await self._room.acquire()
        if self._dropped:
            return
        task = asyncio.ensure_future(self._until_done(_record(event)))
        self._waiting.append((event, task))
        task.add_done_callback(self._ack_done)

    def drop(self) -> None:
        """The partition is no longer ours."""
        self._dropped = True
        while self._waiting:
            self._waiting.popleft()[1].cancel()
            self._room.release()

    async def _until_done(self, record: Record) -> None:
        wait_s = RETRY_FIRST_S
        while True:
            try:
                await self._work(record)
                return
            except Transient as error:
                log.warning("page.put_off", extra={"offset": record.offset, "error": str(error)[:200]})
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MOST_S)

    def _ack_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._process.fail(error)
        while self._waiting and self._waiting[0][1].done():
            event, done = self._waiting[0]
            if done.cancelled() or done.exception() is not None:
                return
            self._waiting.popleft()
            self._room.release()
            event.ack()


async def _stand_still(process: FaustProcess, error: Exception) -> None:
    """Fails the process and never returns: an agent that raised or went on would acknowledge its records."""
    log.critical("faust.agent_failed", extra={"app": process.app.conf.id}, exc_info=error)
    process.fail(error)
    await asyncio.Event().wait()


async def _positions(app: faust.App, topic: str) -> dict[int, int]:
    """Partition -> offset from which it will be read, of every partition of the topic assigned here.

    Raises Misconfigured when records that were never processed are gone from the log.
    """
    owned = {tp for tp in app.assignor.assigned_actives() if tp.topic == topic}
    if not owned:
        return {}
    committed = await app.consumer.seek_to_committed()
    first = await app.consumer.earliest_offsets(*owned)
    positions = {}
    for tp in owned:
        start, done = first.get(tp) or 0, committed.get(tp)
        if done is not None and 0 <= done < start:
            raise Misconfigured(f"{topic}/{tp.partition} begins at {start}, but only what lies before {done} was done")
        positions[tp.partition] = start if done is None or done < 0 else done
    return positions


def _record(event: Any) -> Record:
    message = event.message
    headers = message.headers or ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return Record(
        message.topic,
        message.partition,
        message.offset,
        message.key,
        message.value,
        tuple(pairs),
        int(message.timestamp * 1000),
    )


def _brokers(kafka: Mapping[str, str]) -> list[URL]:
    return [URL(f"kafka://{server.strip()}") for server in kafka["bootstrap.servers"].split(",")]


def _credentials(kafka: Mapping[str, str]) -> Any:
    """librdkafka's security settings in Faust's words; None for plaintext."""
    protocol = kafka.get("security.protocol", "plaintext").lower()
    context = None
    if protocol.endswith("ssl"):
        context = ssl.create_default_context(cafile=kafka.get("ssl.ca.location"))
        if certificate := kafka.get("ssl.certificate.location"):
            context.load_cert_chain(certificate, kafka.get("ssl.key.location"), kafka.get("ssl.key.password"))
    if protocol.startswith("sasl"):
        mechanism = kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", "PLAIN"))
        return faust.SASLCredentials(
            username=kafka.get("sasl.username"),
            password=kafka.get("sasl.password"),
            ssl_context=context,
            mechanism=mechanism,
        )
    return faust.SSLCredentials(context) if context is not None else None


def _quiet() -> None:
    """Faust tells of every step; only what needs a person is kept, and of what its client repeats only a part."""
    for name in ("faust", "mode", "aiokafka", faust_patches.__name__):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in CHATTY:
        chatty = logging.getLogger(name)
        if not any(isinstance(one, Seldom) for one in chatty.filters):
            chatty.addFilter(Seldom())


class Seldom(logging.Filter):
    """Lets the same complaint through once in ten seconds: without a broker the client makes a hundred a second."""

    def __init__(self) -> None:
        super().__init__()
        self._said_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = str(record.msg)
        if record.created - self._said_at.get(text, 0.0) < SAID_AGAIN_AFTER_S:
            return False
        self._said_at[text] = record.created
        return True
