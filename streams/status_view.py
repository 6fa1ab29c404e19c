"""Reads of status rows at their owner: an HTTP server beside the table, and the heartbeat that leads to it.

`streams/status_reads.py` is the client. The owner of a partition writes its address to Redis every second while
the partition is restored; it refuses to answer when its own last heartbeat is too old, since by then another
process may own the rows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import orjson
from aiohttp import web

from schemas import keys, metrics, partitions, rows, slots
from schemas.clock import Clock
from schemas.errors import StoreDown
from schemas.rows import Row
from schemas.slots import EMPTY
from schemas.stores import SlotView
from schemas.trips import Trip, Trips, asked
from streams.status_flow import StatusFlow

log = logging.getLogger(__name__)

OWNER_TTL_S = 3
STALE_AFTER_S = 5.0
RETRY_AFTER_S = "1"


class Owner:
    """Says in Redis which partitions this process serves, and knows whether it may still answer for them."""

    def __init__(self, flow: StatusFlow, trips: Trips, group: str, url: str, clock: Clock) -> None:
        self._flow = flow
        self._trips = trips
        self._group = group
        self._url = url
        self._clock = clock
        self._beat_at: float | None = None

    async def beat(self) -> None:
        """Writes the heartbeat; call every second. A Redis that does not answer is only noted: reads then stop."""
        try:
            await asked(self._trips, self._ask_owned)
        except StoreDown as error:
            log.warning("status_owner.heartbeat_failed", extra={"error": str(error)})
            return
        self._beat_at = self._clock.steady_s()

    def _ask_owned(self, trip: Trip) -> None:
        for partition in sorted(self._flow.owned):
            trip.execute_command("SET", keys.redis_owner(self._group, partition), self._url, "EX", OWNER_TTL_S)

    def serves(self, partition: int) -> bool:
        """Whether an answer about this partition can be trusted now."""
        fresh = self._beat_at is not None and self._clock.steady_s() - self._beat_at <= STALE_AFTER_S
        return fresh and partition in self._flow.owned


class StatusView:
    """GET /row?tenant=&row= and GET /slot?tenant=&row=&slot=, as JSON. partition_count: of `delivery.status`."""

    def __init__(self, flow: StatusFlow, owner: Owner, partition_count: int) -> None:
        self._flow = flow
        self._owner = owner
        self._partition_count = partition_count

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/row", self._get_row)
        app.router.add_get("/slot", self._get_slot)
        return app

    async def _get_row(self, request: web.Request) -> web.Response:
        return self._answer(request.query, None)

    async def _get_slot(self, request: web.Request) -> web.Response:
        number = request.query.get("slot", "")
        if not number.isdecimal():
            raise web.HTTPBadRequest(text="slot: a number is needed")
        return self._answer(request.query, int(number))

    def _answer(self, query: Mapping[str, str], slot: int | None) -> web.Response:
        key = keys.row_key(query.get("tenant", ""), query.get("row", "")).encode()
        partition = partitions.murmur2_partition(key, self._partition_count)
        if not self._owner.serves(partition):
            metrics.STATUS_READS.labels("not_owner").inc()
            raise web.HTTPServiceUnavailable(headers={"Retry-After": RETRY_AFTER_S}, text="not the owner now")
        views = self._views(partition, key, slot)
        metrics.STATUS_READS.labels("found" if views else "absent").inc()
        return web.Response(body=orjson.dumps(views), content_type="application/json")

    def _views(self, partition: int, key: bytes, only: int | None) -> list[SlotView | None]:
        """The row's slots by position, or only one of them; empty when there is no such row."""
        raw = self._flow.store.get(partition, key)
        if raw is None:
            return []
        row = Row(rows.is_campaign(raw), raw)
        found = row.slots() if only is None else [row.slot(only)]
        shared = row.shared
        return [slots.view(one, shared.template, shared.accepted_at_ms) if one is not EMPTY else None for one in found]
