"""Deliveries that come out of hold a day after they were due: their claims may be gone, so their rows say who went.

A leader that died between letting go and the tombstone and was not replaced for a day looks like this, and a record of
`hold` that somebody wrote again. Used by `streams/letting_go.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from schemas import keys
from schemas.errors import Transient
from schemas.messages import Delivery, EventKind, Held
from schemas.stores import SlotView, StatusReads

CLAIMED_FOR_MS = 20 * 3_600_000
"""Claims live for 24 h from the call. Who may have gone longer ago than this is asked for."""
ROWS_A_LOOK = 50
"""Each is a request to its owner, and the leader waits for it; what is left comes up again in the next look."""
_WAITS = frozenset({"accepted", EventKind.SCHEDULED, EventKind.QUEUED, EventKind.HELD, EventKind.RETRYING})

_Rows = dict[tuple[str, str], Sequence[SlotView | None]]


class WentBefore:
    """Asks the owners of rows."""

    def __init__(self, rows: StatusReads) -> None:
        self._rows = rows

    async def among(self, waiting: Sequence[tuple[Held, Delivery]], now_ms: int) -> list[bool | None]:
        """For each delivery whether it went before; None where that cannot be known now."""
        old = [now_ms - (held.due_ms or held.held_at_ms) > CLAIMED_FOR_MS for held, _ in waiting]
        rows = await self._read(
            {(one.tenant, one.row) for (_, one), is_old in zip(waiting, old, strict=True) if is_old}
        )
        return [_went(rows, one) if is_old else False for (_, one), is_old in zip(waiting, old, strict=True)]

    async def _read(self, wanted: Collection[tuple[str, str]]) -> _Rows:
        """Some of these rows; after one that nobody answers for no other is asked."""
        found: _Rows = {}
        for tenant, row in sorted(wanted)[:ROWS_A_LOOK]:
            try:
                found[tenant, row] = await self._rows.row(tenant, row)
            except Transient:
                break
        return found


def _went(rows: _Rows, delivery: Delivery) -> bool | None:
    """Whether its own call was made, or it has ended."""
    row = rows.get((delivery.tenant, delivery.row))
    if row is None:
        return None
    slot = row[delivery.slot] if delivery.slot < len(row) else None
    suffix = keys.delivery_suffix(delivery.channel, delivery.device)
    for one in slot.deliveries if slot is not None else ():
        if keys.shown_suffix(one.channel, one.device) == suffix:
            return one.calls >= delivery.call or one.state not in _WAITS
    return False
