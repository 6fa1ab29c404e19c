"""Cancel of one notification: which of its deliveries can still be stopped. Asked by the API through `schemas.stores`.

The flag comes first, so that no claim taken after it can miss it; only then are the claims looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from consumers.claims import Entry, VerdictClass, unpacked_entry
from schemas import keys
from schemas.messages import Channel
from schemas.trips import Epoch, Trip, Trips, asked, trusted

CANCEL_KEPT_S = 30 * 86_400


class RedisCancellations:
    """Body of `schemas.stores.Cancellations`."""

    def __init__(self, trips: Trips, epoch: Epoch) -> None:
        self._trips = trips
        self._epoch = epoch

    async def cancel(self, tenant: str, user_id: str, intent: str) -> Sequence[tuple[str, str]] | None:
        def ask(trip: Trip) -> None:
            trip.execute_command("SET", keys.redis_cancel(tenant, user_id, intent), 1, "EX", CANCEL_KEPT_S)
            trip.execute_command("GET", keys.redis_plan(tenant, user_id, intent))

        _, plan = await trusted(self._trips, self._epoch, ask)
        return None if plan is None else await self._states(tenant, user_id, intent, plan)

    async def _states(self, tenant: str, user_id: str, intent: str, plan: bytes) -> Sequence[tuple[str, str]]:
        planned, later = planned_suffixes(plan)
        suffixes = [*planned, *later]

        def ask(trip: Trip) -> None:
            for suffix in suffixes:
                trip.execute_command("GET", keys.redis_claim(tenant, user_id, f"{intent}:{suffix}"))
                trip.execute_command("GET", keys.redis_digest(tenant, user_id, intent, suffix.partition("/")[0]))

        replies = await asked(self._trips, ask)
        return [
            (suffix, _stoppable(None if raw is None else unpacked_entry(raw), digest))
            for suffix, raw, digest in zip(suffixes, replies[::2], replies[1::2], strict=True)
            if raw is not None or suffix in planned
        ]


def planned_suffixes(plan: bytes) -> tuple[list[str], list[str]]:
    """(suffixes put into a lane, suffixes that a fallback may add) of a plan as the planners store it:
    `row|slot|[[[channel, device, reason, next], ...], fallback channels]`; a reason means it ended unsent.
    """
    parts, fallback = orjson.loads(plan.split(b"|", 2)[2])
    sent_out = [keys.delivery_suffix(Channel(channel), device) for channel, device, reason, _ in parts if not reason]
    return sent_out, [keys.delivery_suffix(Channel(channel)) for channel in fallback]


def _stoppable(entry: Entry | None, digest: bytes | None) -> str:
    """A lapsed claim counts as sending: its call may have been accepted, so nobody may say it was stopped. So does one
    that was taken over and given back, and what is in a digest: it goes out with that.
    """
    if digest is not None and digest != keys.IN_NO_DIGEST:
        return "sending"
    if entry is None or entry.verdict in (VerdictClass.WAITING, VerdictClass.ENDED):
        return "waiting"
    if entry.given_back:
        return "sending" if entry.takeovers else "waiting"
    return "sent" if entry.verdict is VerdictClass.SENT else "sending"
