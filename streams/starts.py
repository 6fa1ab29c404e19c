"""When a single may go out: at its instant, or at the wished time of day in the user's own zone.

Pure. `route` asks it with the profile at hand; the clock changes are `schemas/local_times.py`'s.
"""

from __future__ import annotations

from typing import NamedTuple

from schemas import contacts, local_times
from schemas.messages import NotificationRequested
from schemas.reasons import Reason
from schemas.stores import Profile


class Start(NamedTuple):
    """due_ms: not before; it may lie in the past. reason: what it waits for until then."""

    due_ms: int
    reason: Reason = Reason.SCHEDULED


def start(event: NotificationRequested, profile: Profile, tenant_zone: str) -> Start:
    """When this request may go out by its own wish, the same at every reading.

    A time of day is reckoned from its acceptance, in the zone of `to`, else of the profile, else in the tenant's: also
    where nobody knows a zone of that name, which the reason then says.
    """
    if not event.send_at_local:
        return Start(event.send_at_ms)
    wanted = contacts.effective(profile, event.to).time_zone
    zone, is_wanted = local_times.known_zone(wanted, tenant_zone)
    due_ms = local_times.due_ms(event.send_on, event.send_at_local, zone, event.accepted_at_ms)
    return Start(due_ms, Reason.SCHEDULED if is_wanted else Reason.UNKNOWN_ZONE)
