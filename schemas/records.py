"""What moves between Kafka and the handlers: records in, answers out, and the ports to the log.

A handler decides and never talks: it gets records, and answers each with Done (what to publish) or
Defer (not now). `consumers/engine.py` publishes, waits for the acks, and only then commits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from schemas import messages

Headers = tuple[tuple[str, bytes], ...]
RECORD_OVERHEAD_BYTES = 128
"""Above what the log adds to one record in a batch of its own (61 bytes of batch, <= 21 of record, key lengths)."""
HEADER_OVERHEAD_BYTES = 10


class Record(NamedTuple):
    """One record as read from a topic. `key` and `value` are the bytes on the log."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    def header(self, name: str) -> bytes | None:
        """The header's value; None when absent. Headers are single-valued by contract: the last one wins."""
        found = None
        for header, value in self.headers:
            if header == name:
                found = value
        return found


class Outgoing(NamedTuple):
    """One record to be written. Without `partition` the key decides (murmur2)."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None

    @property
    def size(self) -> int:
        """In bytes, at least what it takes in the log, uncompressed."""
        size = len(self.key or b"") + len(self.value or b"") + RECORD_OVERHEAD_BYTES
        for name, value in self.headers:
            size += len(name) + len(value) + HEADER_OVERHEAD_BYTES
        return size


class Placed(NamedTuple):
    """Where the log put a record."""

    partition: int
    offset: int


class RowEvent(NamedTuple):
    """A status event and the row it belongs to; the engine batches events of one row into a StatusBatch."""

    tenant: str
    row: str
    event: messages.StatusEvent


class Done(NamedTuple):
    """The record is finished once everything here is in the log.

    acked is called after that and before the offset may be committed. parked says that the record was
    a poison one that now lies in a dead letter topic; the engine stops when too many are. events_first: once what is
    published is in the log, nobody who reads this record again says its events any more.
    """

    publish: tuple[Outgoing, ...] = ()
    events: tuple[RowEvent, ...] = ()
    acked: Callable[[], None] | None = None
    parked: bool = False
    events_first: bool = False


class Recall:
    """How a handler gets a record back before the time that it was deferred to. Made anew for each Defer.

    is_wanted: the handler asked for it. is_over: nothing waits here any more: the record was handed in again, or its
    partition went to somebody else.
    """

    __slots__ = ("_tell", "is_over", "is_wanted")

    def __init__(self) -> None:
        self.is_wanted = False
        self.is_over = False
        self._tell: Callable[[], None] | None = None

    def sooner(self) -> None:
        """Hand it in as soon as there is room."""
        self.is_wanted = True
        if self._tell is not None:
            self._tell()

    def bind(self, tell: Callable[[], None]) -> None:
        """Called by whoever keeps the record; tell is called when it is wanted."""
        self._tell = tell
        if self.is_wanted:
            tell()


class Defer(NamedTuple):
    """Not now: hand the same record in again at `until_ms` (wall clock), or when it is recalled. Counts as no try."""

    until_ms: int
    recall: Recall | None = None


Answer = Done | Defer
AnswerTo = Callable[[Record, Answer], None]


class Handler(Protocol):
    """The work of one process; run by the engine.

    handle gets a micro-batch and must answer every record exactly once, before or after it returns
    (from tasks of its own). Raising Transient defers the whole batch with back-off; any other
    exception makes the engine try its unanswered records one by one and park the one that raises.
    """

    async def handle(self, records: Sequence[Record], answer: AnswerTo) -> None: ...


class Publisher(Protocol):
    """Writes to the log and knows when the log has it."""

    async def publish(self, outgoing: Sequence[Outgoing]) -> list[Placed]:
        """Where each record lies, in order, once all are acknowledged (acks=all).

        Raises Transient when any of them could not be written before the delivery time-out (some may
        have been), Poison("too_large") when one exceeds the topic's message size (nothing is sent).
        """
        ...


class LogReader(Protocol):
    """Reads at given places, without a consumer group."""

    async def read(self, topic: str, partition: int, offset: int) -> Record | None:
        """The record at exactly this offset; None when it was removed or never written."""
        ...

    def read_range(self, topic: str, partition: int, first: int, last: int) -> AsyncIterator[Record]:
        """The records of the closed offset range [first, last], in order.

        Raises Transient on a broker failure, Poison("expired_log") when `first` lies below the log's start.
        """
        ...

    async def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """(first offset kept, end offset: the one that the next record will get). Raises Transient."""
        ...

    async def offsets_of(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """The same for many (topic, partition), all in one question."""
        ...


class TopicView(Protocol):
    """All records of some (compacted) topics, kept up to date by a callback in offset order per partition."""

    async def caught_up(self) -> None:
        """Returns once everything that was in the topics at the moment of the call has been seen."""
        ...

    async def seen(self, topic: str, placed: Placed) -> None:
        """Returns once the record at this place has been seen: read your own write."""
        ...


class Tails(Protocol):
    """Opens views of whole topics."""

    async def follow(self, topics: Sequence[str], on_record: Callable[[Record], None]) -> TopicView:
        """Reads every partition of the topics from its start and goes on for ever, calling on_record on the loop."""
        ...
