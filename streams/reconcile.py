"""The handler of `reconcile`: what was sent long ago without a word is asked for, or told as `unconfirmed`.

Reads `notification.state` an hour late: what was `sent` then and still is, by its row, is silent. Where the provider
has a status API it is asked; a report is told as if it had come by itself. Without one it is told as `unconfirmed`,
which any later report beats in the merge. That state comes by here an hour later, and is asked for once more. Nothing
is kept between two records, so any number of them may wait, and a crash only asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from schemas import codec, keys, metrics
from schemas.clock import Clock
from schemas.errors import Poison
from schemas.keys import Address
from schemas.messages import DeliveryState, EventKind, StatusEvent, Suppression
from schemas.records import Answer, AnswerTo, Defer, Done, Outgoing, Record, RowEvent
from schemas.reports import Report, StatusApi
from schemas.stores import DeliveryView, SlotView, StatusReads
from schemas.topics import Topics
from streams.callbacks import suppression_record

SENT, UNCONFIRMED = EventKind.SENT.value, EventKind.UNCONFIRMED.value
_MARKS = tuple(bytes([2 * len(state)]) + state.encode() for state in (SENT, UNCONFIRMED))
"""How Avro writes these states: nearly every other record is passed over unread."""
NO_WORD = "no report came in time"
ROWS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class ReconcileOptions:
    """after_ms: how long a word may take. reports: providers that promise one, each with its status API, if any.

    channels: channel -> its providers, for states that name none.
    """

    after_ms: int
    reports: Mapping[str, StatusApi | None]
    channels: Mapping[str, Sequence[str]]


class _Quiet(NamedTuple):
    """A record about a delivery of which nothing was heard when it was written."""

    record: Record
    state: DeliveryState
    address: Address


class Reconcile:
    """Handler port."""

    def __init__(
        self, reads: StatusReads, ids: keys.Ids, topics: Topics, clock: Clock, options: ReconcileOptions
    ) -> None:
        self._reads = reads
        self._ids = ids
        self._topics = topics
        self._clock = clock
        self._options = options

    async def handle(self, records: Sequence[Record], answer: AnswerTo) -> None:
        """Raises Transient while the rows cannot be read, Poison for the first state that cannot be."""
        rows: dict[tuple[str, str], list[_Quiet]] = {}
        poison: Poison | None = None
        for record in records:
            try:
                quiet = self._quiet(record)
            except Poison as error:
                poison = poison or error
                continue
            if quiet is None:
                answer(record, Done())
            elif (due_ms := record.timestamp_ms + self._options.after_ms) > self._clock.now_ms():
                answer(record, Defer(due_ms))
            else:
                rows.setdefault((quiet.state.tenant, quiet.address.row), []).append(quiet)
        await self._settle(rows, answer)
        if poison is not None:
            raise poison

    def _quiet(self, record: Record) -> _Quiet | None:
        """What the record says, if it may be about silence that should be none. Raises Poison."""
        value = record.value
        if value is None or not any(mark in value for mark in _MARKS):
            return None
        state = codec.decode(value, DeliveryState)
        if state.state not in (SENT, UNCONFIRMED) or not self._promises(state):
            return None
        if state.state == UNCONFIRMED and self._api(state) is None:
            return None
        address = self._ids.address(state.tenant, state.notification_id)
        return None if address is None else _Quiet(record, state, address)

    def _promises(self, state: DeliveryState) -> bool:
        """Whether its provider reports; of a state that names none, all of the channel's must."""
        reports = self._options.reports
        if state.provider:
            return state.provider in reports
        names = self._options.channels.get(state.channel, ())
        return bool(names) and all(name in reports for name in names)

    def _api(self, state: DeliveryState) -> StatusApi | None:
        """Whom to ask about it: an API knows messages by the id that its provider gave them."""
        return self._options.reports.get(state.provider or "") if state.provider_id else None

    async def _settle(self, rows: Mapping[tuple[str, str], Sequence[_Quiet]], answer: AnswerTo) -> None:
        """Answers all of these, a few rows at a time. Raises Transient when one could not be read, or asked about."""
        places = asyncio.Semaphore(ROWS_AT_ONCE)

        async def look(place: tuple[str, str], found: Sequence[_Quiet]) -> None:
            async with places:
                slots = await self._reads.row(*place)
            await _all_ended(self._answer(quiet, slots, answer) for quiet in found)

        await _all_ended(look(*row) for row in rows.items())

    async def _answer(self, quiet: _Quiet, slots: Sequence[SlotView | None], answer: AnswerTo) -> None:
        delivery = _still(quiet, slots)
        answer(quiet.record, Done() if delivery is None else await self._resolved(quiet, delivery))

    async def _resolved(self, quiet: _Quiet, delivery: DeliveryView) -> Answer:
        """What its provider says of it; without a word it is unconfirmed, and stays so."""
        api, provider = self._api(quiet.state), quiet.state.provider or ""
        if api is not None:
            told = await api.ask(quiet.state.provider_id or "")
            if isinstance(told, Report):
                metrics.RECONCILED.labels(provider, told.kind.value).inc()
                if told.kind is EventKind.DELIVERED:
                    metrics.DELIVERED.labels(provider).inc()
                event = _event(quiet, delivery, told.kind, told.at_ms, told.detail)
                return Done(publish=self._barred(quiet, told), events=(event,))
        if delivery.state == UNCONFIRMED:
            return Done()
        metrics.RECONCILED.labels(provider, UNCONFIRMED).inc()
        return Done(events=(_event(quiet, delivery, EventKind.UNCONFIRMED, self._clock.now_ms(), NO_WORD),))

    def _barred(self, quiet: _Quiet, report: Report) -> tuple[Outgoing, ...]:
        """The suppression of an address that bounced, where the answer carries our reference: it names the address."""
        reference = self._ids.read_reference(report.reference) if report.suppress else None
        ours = reference is not None and (reference.tenant, reference.address) == (quiet.state.tenant, quiet.address)
        if reference is None or not ours or not reference.address_hash:
            return ()
        provider = quiet.state.provider or ""
        value = Suppression(
            reference.tenant, reference.channel, reference.address_hash, report.kind.value, provider, report.at_ms
        )
        return (suppression_record(self._topics.suppressions, value),)


async def _all_ended(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Returns or raises only when all have ended: whoever is put off must not be answered as well."""
    for ended in await asyncio.gather(*works, return_exceptions=True):
        if ended is not None:
            raise ended


def _still(quiet: _Quiet, slots: Sequence[SlotView | None]) -> DeliveryView | None:
    """The delivery as its row has it, where the record still tells all of it; a newer call has a record of its own."""
    slot = slots[quiet.address.slot] if quiet.address.slot < len(slots) else None
    for delivery in slot.deliveries if slot is not None else ():
        if (delivery.channel, delivery.device) == (quiet.state.channel, quiet.state.device or ""):
            same = delivery.state == quiet.state.state and delivery.sent_at_ms <= (quiet.state.sent_at or 0)
            return delivery if same and delivery.call else None
    return None


def _event(quiet: _Quiet, delivery: DeliveryView, kind: EventKind, at_ms: int, detail: str = "") -> RowEvent:
    state = quiet.state
    event = StatusEvent(
        slot=quiet.address.slot,
        kind=kind,
        at_ms=at_ms,
        delivery=keys.shown_suffix(delivery.channel, delivery.device),
        generation=delivery.generation,
        call=delivery.call,
        detail=detail,
        provider=state.provider or "",
        provider_id=state.provider_id or "",
    )
    return RowEvent(state.tenant, quiet.address.row, event)
