"""Publishes what handlers answered: gathers answers for a moment, writes them in one call, then lets go of them.

Status events may be gathered for longer than what somebody waits for: alone, each of them would cost three processes
and the broker a record. What carries a delivery on to its next record goes out behind its events, though: that record
may be claimed at once, and a copy of this one says nothing any more. A record is finished only after everything it led
to was acknowledged. A log that is away is tried again for ever; nothing is committed meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from consumers.loop.tracker import Tracker
from retry_topics import dead_letters
from schemas import codec, keys, messages, metrics, reasons
from schemas.errors import Poison, Refused, Transient
from schemas.gaps import Gap
from schemas.records import Done, Outgoing, Publisher, Record

log = logging.getLogger(__name__)

EVENTS_A_BATCH = 200

Park = Callable[[Record, str, str], Done]
"""(record, reason, text) -> the answer that parks it."""


@dataclass(frozen=True, slots=True)
class OutboxOptions:
    """linger_s: how long what is to be published is gathered, about 0.002 for transactional work and 0.2 for bulk;
    events_linger_s: status events, which nobody's phone waits for. `answers` of them are written at once. retry_*:
    pauses while the log is away, doubling from the first to the longest.
    """

    status_topic: str = ""
    linger_s: float = 0.002
    events_linger_s: float = 0.002
    answers: int = 1_000
    retry_first_s: float = 0.1
    retry_most_s: float = 30.0


class Entry(NamedTuple):
    """An answered record that waits for its publishing."""

    tracker: Tracker
    record: Record
    done: Done


_Write = Callable[[Sequence[Entry]], Coroutine[None, None, None]]


class _Gathered:
    """Entries that wait for others to go along."""

    def __init__(self, linger_s: float, most: int, write: Callable[[Sequence[Entry]], None]) -> None:
        self._linger_s = linger_s
        self._most = most
        self._write = write
        self._entries: list[Entry] = []
        self._timer: asyncio.TimerHandle | None = None

    def put(self, entry: Entry) -> None:
        self._entries.append(entry)
        if len(self._entries) >= self._most:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._linger_s, self.flush)

    def flush(self) -> None:
        self.close()
        if self._entries:
            entries, self._entries = self._entries, []
            self._write(entries)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Outbox:
    """on_finished gets the records whose publishing was acknowledged; on_broken ends the engine."""

    def __init__(
        self,
        publisher: Publisher,
        options: OutboxOptions,
        group: str,
        park: Park,
        rng: Random,
        gap: Gap | None,
        on_finished: Callable[[Sequence[Entry]], None],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._publisher = publisher
        self._options = options
        self._group = group
        self._park = park
        self._rng = rng
        self._gap = gap
        self._on_finished = on_finished
        self._on_broken = on_broken
        self._soon = _Gathered(options.linger_s, options.answers, lambda entries: self._start(self._write(entries)))
        self._events = _Gathered(
            options.events_linger_s, options.answers, lambda entries: self._start(self._write_events(entries))
        )
        self._writing: set[asyncio.Task[None]] = set()

    def put(self, entry: Entry) -> None:
        at_once = entry.done.publish and not entry.done.events_first
        (self._soon if at_once else self._events).put(entry)

    def flush(self) -> None:
        """Begins to write what was gathered."""
        self._soon.flush()
        self._events.flush()

    def close(self) -> None:
        """Gives up what is not acknowledged: it was not committed either."""
        self._soon.close()
        self._events.close()
        for task in self._writing:
            task.cancel()

    def _start(self, writing: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(writing)
        self._writing.add(task)
        task.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_broken(error)

    async def _write(self, entries: Sequence[Entry]) -> None:
        """What handlers want written; their events follow with others'."""
        wanted = [one for entry in entries for one in entry.done.publish]
        try:
            await self._publish(wanted)
        except (Poison, Refused) as error:
            await self._singly(self._write, entries, error)
            return
        self._finish([entry for entry in entries if not entry.done.events])
        for entry in entries:
            if entry.done.events:
                self._events.put(entry)

    async def _write_events(self, entries: Sequence[Entry]) -> None:
        try:
            await self._publish(self._batches(entries))
        except (Poison, Refused) as error:
            await self._singly(self._write_events, entries, error)
            return
        self._finish([entry for entry in entries if not entry.done.events_first])
        if following := [entry for entry in entries if entry.done.events_first]:
            await self._write_behind(following)

    async def _write_behind(self, entries: Sequence[Entry]) -> None:
        """What must not be read before its events are there."""
        try:
            await self._publish([one for entry in entries for one in entry.done.publish])
        except (Poison, Refused) as error:
            await self._singly(self._write_behind, entries, error)
            return
        self._finish(entries)

    def _finish(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.done.acked is not None:
                self._acknowledge(entry)
        if entries:
            self._on_finished(entries)

    async def _singly(self, write: _Write, entries: Sequence[Entry], error: Poison | Refused) -> None:
        """Nothing was written, since one of them cannot be: write each by itself and park the one to blame."""
        if len(entries) > 1:
            for entry in entries:
                await write([entry])
            return
        entry = entries[0]
        reason = error.reason if isinstance(error, Poison) else reasons.ParkReason.INTERNAL_ERROR
        parked = self._park(entry.record, reason, error.text)
        try:
            await self._publish([*parked.publish, *self._batches([Entry(entry.tracker, entry.record, parked)])])
        except Poison:
            await self._publish([dead_letters.stub(letter) for letter in parked.publish])
        self._on_finished([Entry(entry.tracker, entry.record, parked)])

    async def _publish(self, outgoing: Sequence[Outgoing]) -> None:
        """Returns once the log has it all, however long that takes."""
        if self._gap is not None:
            self._gap("before_publish")
        wait_s = self._options.retry_first_s
        while True:
            try:
                await self._publisher.publish(outgoing)
                break
            except Transient as error:
                log.warning("outbox.log_unavailable", extra={"group": self._group, "error": str(error)})
            await asyncio.sleep(wait_s * self._rng.uniform(0.5, 1.0))
            wait_s = min(self._options.retry_most_s, wait_s * 2)
        if self._gap is not None:
            self._gap("after_publish")

    def _batches(self, entries: Sequence[Entry]) -> list[Outgoing]:
        """The status events of one row together."""
        outgoing: list[Outgoing] = []
        rows: dict[tuple[str, str], list[messages.StatusEvent]] = {}
        for entry in entries:
            for event in entry.done.events:
                rows.setdefault((event.tenant, event.row), []).append(event.event)
        for (tenant, row), events in rows.items():
            key = keys.row_key(tenant, row).encode()
            for first in range(0, len(events), EVENTS_A_BATCH):
                batch = messages.StatusBatch(tenant, row, tuple(events[first : first + EVENTS_A_BATCH]))
                outgoing.append(Outgoing(self._options.status_topic, key, codec.encode(batch)))
                metrics.ENGINE_STATUS_BATCHES.labels(self._group).inc()
        return outgoing

    def _acknowledge(self, entry: Entry) -> None:
        assert entry.done.acked is not None
        try:
            entry.done.acked()
        except Exception:
            log.exception("outbox.acked_failed", extra={"topic": entry.record.topic, "offset": entry.record.offset})
