"""Makes Redis trustworthy again: everything that keeps people from being reached is put back from the log.

Redis is trusted while the key `epoch` holds the run_id of the server now running. After Redis was emptied
the key is missing: all is put back. After a restart or a failover it is foreign, and Redis may have lost its
last seconds: then the log is applied again from where Redis itself says it had got to (`applied`, which was
lost together with whatever came after it), and at least `again` records before that. When the log itself is
another one than Redis was filled from, what was stored by its offsets is removed first: none of it compares.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas import keys, metrics
from schemas.errors import Poison, StoreDown, Transient
from schemas.records import LogReader, Record
from schemas.trips import Ask, Epoch, Trips, asked, script_beside
from streams.recipients_apply import Applier

log = logging.getLogger(__name__)
STEP = script_beside(__file__, "rebuild.lua")

LOG_ID = "log"
"""Field beside the applied offsets: which log they belong to."""
SCAN_COUNT = 1_000


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """look_s: how often the epoch is compared. again: records before the last applied one that are applied
    again after a restart: more than the engine has in flight, since its batches end in any order.
    lock_s: how long another process waits for one that died while rebuilding.
    """

    look_s: float = 0.5
    batch: int = 500
    again: int = 5_000
    lock_s: float = 10.0


class Rebuild:
    """Watches the epoch key and rebuilds when it does not fit. Any number of processes may run one.

    partitions: topic -> how many the broker has. log_id: stands for the topics themselves (a hash of their ids):
    another one means that they were created anew. token: this process's own, any unique text.
    trusted: set once Redis could be trusted for the first time.
    """

    def __init__(
        self,
        trips: Trips,
        epoch: Epoch,
        applier: Applier,
        log_reader: LogReader,
        partitions: Mapping[str, int],
        log_id: str,
        token: str,
        options: RebuildOptions | None = None,
    ) -> None:
        self._trips = trips
        self._epoch = epoch
        self._applier = applier
        self._log_reader = log_reader
        self._places = [(topic, number) for topic in applier.topics for number in range(partitions[topic])]
        self._log_id = log_id.encode()
        self._token = token
        self._options = options or RebuildOptions()
        self.trusted = asyncio.Event()

    async def run(self) -> None:
        """Looks for ever, until cancelled. Never raises for what Redis or the log do."""
        while True:
            try:
                await self.look()
            except Transient as error:
                metrics.REDIS_DOWN.set(1)
                log.warning("redis.unavailable", extra={"error": str(error)})
            await asyncio.sleep(self._options.look_s)

    async def look(self) -> bool:
        """Rebuilds when needed and when nobody else does; True when Redis can be trusted afterwards.

        Raises Transient when Redis or the log gave up in between: look again.
        """
        stored = await self._ask("GET", keys.REDIS_EPOCH)
        filled_from = await self._ask("HGET", keys.REDIS_APPLIED, LOG_ID)
        is_foreign = filled_from is not None and filled_from != self._log_id
        is_trusted = self._epoch.holds(stored) and not is_foreign
        if not is_trusted and await self._locked():
            if is_foreign:
                await self._forget()
            await self._rebuild("all" if stored is None or is_foreign else "recent")
            is_trusted = True
        metrics.REDIS_DOWN.set(not is_trusted)
        if is_trusted:
            self.trusted.set()
        return is_trusted

    async def note_applied(self, records: Sequence[Record]) -> None:
        """Remembers in Redis itself how far its content goes. Raises StoreDown."""
        if records:
            newest = {(record.topic, record.partition): record.offset for record in records}
            await self._step("note", self._epoch.run_id, newest)

    async def _locked(self) -> bool:
        lock_ms = int(self._options.lock_s * 1000)
        return await self._ask("SET", keys.REDIS_REBUILD, self._token, "NX", "PX", lock_ms) is not None

    async def _forget(self) -> None:
        """Removes everything that was stored by offsets of another log. Nobody trusts Redis meanwhile."""
        log.warning("redis.filled_from_another_log")
        await self._ask("DEL", keys.REDIS_EPOCH, keys.REDIS_APPLIED)
        for prefix in keys.REDIS_BY_OFFSET:
            cursor = b"0"
            while True:
                cursor, found = await self._ask("SCAN", cursor, "MATCH", prefix + "{*", "COUNT", SCAN_COUNT)
                for key in found:
                    await self._ask("UNLINK", key)
                await self._step("hold", self._epoch.run_id)
                if not int(cursor):
                    break

    async def _rebuild(self, kind: str) -> None:
        """From the log to Redis, up to what the log held when this began: newer records come by the handler."""
        run_id = self._epoch.run_id
        log.info("redis.rebuild_started", extra={"kind": kind})
        applied = await self._ask("HGETALL", keys.REDIS_APPLIED) if kind == "recent" else {}
        newest: dict[tuple[str, int], int] = {}
        total = 0
        for topic, partition in self._places:
            first, end = await self._log_reader.offsets(topic, partition)
            last_applied = applied.get(_name(topic, partition).encode())
            if last_applied is not None:
                first = max(first, int(last_applied) - self._options.again)
            total += await self._apply_range(topic, partition, first, end - 1, run_id)
            newest[topic, partition] = end - 1
        await self._step("finish", run_id, newest)
        metrics.REDIS_REBUILDS.labels(kind).inc()
        log.info("redis.rebuilt", extra={"kind": kind, "records": total})

    async def _apply_range(self, topic: str, partition: int, first: int, last: int, run_id: bytes) -> int:
        records = self._log_reader.read_range(topic, partition, first, last)
        total = 0
        try:
            async for batch in _batches(records, self._options.batch):
                # Unreadable records were parked when they first came by; they hold nothing to put back.
                await self._applier.apply(batch)
                await self._step("hold", run_id)
                total += len(batch)
        except Poison as error:
            raise Transient(f"the log of {topic} moved on while it was read: {error}") from error
        return total

    async def _step(self, step: str, run_id: bytes, newest: Mapping[tuple[str, int], int] | None = None) -> None:
        """Raises StoreDown when Redis was emptied or somebody else rebuilds it: look again."""
        places: list[str | bytes | int] = [LOG_ID, self._log_id] if step == "finish" else []
        places += [part for at, offset in (newest or {}).items() for part in (_name(*at), offset)]
        lock_ms = int(self._options.lock_s * 1000)
        touched = (keys.REDIS_REBUILD, keys.REDIS_EPOCH, keys.REDIS_APPLIED)
        done = await self._one(lambda trip: trip.run(STEP, touched, step, self._token, run_id, lock_ms, *places))
        if not done and step != "note":
            raise StoreDown("Redis was emptied while it was rebuilt, or somebody else took over")

    async def _ask(self, *command: Any) -> Any:
        return await self._one(lambda trip: trip.execute_command(*command))

    async def _one(self, ask: Ask) -> Any:
        (reply,) = await asked(self._trips, ask)
        return reply


async def _batches(records: AsyncIterator[Record], size: int) -> AsyncIterator[list[Record]]:
    batch: list[Record] = []
    async for record in records:
        batch.append(record)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _name(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"
