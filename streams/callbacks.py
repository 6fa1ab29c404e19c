"""The handler of `route callbacks`: from what providers report to status events and suppressions.

A report finds its delivery by the reference we gave the provider, without a lookup; where a provider cannot
carry one, by the provider's own message id, which settle kept in Redis. Such a report may be faster than our
own "sent": it is tried again for ten minutes, then counted as an orphan. The merge puts late, repeated and
unordered reports right, so nothing is sorted or remembered here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas import codec, keys, metrics
from schemas.clock import Clock
from schemas.errors import Poison
from schemas.keys import Reference
from schemas.messages import EventKind, RawCallback, StatusBatch, StatusEvent, Suppression
from schemas.reasons import ParkReason
from schemas.records import Answer, AnswerTo, Defer, Done, Outgoing, Publisher, Record, RowEvent
from schemas.reports import Reader, Report
from schemas.stores import SuppressionWrites
from schemas.topics import Topics
from schemas.trips import Trip, Trips, asked

log = logging.getLogger(__name__)

BATCH_EVENTS = 200
"""Events in one record of `delivery.status`."""
TOLD_MAX = 10_000


@dataclass(frozen=True, slots=True)
class CallbackOptions:
    """How long a report that finds no delivery is kept, and how often it is tried."""

    orphan_after_ms: int = 600_000
    try_again_ms: int = 15_000


@dataclass(frozen=True, slots=True)
class _Found:
    """The reports of one callback that found their call, and how many may still find theirs."""

    raw: RawCallback
    matched: tuple[tuple[Report, Reference], ...]
    waiting: int


class RouteCallbacks:
    """Handler port. readers: provider name -> how its callbacks are read."""

    def __init__(
        self,
        readers: Mapping[str, Reader],
        ids: keys.Ids,
        trips: Trips,
        suppressions: SuppressionWrites,
        publisher: Publisher,
        topics: Topics,
        clock: Clock,
        options: CallbackOptions | None = None,
    ) -> None:
        self._readers = readers
        self._ids = ids
        self._trips = trips
        self._suppressions = suppressions
        self._publisher = publisher
        self._topics = topics
        self._clock = clock
        self._options = options or CallbackOptions()
        self._told: set[tuple[int, int]] = set()

    async def handle(self, records: Sequence[Record], answer: AnswerTo) -> None:
        """Raises Transient while Redis or the log is away, Poison for the first callback that cannot be read."""
        poison: Poison | None = None
        for record in records:
            try:
                raw = codec.decode(record.value, RawCallback)
                reports = self._read(raw)
            except Poison as error:
                poison = poison or error
                continue
            found = await self._find(raw, reports)
            await self._suppress(found)
            answer(record, await self._answer(record, found))
        if poison is not None:
            raise poison

    def _read(self, raw: RawCallback) -> Sequence[Report]:
        reader = self._readers.get(raw.provider)
        if reader is None:
            raise Poison(ParkReason.BAD_REQUEST, f"no provider {raw.provider} is configured that posts callbacks")
        return reader(raw)

    async def _find(self, raw: RawCallback, reports: Sequence[Report]) -> _Found:
        """Matches reports to calls. A reference that is not ours never will be; a message id may become known."""
        unknown = [report.message_id for report in reports if not report.reference and report.message_id]
        kept = await self._kept(raw.provider, unknown) if unknown else {}
        matched = []
        waiting = orphans = 0
        for report in reports:
            reference = self._ids.read_reference(report.reference or kept.get(report.message_id, ""))
            if reference is not None:
                matched.append((report, reference))
            elif report.message_id in kept or report.reference or not report.message_id or self._is_old(raw):
                orphans += 1
            else:
                waiting += 1
        if orphans:
            metrics.ORPHANS.labels(raw.provider).inc(orphans)
            log.warning("callback.orphaned", extra={"provider": raw.provider, "reports": orphans})
        return _Found(raw, tuple(matched), waiting)

    async def _kept(self, provider: str, message_ids: Sequence[str]) -> dict[str, str]:
        """Message id -> reference, for those that settle has kept. Raises StoreDown."""

        def ask(trip: Trip) -> None:
            for message_id in message_ids:
                trip.execute_command("GET", keys.redis_message(provider, message_id))

        replies = await asked(self._trips, ask)
        return {message_id: reply.decode() for message_id, reply in zip(message_ids, replies, strict=True) if reply}

    async def _answer(self, record: Record, found: _Found) -> Answer:
        """Done when nothing waits; else what is known is told once, and the record comes again."""
        place = (record.partition, record.offset)
        events = [_event(found.raw, report, reference) for report, reference in found.matched]
        if found.waiting:
            if events and place not in self._told:
                await self._publisher.publish(_batches(self._topics.status, events))
                if len(self._told) >= TOLD_MAX:  # telling again is harmless
                    self._told.clear()
                self._told.add(place)
            return Defer(self._clock.now_ms() + self._options.try_again_ms)
        self._told.discard(place)
        if delivered := sum(report.kind is EventKind.DELIVERED for report, _ in found.matched):
            metrics.DELIVERED.labels(found.raw.provider).inc(delivered)
        return Done(events=tuple(events))

    async def _suppress(self, found: _Found) -> None:
        """A hard bounce or a complaint: the address is blocked in the log, and in Redis at once."""
        outgoing, suppressed = [], []
        for report, reference in found.matched:
            if report.suppress and reference.address_hash:
                value = Suppression(
                    reference.tenant,
                    reference.channel,
                    reference.address_hash,
                    report.kind.value,
                    found.raw.provider,
                    report.at_ms,
                )
                outgoing.append(suppression_record(self._topics.suppressions, value))
                suppressed.append(value)
        placed = await self._publisher.publish(outgoing) if outgoing else []
        for value, at in zip(suppressed, placed, strict=True):
            await self._suppressions.apply(value.tenant, value.channel, value.address_hash, at.offset, value.cause)

    def _is_old(self, raw: RawCallback) -> bool:
        return self._clock.now_ms() - raw.received_at_ms > self._options.orphan_after_ms


def suppression_record(topic: str, suppression: Suppression) -> Outgoing:
    """The record of one suppressed address."""
    key = keys.suppression_key(suppression.tenant, suppression.channel, suppression.address_hash)
    return Outgoing(topic, key.encode(), codec.encode(suppression))


def _event(raw: RawCallback, report: Report, reference: Reference) -> RowEvent:
    event = StatusEvent(
        slot=reference.address.slot,
        kind=report.kind,
        at_ms=report.at_ms,
        index=reference.index,
        generation=reference.generation,
        call=reference.call,
        detail=report.detail,
        provider=raw.provider,
        provider_id=report.message_id,
    )
    return RowEvent(reference.tenant, reference.address.row, event)


def _batches(topic: str, events: Sequence[RowEvent]) -> list[Outgoing]:
    """Records of `delivery.status`, as the engine makes them of a Done."""
    by_row: dict[tuple[str, str], list[StatusEvent]] = {}
    for event in events:
        by_row.setdefault((event.tenant, event.row), []).append(event.event)
    return [
        Outgoing(topic, keys.row_key(tenant, row).encode(), codec.encode(StatusBatch(tenant, row, tuple(part))))
        for (tenant, row), found in by_row.items()
        for part in (found[at : at + BATCH_EVENTS] for at in range(0, len(found), BATCH_EVENTS))
    ]
