"""What an operator dropped from hold is not sent by any record of it: the body of `schemas.stores.Drops`.

Who was held gave its claim back, or never had one; here it is taken and settled with the end, so that a copy in a lane
or in hold finds that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from consumers import claims, verdicts
from consumers.claims import Bid, Claims, VerdictClass
from consumers.verdicts import Verdict
from schemas.errors import Poison
from schemas.messages import Delivery, EventKind
from schemas.reasons import Reason
from schemas.trips import Epoch, Trip, Trips, trusted

log = logging.getLogger(__name__)

AT_ONCE = 200


class RedisDrops:
    """Ends claims in Redis."""

    def __init__(self, trips: Trips, epoch: Epoch, store: Claims) -> None:
        self._trips = trips
        self._epoch = epoch
        self._store = store

    async def drop(self, deliveries: Sequence[Delivery], at_ms: int) -> None:
        end = verdicts.pack(Verdict(EventKind.CANCELLED, at_ms, Reason.DROPPED_BY_OPERATOR))
        bids = list(_bids(deliveries))
        for start in range(0, len(bids), AT_ONCE):
            await self._end(bids[start : start + AT_ONCE], end)

    async def _end(self, bids: Sequence[Bid], end: bytes) -> None:
        def ask(trip: Trip) -> None:
            for bid in bids:
                self._store.ask_end(trip, bid, VerdictClass.ENDED, end)

        await trusted(self._trips, self._epoch, ask)


def _bids(deliveries: Sequence[Delivery]) -> Iterator[Bid]:
    """What cannot be claimed is not sent either."""
    for delivery in deliveries:
        try:
            yield claims.bid_for(delivery)
        except Poison as error:
            log.warning("drop.unclaimable", extra={"error": error.text})
