"""Who may be reached, and how: profiles, opt-outs and suppressions in Redis, each no older than the log says.

A profile is one hash: a field per facet holding the facet's log offset and its content, and `v`, a version
that the script raises with every effective change. Writers (the API after its ack, `route recipients`) may
come in any order and any number: the higher offset stays. Readers ask with one command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from schemas import facets, keys, messages
from schemas.stores import FacetWrite, Profile
from schemas.trips import Epoch, Trip, Trips, asked, script_beside, trusted

WRITE = script_beside(__file__, "recipients.lua")
SUPPRESS = script_beside(__file__, "suppressions.lua")
MARK_KEPT_S = 7 * 24 * 3600
"""How long a lifted suppression or a removed facet remembers its offset: longer than any writer can lag behind. That of
a facet goes with the next change to its user."""
NOBODY = Profile()


class RedisProfiles:
    """Body of stores.Profiles and stores.ProfileWrites."""

    def __init__(self, trips: Trips, epoch: Epoch) -> None:
        self._trips = trips
        self._epoch = epoch

    def ask(self, trip: Trip, tenant: str, user_id: str) -> None:
        trip.execute_command("HGETALL", keys.redis_profile(tenant, user_id))

    def read(self, reply: dict[bytes, bytes]) -> Profile:
        return read_profile(reply) if reply else NOBODY

    def write(self, trip: Trip, tenant: str, user_id: str, writes: Sequence[FacetWrite]) -> None:
        """Appends one command; its reply names the facets that an erasure among the writes removed."""
        arguments = [part for write in writes for part in (write.name, write.offset, _packed(write.facet))]
        trip.run(WRITE, _keys(tenant, user_id), MARK_KEPT_S, *arguments)

    async def apply(self, tenant: str, user_id: str, writes: Sequence[FacetWrite]) -> tuple[str, ...]:
        (removed,) = await asked(self._trips, lambda trip: self.write(trip, tenant, user_id, writes))
        return removed_names(removed)

    async def load(self, tenant: str, user_id: str) -> Profile:
        (stored,) = await trusted(self._trips, self._epoch, lambda trip: self.ask(trip, tenant, user_id))
        return self.read(stored)


class RedisSuppressions:
    """Body of stores.Suppressions and stores.SuppressionWrites."""

    def __init__(self, trips: Trips, epoch: Epoch) -> None:
        self._trips = trips
        self._epoch = epoch

    def ask(self, trip: Trip, tenant: str, channel: str, address: str) -> None:
        _ask_cause(trip, tenant, channel, keys.address_hash(channel, address))

    def read(self, reply: bytes | None) -> str:
        return reply.partition(b" ")[2].decode() if reply else ""

    def write(self, trip: Trip, tenant: str, channel: str, hashed: str, offset: int, cause: str) -> None:
        key = keys.redis_suppression(tenant, channel, hashed)
        trip.run(SUPPRESS, (key,), offset, cause, MARK_KEPT_S)

    async def apply(self, tenant: str, channel: str, hashed: str, offset: int, cause: str) -> None:
        await asked(self._trips, lambda trip: self.write(trip, tenant, channel, hashed, offset, cause))

    async def load(self, tenant: str, channel: str, hashed: str) -> str:
        (stored,) = await trusted(self._trips, self._epoch, lambda trip: _ask_cause(trip, tenant, channel, hashed))
        return self.read(stored)


def read_profile(stored: dict[bytes, bytes]) -> Profile:
    """The profile in a stored hash. Hot: once per delivery."""
    version, user_at, erased_at = 0, -1, -1
    email = phone = locale = time_zone = ""
    devices: list[messages.Device] = []
    opt_outs: list[tuple[str, str]] = []
    for name, value in stored.items():
        if name == b"v":
            version = int(value)
            continue
        offset, _, body = value.partition(b" ")
        if not body:
            continue
        if name == b"erased":
            erased_at = int(offset)
        elif name == b"user":
            user_at, (email, phone, locale, time_zone) = int(offset), orjson.loads(body)
        elif name.startswith(b"device/"):
            devices.append(messages.Device(*orjson.loads(body)))
        else:
            opt_outs.append(facets.opt_out_of(name.decode()))
    if len(devices) > 1:
        devices.sort(key=_newest_first)
    # Somebody erased who registers again later is a new person to us; until then nothing may be sent.
    erased = erased_at > user_at
    return Profile(version, erased, email, phone, locale, time_zone, tuple(devices), frozenset(opt_outs))


def removed_names(reply: Sequence[bytes]) -> tuple[str, ...]:
    """The reply of `RedisProfiles.write`."""
    return tuple(name.decode() for name in reply)


def _ask_cause(trip: Trip, tenant: str, channel: str, hashed: str) -> None:
    trip.execute_command("GET", keys.redis_suppression(tenant, channel, hashed))


def _keys(tenant: str, user_id: str) -> tuple[str, ...]:
    return (
        keys.redis_profile(tenant, user_id),
        keys.redis_timeline(tenant, user_id),
        keys.redis_inbox(tenant, user_id),
        keys.redis_inbox_order(tenant, user_id),
        keys.redis_inbox_unread(tenant, user_id),
    )


def _packed(facet: messages.RecipientFacet | None) -> bytes:
    """The facet's content; a removed one is empty, never so one that is there."""
    if facet is None:
        return b""
    if facet.facet is messages.FacetKind.USER:
        return orjson.dumps([facet.email, facet.phone, facet.locale, facet.time_zone])
    if facet.device is not None:
        return orjson.dumps(_device_fields(facet.device))
    return str(facet.at_ms).encode()


def _device_fields(device: messages.Device) -> list[Any]:
    return [device.id, device.token, device.platform, device.app, device.environment, device.registered_at_ms]


def _newest_first(device: messages.Device) -> tuple[int, str]:
    return -device.registered_at_ms, device.id
