"""Fallbacks in simulated runs: who was reached on one channel is not written to on the next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from schemas import states
from schemas.keys import Address
from schemas.slots import Slot
from tests.simulation.happened import Happened

IN_DOUBT = frozenset({"unconfirmed", "failed"})
"""How a call is told that may have been accepted, unless it is counted as a possible duplicate. A report that makes
more of an unconfirmed one does not change what was known when the next channel was asked."""


def turned_once(happened: Happened) -> Iterator[str]:
    """A channel that came in as a fallback is called only where nothing was sent before, or where that is in doubt."""
    accepted: defaultdict[Address, set[str]] = defaultdict(set)
    for asked in happened.asked():
        if asked.accepted:
            accepted[asked.address].add(asked.name)
    for address, names in accepted.items():
        slot = happened.slot(address)
        if slot.added.isdisjoint(names):
            continue
        for name in names - slot.added:
            if not _is_in_doubt(slot, name):
                yield f"{address} was sent by {name}, and turned to {sorted(slot.added)} all the same: {slot}"


def _is_in_doubt(slot: Slot, name: str) -> bool:
    parts = slot.deliveries.get(name)
    if parts is None:
        return False
    was_unconfirmed = isinstance(parts.settled, states.Call) and parts.settled.unconfirmed
    return bool(parts.doubled) or was_unconfirmed or states.shown(parts).state in IN_DOUBT
