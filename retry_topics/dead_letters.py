"""How a hopeless record is parked: its bytes untouched in a dead letter topic, with headers that say why.

The engine parks what cannot be handled; `lane_worker` parks deliveries that came to their end. A person reads them
with any consumer.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas import codec, keys, metrics, topics
from schemas.clock import Clock
from schemas.errors import Poison
from schemas.messages import Delivery, EventKind, StatusEvent
from schemas.reasons import ParkReason, Reason
from schemas.records import Done, Headers, Outgoing, Record, RowEvent

ERROR_TEXT_BYTES = 512
HEADER_OVERHEAD_BYTES = 10
"""What the log adds to a header beside its name and value, at most."""
ERROR_CLASS = "tid-error-class"
ERROR_TEXT = "tid-error-text"
ERROR_AT = "tid-error-at"
FIRST_TOPIC = "tid-first-topic"
FIRST_PARTITION = "tid-first-partition"
FIRST_OFFSET = "tid-first-offset"
_OURS = (ERROR_CLASS, ERROR_TEXT, ERROR_AT, FIRST_TOPIC, FIRST_PARTITION, FIRST_OFFSET)

STOPPING = frozenset({ParkReason.UNDECODABLE, ParkReason.UNKNOWN_SCHEMA, ParkReason.INTERNAL_ERROR})
"""Too many of these one after another mean that we are broken, not the records: the engine stops."""


class DeadLetters:
    """Parks records of a deployment's topics."""

    def __init__(self, names: topics.Topics, clock: Clock) -> None:
        self._topics = names
        self._clock = clock

    def parked(self, record: Record, reason: str, text: str, events: Iterable[RowEvent] = ()) -> Done:
        """The answer that parks a record, and says so in its status by events."""
        return Done(publish=(self.letter(record, reason, text),), events=tuple(events), parked=reason in STOPPING)

    def parked_delivery(self, record: Record, reason: str, text: str) -> Done:
        """Parks a record of a lane or tier. A readable delivery ends as failed: its campaign must not wait for it."""
        try:
            delivery = codec.decode(record.value, Delivery)
        except Poison:
            return self.parked(record, reason, text)
        event = StatusEvent(
            slot=delivery.slot,
            kind=EventKind.FAILED,
            at_ms=self._clock.now_ms(),
            delivery=keys.delivery_suffix(delivery.channel, delivery.device),
            generation=delivery.generation,
            reason=Reason.CRASHES_WORKER if reason == ParkReason.CRASHES_WORKER else Reason.INTERNAL_ERROR,
            user_id=delivery.user_id,
            template=delivery.template,
        )
        return self.parked(record, reason, text, (RowEvent(delivery.tenant, delivery.row, event),))

    def letter(self, record: Record, reason: str, text: str) -> Outgoing:
        """The record as it will lie in its dead letter topic: key, value and unknown headers as they were. Counted."""
        headers = _headers(record, reason, text, self._clock.now_ms())
        topic = self._topics.dlq_for(record.topic)
        metrics.DEAD_LETTERS.labels(topic, reason).inc()
        return Outgoing(topic, record.key, record.value, headers)


def stub(letter: Outgoing) -> Outgoing:
    """A letter without its value, for a record that not even the dead letter topic can take.

    Its tid-first-* headers name the place where the bytes still lie.
    """
    kept = tuple((name, value) for name, value in letter.headers if name != ERROR_TEXT)
    text = b"the record is too large for its dead letter topic; its bytes lie at tid-first-*"
    return Outgoing(letter.topic, letter.key, None, (*kept, (ERROR_TEXT, text)))


def _headers(record: Record, reason: str, text: str, now_ms: int) -> Headers:
    """Ours last; unknown ones carried. Of each name one, at most 4 KB in all: else the largest unknown ones go."""
    carried = dict(record.headers)
    known = {name: carried.pop(name) for name in _OURS if name in carried}
    ours = {name: value for name, value in known.items() if len(value) <= topics.NAME_MAX}
    ours.setdefault(FIRST_TOPIC, record.topic.encode())
    ours.setdefault(FIRST_PARTITION, str(record.partition).encode())
    ours.setdefault(FIRST_OFFSET, str(record.offset).encode())
    ours |= {ERROR_CLASS: reason.encode(), ERROR_TEXT: _cut(text), ERROR_AT: str(now_ms).encode()}
    while carried and _size(carried) + _size(ours) > topics.HEADERS_MAX_BYTES:
        del carried[max(carried, key=lambda name: len(name) + len(carried[name]))]
    return (*carried.items(), *ours.items())


def _cut(text: str) -> bytes:
    """At most 512 bytes of UTF-8, cut between characters."""
    return text.encode("utf-8", "replace")[:ERROR_TEXT_BYTES].decode("utf-8", "ignore").encode()


def _size(headers: dict[str, bytes]) -> int:
    return sum(len(name.encode()) + len(value) + HEADER_OVERHEAD_BYTES for name, value in headers.items())
