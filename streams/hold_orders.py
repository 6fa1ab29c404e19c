"""What operators order about single deliveries in hold: let it go now, or drop it. The leader obeys.

An order names a hold id, which ends in a hop: what comes into hold later, of the same delivery too, is not meant.
It lies on `hold.control` until its delivery has gone, so that a new leader obeys it as well; its tombstone follows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from schemas import codec, keys, metrics
from schemas.clock import Clock
from schemas.errors import Poison, StoreDown
from schemas.messages import EventKind, HoldOrder, HoldOrdered, StatusBatch, StatusEvent
from schemas.reasons import Reason
from schemas.records import Outgoing, Publisher, Record
from schemas.stores import Drops
from schemas.topics import Topics
from streams.holds import Waiting
from streams.letting_go import Found, LettingGo

log = logging.getLogger(__name__)

ORDERS_A_LOOK = 1_000
FORGOTTEN_AFTER_MS = 60_000
"""An order may be read before its delivery is; after so long there is none."""


class Orders:
    """Those on the log, by hold id. topics: those whose records it takes."""

    def __init__(self, topics: Topics) -> None:
        self.topics = (topics.hold_control,)
        self._open: dict[bytes, HoldOrdered] = {}

    def on_record(self, record: Record) -> None:
        """The newest of a hold id counts; what cannot be read is logged and left out."""
        hold_id = record.key or b""
        self._open.pop(hold_id, None)
        if record.value is None:
            return
        try:
            self._open[hold_id] = codec.decode(record.value, HoldOrdered)
        except Poison as error:
            log.warning("hold.order_unreadable", extra={"offset": record.offset, "error": error.text})

    def turn(self, most: int) -> list[tuple[bytes, HoldOrdered]]:
        """So many of them; in the next turn others come first."""
        found = [(hold_id, self._open.pop(hold_id)) for hold_id in list(self._open)[:most]]
        self._open.update(found)
        return found

    def over(self, hold_ids: Sequence[bytes]) -> None:
        for hold_id in hold_ids:
            self._open.pop(hold_id, None)


class Obeying:
    """Acts for the leader. A crash between its steps repeats them: an end told twice is told once."""

    def __init__(
        self, orders: Orders, letting_go: LettingGo, drops: Drops, publisher: Publisher, topics: Topics, clock: Clock
    ) -> None:
        self.orders = orders
        self._letting_go = letting_go
        self._holds = letting_go.holds
        self._drops = drops
        self._publisher = publisher
        self._topics = topics
        self._clock = clock

    async def obey(self) -> None:
        """Makes due what is to be released, ends what is to be dropped, some at a time. Raises Transient."""
        now_ms = self._clock.now_ms()
        over, dropped = [], []
        for hold_id, order in self.orders.turn(ORDERS_A_LOOK):
            waiting = self._holds.waiting(hold_id)
            if waiting is None:
                over += [hold_id] if now_ms - order.at_ms > FORGOTTEN_AFTER_MS else []
            elif order.order is HoldOrder.DROP:
                dropped.append(waiting)
            elif waiting.due_ms > now_ms:
                self._holds.goes_alone(waiting, now_ms)
                metrics.HOLD_ORDERS.labels(order.order).inc()
        await self._drop(dropped, now_ms)
        await self._publisher.publish([Outgoing(self._topics.hold_control, hold_id, None) for hold_id in over])
        self.orders.over(over)

    async def _drop(self, waiting: Sequence[Waiting], now_ms: int) -> None:
        """Their claims end first, so that no copy is sent; then they are told, and then come the tombstones. While
        Redis is away they stay in hold, and the order on the log.
        """
        if not waiting:
            return
        found = await self._letting_go.found(waiting)
        try:
            await self._drops.drop([one.delivery for one in found], now_ms)
        except StoreDown as error:
            log.warning("hold.drop_waits", extra={"deliveries": len(found), "error": str(error)})
            return
        await self._publisher.publish([self._end(one, now_ms) for one in found])
        await self._letting_go.bury([one.thing for one in found], self._publisher)
        metrics.HOLD_ORDERS.labels(HoldOrder.DROP).inc(len(found))

    def _end(self, one: Found, now_ms: int) -> Outgoing:
        delivery = one.delivery
        end = StatusEvent(
            delivery.slot,
            EventKind.CANCELLED,
            now_ms,
            keys.delivery_suffix(delivery.channel, delivery.device),
            generation=delivery.generation,
            reason=Reason.DROPPED_BY_OPERATOR,
            detail=f"was held: {one.held.reason}",
        )
        batch = StatusBatch(delivery.tenant, delivery.row, (end,))
        return Outgoing(self._topics.status, keys.row_key(delivery.tenant, delivery.row).encode(), codec.encode(batch))
