"""What is counted of reports: of what was sent in a minute, how much was delivered within ten minutes.

`status_table` notes what a merge made known, once each; the process adds it to Redis every second, where
`streams/share_watch.py` reads it. A crash may lose a second of it or count it twice: it warns, and decides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set

from schemas import keys
from schemas.clock import Clock
from schemas.errors import StoreDown
from schemas.messages import EventKind, StatusEvent
from schemas.slots import Slot
from schemas.states import DELIVERED, Call
from schemas.trips import Trip, Trips, asked

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
SOON_MS = 10 * MINUTE_MS
HOUR_KEPT_S, DAY_KEPT_S = 3 * 3_600, 9 * 86_400
DAYS = 7
UNTOLD_MAX = 2_000
"""Minutes of providers kept while Redis is away."""

Minute = tuple[str, str, int]
"""(provider, channel, minutes since 1970) of the call."""


class ShareTally:
    """Counts of one status process. providers: those that promise reports; no other is counted.

    counted: what was not told yet: (sent, delivered soon) of each minute.
    """

    def __init__(self, providers: Set[str] = frozenset()) -> None:
        self._providers = providers
        self.counted: defaultdict[Minute, list[int]] = defaultdict(lambda: [0, 0])

    def note(self, event: StatusEvent, name: str, before: Slot, after: Slot) -> None:
        """The event, on the delivery of this name, turned what was known of its slot from one into the other."""
        if event.kind not in _KINDS or event.provider not in self._providers:
            return
        call = _call(after, name)
        if call is None:
            return
        was = _call(before, name)
        if was is None or was.call != call.call or was.generation != call.generation:
            self._count(event.provider, name, call, 1, _is_soon(call))
        elif _is_soon(call) and not _is_soon(was):
            self._count(event.provider, name, call, 0, True)

    def _count(self, provider: str, name: str, call: Call, sent: int, soon: bool) -> None:
        counted = self.counted[provider, name.partition("/")[0], call.sent_at_ms // MINUTE_MS]
        counted[0] += sent
        counted[1] += soon

    async def tell(self, trips: Trips, clock: Clock) -> None:
        """Adds what was counted to Redis; while that is away it is kept, within a bound."""
        told, self.counted = self.counted, defaultdict(lambda: [0, 0])
        if not told:
            return
        oldest = (clock.now_ms() - DAYS * DAY_MS) // MINUTE_MS
        recent = {minute: counted for minute, counted in told.items() if minute[2] >= oldest}
        try:
            await asked(trips, lambda trip: _add(trip, recent))
        except StoreDown:
            for minute, counted in list(recent.items())[:UNTOLD_MAX]:
                kept = self.counted[minute]
                kept[0] += counted[0]
                kept[1] += counted[1]


_KINDS = frozenset((EventKind.SENT, EventKind.DELIVERED))


def _call(slot: Slot, name: str) -> Call | None:
    """The newest call of the delivery of this name, if a provider accepted it."""
    found = slot.deliveries.get(name)
    call = found.settled if found is not None else None
    return call if isinstance(call, Call) and call.sent_at_ms else None


def _is_soon(call: Call) -> bool:
    report = call.report
    return report is not None and report.kind == DELIVERED and report.at_ms - call.sent_at_ms <= SOON_MS


def _add(trip: Trip, told: dict[Minute, list[int]]) -> None:
    for (provider, channel, minute), (sent, soon) in told.items():
        hour, day = minute // 60, minute // 1440
        by_minute, by_hour = (
            keys.redis_share(provider, channel, "h", hour),
            keys.redis_share(provider, channel, "d", day),
        )
        for key, field, kept_s in ((by_minute, minute, HOUR_KEPT_S), (by_hour, hour, DAY_KEPT_S)):
            for word, count in (("s", sent), ("d", soon)):
                if count:
                    trip.execute_command("HINCRBY", key, f"{field}{word}", count)
            trip.execute_command("EXPIRE", key, kept_s)
