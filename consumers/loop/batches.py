"""One call of the handler: a micro-batch, its answers, and what becomes of records when it raises."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import PurePath
from random import Random

from consumers.loop.outbox import Park
from consumers.loop.tracker import Tracker
from schemas import metrics
from schemas.clock import Clock
from schemas.errors import Poison, Transient
from schemas.reasons import ParkReason
from schemas.records import Answer, Defer, Handler, Record

log = logging.getLogger(__name__)

Chosen = tuple[Tracker, Record]
Answered = Callable[[Tracker, Record, Answer], None]

BACKOFF_FIRST_S = 0.2
DOUBLINGS_MOST = 20


class Batch:
    """Records handed out together; each is answered once, however late."""

    __slots__ = ("_answered", "_open", "records")

    def __init__(self, chosen: Sequence[Chosen], answered: Answered) -> None:
        self.records = [record for _, record in chosen]
        self._open = {id(record): tracker for tracker, record in chosen}
        self._answered = answered

    def answer(self, record: Record, answer: Answer) -> None:
        tracker = self._open.pop(id(record), None)
        if tracker is None:
            log.error("engine.answered_twice", extra={"topic": record.topic, "offset": record.offset})
        else:
            self._answered(tracker, record, answer)

    def unanswered(self) -> list[Chosen]:
        return [(self._open[id(record)], record) for record in self.records if id(record) in self._open]


class Caller:
    """Calls the handler. Transient: the rest of the batch comes again later. Anything else: one by one, and the
    record that raises is parked.
    """

    def __init__(
        self, handler: Handler, group: str, park: Park, rng: Random, clock: Clock, backoff_max_s: float
    ) -> None:
        self._handler = handler
        self._group = group
        self._park = park
        self._rng = rng
        self._clock = clock
        self._backoff_max_s = backoff_max_s

    async def call(self, batch: Batch) -> None:
        try:
            await self._handler.handle(batch.records, batch.answer)
        except Transient as error:
            self._put_off(batch, batch.unanswered(), error)
        except Exception as error:
            await self._one_by_one(batch, error)

    async def _one_by_one(self, batch: Batch, error: Exception) -> None:
        left = batch.unanswered()
        if not left:
            log.error("engine.handler_raised_after_answering", extra={"error": _described(error)})
        elif len(batch.records) == 1:
            self._blame(batch, left[0][1], error)
        else:
            for tracker, record in left:
                await self._call_one(batch, tracker, record)

    async def _call_one(self, batch: Batch, tracker: Tracker, record: Record) -> None:
        try:
            await self._handler.handle([record], batch.answer)
        except Transient as error:
            self._put_off(batch, [(tracker, record)], error)
        except Exception as error:
            self._blame(batch, record, error)

    def _blame(self, batch: Batch, record: Record, error: Exception) -> None:
        place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        if isinstance(error, Poison):
            log.warning("record.parked", extra={**place, "reason": error.reason})
            batch.answer(record, self._park(record, error.reason, error.text))
        else:
            log.error("record.parked", extra={**place, "reason": "internal_error", "error": _described(error)})
            batch.answer(record, self._park(record, ParkReason.INTERNAL_ERROR, _described(error)))

    def _put_off(self, batch: Batch, chosen: Sequence[Chosen], error: Transient) -> None:
        """Exponential, jittered, bounded; all of them come back together, in one batch again."""
        if not chosen:
            return
        metrics.ENGINE_BACKOFFS.labels(self._group).inc()
        failures = 1 + max(tracker.failures.get(record.offset, 0) for tracker, record in chosen)
        ceiling_s = min(self._backoff_max_s, BACKOFF_FIRST_S * 2 ** min(failures - 1, DOUBLINGS_MOST))
        until_ms = self._clock.now_ms() + int(1000 * ceiling_s * self._rng.uniform(0.5, 1.0))
        log.warning("engine.backed_off", extra={"group": self._group, "failures": failures, "error": str(error)})
        for tracker, record in chosen:
            tracker.failures[record.offset] = failures
            batch.answer(record, Defer(until_ms))


def _described(error: Exception) -> str:
    """Kind and place of an unexpected error. Not its text: that may hold an address or a token."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    code = trace.tb_frame.f_code
    return f"{type(error).__name__} in {code.co_name} ({PurePath(code.co_filename).name}:{trace.tb_lineno})"
