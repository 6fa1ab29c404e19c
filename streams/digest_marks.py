"""In which digest a notification went out: first one wins, as with plans (`streams/plans.py`).

A leader that died behind it, another that still acts, a record of `hold` that is written again: all find the mark, so
nothing goes out in two digests, and no digest with other members than those it was first made of. A cancel that comes
before the mark wins; one that comes after it finds the mark (`consumers/cancellations.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from schemas import keys
from schemas.trips import Epoch, Trip, Trips, script_beside, trusted

MARK = script_beside(__file__, "digest_marks.lua")
KEPT_S = 86_400
"""As long as the plan of the digest: what comes up again later asks the rows."""
ALONE = keys.IN_NO_DIGEST.decode()
"""Nobody else was in its window: it goes out as itself."""
CANCELLED = "-"
WAITS = ""


class Mark(NamedTuple):
    """digest: its event id, ALONE, CANCELLED, or WAITS for the next window. notification_id: of the digest, once that
    is known to be in the log.
    """

    digest: str
    notification_id: str = ""


class Window(NamedTuple):
    """The notifications of one user (their intents) on one channel that would go out as this digest. others: those
    that would not, unless they bear its mark already.
    """

    tenant: str
    user_id: str
    channel: str
    digest: str
    intents: Sequence[str]
    others: Sequence[str] = ()


class DigestMarks:
    """The marks in Redis. All raise StoreDown when it cannot be trusted."""

    def __init__(self, trips: Trips, epoch: Epoch) -> None:
        self._trips = trips
        self._epoch = epoch

    async def of(self, windows: Sequence[Window]) -> list[list[Mark]]:
        """The mark of each notification, in order, and of the others; these get none."""

        def ask(trip: Trip) -> None:
            for window in windows:
                trip.run(MARK, [*_touched(window)], window.digest, KEPT_S, len(window.intents))

        replies = await trusted(self._trips, self._epoch, ask) if windows else []
        return [[_mark(raw) for raw in reply] for reply in replies]

    async def name(self, windows: Iterable[tuple[Window, str]]) -> None:
        """These digests are in the log, under these ids."""

        def ask(trip: Trip) -> None:
            for window, notification_id in windows:
                for intent in window.intents:
                    key = keys.redis_digest(window.tenant, window.user_id, intent, window.channel)
                    trip.execute_command("SET", key, f"{window.digest} {notification_id}", "EX", KEPT_S)

        await trusted(self._trips, self._epoch, ask)


def _touched(window: Window) -> Iterable[str]:
    for intent in (*window.intents, *window.others):
        yield keys.redis_digest(window.tenant, window.user_id, intent, window.channel)
        yield keys.redis_cancel(window.tenant, window.user_id, intent)


def _mark(raw: bytes) -> Mark:
    digest, _, notification_id = raw.decode().partition(" ")
    return Mark(digest, notification_id)
