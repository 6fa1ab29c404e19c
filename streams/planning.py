"""Which deliveries a notification has: who may be reached how, decided once.

Pure. `route` (singles) and `fan_out` (pages) plan here, fix the plan first-wins in Redis (`streams/plans.py`)
and produce from the plan that won, so a second run with a changed profile sends nothing new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import orjson

from schemas import keys, messages
from schemas.messages import Channel, EventKind
from schemas.policies import TemplatePolicy
from schemas.reasons import Reason
from schemas.stores import Profile

MAX_DEVICES = 5
"""Push reaches the newest ones."""
MAX_DELIVERIES = 8
"""A slot of a status row has room for these."""
ALL_CHANNELS = frozenset(Channel)
"""Served where nobody says which channels have a provider."""


class Part(NamedTuple):
    """One delivery of a plan. reason: why it ends unsent, "" when it goes into a lane; next: the fallback after it."""

    channel: Channel
    device: str = ""
    reason: str = ""
    next: str = ""

    @property
    def suffix(self) -> str:
        return keys.delivery_suffix(self.channel, self.device)


class Plan(NamedTuple):
    """The deliveries of one slot, in index order; fallback: channels still to try. No parts: nobody can be reached."""

    parts: tuple[Part, ...]
    fallback: tuple[Channel, ...] = ()

    def suffixes(self) -> tuple[str, ...]:
        return tuple([part.suffix for part in self.parts])

    def siblings(self, index: int) -> tuple[str, ...]:
        """The other deliveries that went into a lane, for the one at this index."""
        if len(self.parts) == 1:
            return ()
        return tuple([part.suffix for at, part in enumerate(self.parts) if at != index and not part.reason])


def plan(
    policy: TemplatePolicy,
    requested: Sequence[Channel],
    profile: Profile,
    to: messages.Contact | None,
    served: Collection[Channel] = ALL_CHANNELS,
) -> Plan:
    """Who is reached how, by what is known of the person now.

    requested replaces the template's channels, fallback included. All of `channels` are sent; only when none
    of them has an address, or there are none, the fallback channels are tried in order. An opt-out from
    `channels` is a wish and starts no fallback; inside the fallback list it is passed over. A channel that is not
    served reaches nobody, as one without an address; nothing falls back to it later.
    """
    reach = _Reach(policy, profile, to, served)
    first, left = _order(tuple(requested), policy.channels, policy.fallback)
    parts: list[Part] = []
    for channel in first:
        parts += reach.parts(channel)
    if not parts or not _UNREACHABLE.isdisjoint([part.reason for part in parts]):
        left = _walk_fallback(reach, parts, left)
    return Plan(tuple(parts[:MAX_DELIVERIES]), left and tuple([c for c in left if c in served]))


def pack(plan: Plan, address: keys.Address) -> bytes:
    """The plan and the address it was made for, as it lies in Redis."""
    parts = [[part.channel, part.device, part.reason, part.next] for part in plan.parts]
    return address_prefix(address) + orjson.dumps([parts, plan.fallback])


def address_prefix(address: keys.Address) -> bytes:
    """How a packed plan made for this address begins. Rows hold no "|"."""
    return f"{address.row}|{address.slot}|".encode()


def unpack(raw: bytes) -> tuple[Plan, keys.Address]:
    """The plan and the address of the notification it was made for."""
    row, slot, body = raw.split(b"|", 2)
    parts, fallback = orjson.loads(body)
    plan = Plan(tuple(Part(Channel(c), *rest) for c, *rest in parts), tuple(map(Channel, fallback)))
    return plan, keys.Address(row.decode(), int(slot))


def planned(
    suffixes: tuple[str, ...],
    slot: int,
    at_ms: int,
    source_offset: int,
    user_id: str,
    template: str,
    accepted_at_ms: int,
) -> messages.StatusEvent:
    """The row is told the plan. source_offset orders the plans of one slot: the lowest wins."""
    return messages.StatusEvent(
        slot,
        EventKind.PLANNED,
        at_ms,
        plan=suffixes,
        source_offset=source_offset,
        user_id=user_id,
        template=template,
        accepted_at_ms=accepted_at_ms,
    )


def unsent(plan: Plan, slot: int, at_ms: int) -> Iterator[messages.StatusEvent]:
    """A named reason for each delivery that goes nowhere."""
    for part in plan.parts:
        if part.reason:
            yield messages.StatusEvent(
                slot, EventKind.SUPPRESSED, at_ms, part.suffix, reason=part.reason, next=part.next
            )


def slot_end(
    slot: int,
    kind: EventKind,
    reason: str,
    at_ms: int,
    user_id: str = "",
    template: str = "",
    accepted_at_ms: int = 0,
    detail: str = "",
) -> messages.StatusEvent:
    """The whole slot ends without any delivery."""
    return messages.StatusEvent(
        slot,
        kind,
        at_ms,
        reason=reason,
        detail=detail,
        user_id=user_id,
        template=template,
        accepted_at_ms=accepted_at_ms,
    )


@lru_cache(256)
def _order(
    requested: tuple[Channel, ...], channels: tuple[Channel, ...], fallback: tuple[Channel, ...]
) -> tuple[tuple[Channel, ...], tuple[Channel, ...]]:
    """What is sent first, all of it, and what is tried in order afterwards; the same for a whole page."""
    first = tuple(dict.fromkeys(requested or channels))
    return first, () if requested else tuple(c for c in fallback if c not in first)


class _Reach:
    """Where one person can be reached, channel by channel."""

    __slots__ = ("_policy", "_profile", "_served", "_to")

    def __init__(
        self, policy: TemplatePolicy, profile: Profile, to: messages.Contact | None, served: Collection[Channel]
    ) -> None:
        self._policy = policy
        self._served = served
        self._profile = profile
        self._to = to or _NOWHERE

    def parts(self, channel: Channel) -> tuple[Part, ...]:
        """The deliveries of this channel: one, for push one per device; with the reason when it cannot be."""
        profile = self._profile
        if profile.erased:
            return (Part(channel, reason=Reason.ERASED),)
        if profile.opt_outs and profile.opted_out(channel, self._policy.name, self._policy.message_class):
            return (Part(channel, reason=Reason.OPTED_OUT),)
        if channel not in self._served:
            return (_UNSERVED[channel],)
        if channel is Channel.PUSH:
            return self._devices()
        if self._has_address(channel):
            return (_REACHED[channel],)
        return (_UNREACHED[channel],)

    def _devices(self) -> tuple[Part, ...]:
        devices = self._to.devices or self._profile.devices
        if not devices:
            return (_UNREACHED[Channel.PUSH],)
        if len(devices) > 1:
            newest = sorted(devices, key=lambda device: (-device.registered_at_ms, device.id))
            devices = tuple({device.id: device for device in newest[:MAX_DEVICES]}.values())
        return tuple([Part(Channel.PUSH, device.id) for device in devices])

    def _has_address(self, channel: Channel) -> bool:
        match channel:
            case Channel.EMAIL:
                return bool(self._to.email or self._profile.email)
            case Channel.SMS:
                return bool(self._to.phone or self._profile.phone)
        return True


_NOWHERE = messages.Contact()
_REACHED = {channel: Part(channel) for channel in Channel}
_UNREACHED = {channel: Part(channel, reason=Reason.NO_ADDRESS) for channel in Channel}
_UNSERVED = {channel: Part(channel, reason=Reason.NO_PROVIDER) for channel in Channel}
_UNREACHABLE = frozenset({Reason.NO_ADDRESS, Reason.NO_PROVIDER})


def _walk_fallback(reach: _Reach, parts: list[Part], left: tuple[Channel, ...]) -> tuple[Channel, ...]:
    """Adds fallback channels up to the first that reaches the person; returns those still left."""
    while left and all(part.reason for part in parts):
        following = reach.parts(left[0])
        if parts:
            last = parts[-1]
            parts[-1] = Part(last.channel, last.device, last.reason, following[0].suffix)
        parts.extend(following)
        left = left[1:]
    return left
