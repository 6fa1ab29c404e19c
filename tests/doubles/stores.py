"""Stores of the API in memory: idempotency, status reads, cancellations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from producers.idempotency import Attempt, Begun
from schemas.errors import StoreDown, Transient
from schemas.keys import Address
from schemas.stores import SlotView


class MemoryIdempotency:
    """The Store port. is_away: Redis does not answer. lost_finishes: the process dies before storing its answer."""

    def __init__(self) -> None:
        self.is_away = False
        self.loses_finishes = False
        self.kept_past_start_ms: dict[str, int] = {}
        self._running: dict[tuple[str, str], Attempt] = {}
        self._answered: dict[tuple[str, str], Attempt] = {}
        self._tokens = itertools.count(1)

    async def begin(self, tenant: str, event_id: str, body_hash: str) -> Attempt:
        attempt = Attempt(tenant, event_id, body_hash, str(next(self._tokens)), Begun.BEGUN)
        if self.is_away:
            return Attempt(tenant, event_id, body_hash, "", Begun.UNCHECKED)
        known = self._answered.get((tenant, event_id)) or self._running.get((tenant, event_id))
        if known is None:
            self._running[tenant, event_id] = attempt
            return attempt
        if known.body_hash != body_hash:
            return Attempt(tenant, event_id, body_hash, "", Begun.OTHER_BODY)
        if known.answer:
            return Attempt(tenant, event_id, body_hash, "", Begun.ANSWERED, known.answer)
        return Attempt(tenant, event_id, body_hash, "", Begun.RUNNING, wait_ms=1_000)

    async def finish(self, attempt: Attempt, answer: str, starts_in_ms: int) -> None:
        if self.loses_finishes or not attempt.token:
            return
        key = attempt.tenant, attempt.event_id
        self._running.pop(key, None)
        self.kept_past_start_ms[attempt.event_id] = starts_in_ms
        self._answered.setdefault(
            key, Attempt(attempt.tenant, attempt.event_id, attempt.body_hash, "", Begun.ANSWERED, answer)
        )

    async def release(self, attempt: Attempt) -> None:
        key = attempt.tenant, attempt.event_id
        if self._running.get(key) == attempt:
            del self._running[key]

    def let_locks_run_out(self) -> None:
        self._running.clear()


class MemoryReads:
    """The StatusReads port over slots that the test puts there."""

    def __init__(self) -> None:
        self.is_recovering = False
        self.slots: dict[tuple[str, str], dict[int, SlotView]] = {}

    def put(self, tenant: str, address: Address, view: SlotView) -> None:
        self.slots.setdefault((tenant, address.row), {})[address.slot] = view

    async def slot(self, tenant: str, address: Address) -> SlotView | None:
        return self._row(tenant, address.row).get(address.slot)

    async def row(self, tenant: str, row: str) -> Sequence[SlotView | None]:
        slots = self._row(tenant, row)
        return [slots.get(position) for position in range(max(slots, default=-1) + 1)]

    def _row(self, tenant: str, row: str) -> dict[int, SlotView]:
        if self.is_recovering:
            raise Transient("the owner of this row is still recovering")
        return self.slots.get((tenant, row), {})


class MemoryCancellations:
    """The Cancellations port. plans: intent -> its deliveries; flags: what was cancelled."""

    def __init__(self) -> None:
        self.is_away = False
        self.plans: dict[str, Sequence[tuple[str, str]]] = {}
        self.flags: set[tuple[str, str, str]] = set()

    async def cancel(self, tenant: str, user_id: str, intent: str) -> Sequence[tuple[str, str]] | None:
        if self.is_away:
            raise StoreDown("Redis is away")
        self.flags.add((tenant, user_id, intent))
        return self.plans.get(intent)
