"""Frequency caps: how many notifications a user may get a day, of one template and of all marketing.

Counted by the user's local date, once for each notification and channel, when it was sent or may have been. A place
is reserved with the claim, under its lease, so that many workers together never exceed a cap; it is confirmed or
given back when the call is settled. Who finds all places taken, some of them only reserved, waits: they may come free.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from schemas import keys, local_times
from schemas.messages import Delivery
from schemas.policies import MessageClass, TemplatePolicy
from schemas.trips import Trip, script_beside

RESERVE = script_beside(__file__, "caps_reserve.lua")
FREE = script_beside(__file__, "caps_free.lua")

KEPT_S = 50 * 3_600
"""From the first write: as long as any local date lasts, here or anywhere."""
MARKETING = "marketing"
"""The kind under which all marketing templates of a tenant count together; a template's own begins with a slash."""
_GROUP_BYTES = 8
_DEVICE_BYTES = 4


class Cap(NamedTuple):
    """One limit. kind: what counts against it, a template ("/" and its name) or MARKETING; key: of one user and day."""

    kind: str
    most: int
    key: str


class Place(NamedTuple):
    """What a delivery takes under each of its caps. member begins with group, which counts once."""

    caps: tuple[Cap, ...]
    group: bytes
    member: bytes


class Reserved(NamedTuple):
    """The answer to a reservation. full: the cap that was used up by what was sent; wait_ms: how long, at the longest,
    all places are taken by calls that are under way. Neither: it is ours.
    """

    full: Cap | None = None
    wait_ms: int = 0


OURS = Reserved()


class Caps(Protocol):
    """The port. claim_key, token: of the claim that it goes with."""

    def ask_reserve(self, trip: Trip, claim_key: bytes, token: bytes, place: Place) -> None:
        """Adds exactly one command."""
        ...

    def read_reserve(self, reply: Any, place: Place) -> Reserved: ...

    def ask_settle(self, trip: Trip, claim_key: bytes, token: bytes, place: Place, is_sent: bool) -> None:
        """The place counts for good, or is free again. Only the holder of the claim gives one back. Nobody reads what
        is answered.
        """
        ...


class CapRules:
    """What counts against which cap. marketing: tenant -> marketing messages a user may get a day, of all templates.

    zones: tenant -> the time zone of users whose own is not known.
    """

    def __init__(self, marketing: Mapping[str, int], zones: Mapping[str, str]) -> None:
        self.marketing = marketing
        self._zones = zones

    def place(self, delivery: Delivery, policy: TemplatePolicy, time_zone: str, now_ms: int) -> Place | None:
        """Where this delivery counts now; None: nowhere. time_zone: the user's own, "" when not known."""
        day = policy.caps.get("day", 0)
        together = self.marketing.get(delivery.tenant, 0) if policy.message_class is MessageClass.MARKETING else 0
        if not day and not together:
            return None
        date = local_times.local_date(self._zone(delivery.tenant, time_zone), now_ms)
        own = (_cap(delivery, f"/{policy.name}", day, date),) if day else ()
        shared = (_cap(delivery, MARKETING, together, date),) if together else ()
        group = _group(delivery)
        return Place(own + shared, group, group + _hashed(delivery.device, _DEVICE_BYTES))

    def day_ends_ms(self, tenant: str, time_zone: str, now_ms: int) -> int:
        """When the next date begins that places are counted by."""
        return local_times.due_ms("", "00:00", self._zone(tenant, time_zone), now_ms + 1)

    def _zone(self, tenant: str, own: str) -> str:
        return local_times.known_zone(own, self._zones.get(tenant, "UTC"))[0]


class RedisCaps:
    """The caps in Redis: a sorted set for each user, kind and date."""

    def ask_reserve(self, trip: Trip, claim_key: bytes, token: bytes, place: Place) -> None:
        touched, limits = _touched(claim_key, place), [cap.most for cap in place.caps]
        trip.run(RESERVE, touched, token, place.group, place.member, KEPT_S, *limits)

    def read_reserve(self, reply: Any, place: Place) -> Reserved:
        if reply == 0:
            return OURS
        if reply is None:  # the claim was lost since
            return Reserved(wait_ms=1)
        return Reserved(place.caps[-reply - 1]) if reply < 0 else Reserved(wait_ms=int(reply))

    def ask_settle(self, trip: Trip, claim_key: bytes, token: bytes, place: Place, is_sent: bool) -> None:
        if not is_sent:
            trip.run(FREE, _touched(claim_key, place), token, place.member)
            return
        for cap in place.caps:  # XX: a set that Redis lost since would come back without an end
            trip.execute_command("ZADD", cap.key, "XX", "inf", place.member)


def _touched(claim_key: bytes, place: Place) -> list[str | bytes]:
    return [claim_key, *(cap.key for cap in place.caps)]


def _cap(delivery: Delivery, kind: str, most: int, date: str) -> Cap:
    return Cap(kind, most, keys.redis_cap(delivery.tenant, delivery.user_id, kind, date))


def _group(delivery: Delivery) -> bytes:
    """A push to three devices is one notification on one channel."""
    return _hashed(keys.delivery_key(delivery.intent, delivery.channel), _GROUP_BYTES)


def _hashed(text: str, length: int) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=length).digest()
