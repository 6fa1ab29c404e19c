"""A status row as packed bytes: up to 250 slots of a campaign's page, or 16 single notifications.

Slots are unpacked one by one and only when touched, so a few events on a big row stay cheap. A campaign's row
is always below 64 KB: at most 250 slots of 20 bytes + 8 deliveries of 24 bytes, 12,000 bytes of user ids, a head
of 149 and counts of 306. Times there are whole seconds, and texts and providers are not kept; singles keep
everything. Layout: head, counts, the length of each slot's body (2 bytes each), the bodies.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from schemas import keys, packed_slots, slots, states
from schemas.counts import Vector
from schemas.errors import Poison
from schemas.messages import StatusEvent
from schemas.reasons import UNREACHED, ParkReason
from schemas.slots import EMPTY, NO_OFFSET, Plan, Slot
from schemas.states import Call, Delivery, End, Report, Wait

CAMPAIGN_SLOTS = 250
CAMPAIGN_ROW_MAX_BYTES = 65_535
USER_IDS_MAX_BYTES = 12_000
"""Of one page together, in UTF-8; the upload cuts its pages so."""
_VERSION = 2
_FIRST_VERSION = 1
"""Its counts took whoever had one channel without an address for suppressed, whatever became of the next."""


class Shared(NamedTuple):
    """What all slots of a campaign's row have in common; that of the lowest source offset."""

    source_offset: int
    accepted_at_ms: int
    template: str


class Row:
    """A row being worked on. touched_ms: when something last changed it (status record's time, whole seconds).

    counts: the sum over its slots, kept in the row so that a partition's rows can be counted without opening slots.
    """

    def __init__(self, campaign: bool, raw: bytes | None = None) -> None:
        self.campaign = campaign
        self.touched_ms = 0
        self.shared = Shared(NO_OFFSET, 0, "")
        self.counts = Vector()
        self._bodies: list[bytes] = []
        self._open: dict[int, Slot] = {}
        self._tallies: dict[int, slots.Tally] = {}
        self._told: tuple[int, int, str] | None = None
        if raw is not None:
            self._unpack(raw)

    def __len__(self) -> int:
        return len(self._bodies)

    def slot(self, index: int) -> Slot:
        """The slot at this position; EMPTY when nothing is known of it."""
        found = self._open.get(index)
        if found is None:
            if not 0 <= index < len(self._bodies) or not self._bodies[index]:
                return EMPTY
            body = self._bodies[index]
            found = self._open[index] = packed_slots.unpack(body) if self.campaign else _unpack_long(body)
        return found

    def slots(self) -> Iterator[Slot]:
        return map(self.slot, range(len(self._bodies)))

    def put(self, index: int, before: Slot, after: Slot) -> bool:
        """Stores a slot that was `before`; whether that changed the row. Raises Poison for a position no row has."""
        bodies = self._bodies
        if not 0 <= index < len(bodies):
            check_slot(index, self.campaign)
            bodies.extend([b""] * (index + 1 - len(bodies)))
        body = packed_slots.pack(after) if self.campaign else _pack_long(after)
        if bodies[index] == body:
            return False
        bodies[index] = body
        if self.campaign:
            was = self._tallies.get(index) if self._open.get(index) is before else None
            tally = self._tallies[index] = slots.tally(after)
            self.counts.move(was or slots.tally(before), tally)
        self._open[index] = after
        return True

    def learn(self, event: StatusEvent) -> bool:
        """Takes what an event says of the whole campaign; whether that changed the row."""
        told_now = event.source_offset if event.plan else NO_OFFSET, event.accepted_at_ms, event.template
        if not self.campaign or not event.template or told_now == self._told:
            return False
        self._told = told_now
        offset = states.clamped(event.source_offset, NO_OFFSET - 1) if event.plan else NO_OFFSET - 1
        template = event.template.encode()[: slots.TEMPLATE_MAX_BYTES].decode("utf-8", "ignore")
        told = Shared(offset, states.clamped(event.accepted_at_ms, 2**48 - 1), template)
        if told >= self.shared:
            return False
        self.shared = told
        return True

    def pack(self) -> bytes:
        """The row's bytes, the same for the same content."""
        lengths = [len(body) for body in self._bodies]
        seconds = self.touched_ms // 1000
        head = _HEAD.pack(
            _VERSION, self.campaign, seconds, len(lengths), *packed_slots.split(self.shared.source_offset)
        )
        template = self.shared.template.encode()
        about = _ABOUT.pack(*packed_slots.split(self.shared.accepted_at_ms), len(template))
        counted = self.counts.pack() if self.campaign else b""
        return b"".join((head, about, template, counted, struct.pack(f"<{len(lengths)}H", *lengths), *self._bodies))

    def _unpack(self, raw: bytes) -> None:
        version, campaign, seconds, count, *offset = _HEAD.unpack_from(raw)
        if version not in (_FIRST_VERSION, _VERSION) or bool(campaign) != self.campaign:
            raise ValueError(f"a status row of version {version}, kind {campaign} cannot be read here")
        *accepted, text = _ABOUT.unpack_from(raw, _HEAD.size)
        at = _HEAD.size + _ABOUT.size
        self.touched_ms = seconds * 1000
        self.shared = Shared(packed_slots.joined(*offset), packed_slots.joined(*accepted), raw[at : at + text].decode())
        at += text
        counted = None
        if self.campaign:
            counted, at = _counted(raw, at)
        lengths = struct.unpack_from(f"<{count}H", raw, at)
        at += 2 * count
        ends = accumulate(lengths, initial=at)
        next(ends)
        self._bodies = [raw[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        self.counts = counted or self._recounted()

    def _recounted(self) -> Vector:
        counts = Vector()
        for slot in self.slots() if self.campaign else ():
            counts.move(slots.NOTHING, slots.tally(slot))
        return counts


def check_slot(index: int, campaign: bool) -> None:
    """Raises Poison for a position that no row has."""
    if not 0 <= index < (CAMPAIGN_SLOTS if campaign else keys.SLOTS_PER_ROW):
        raise Poison(ParkReason.BAD_REQUEST, f"no status row has a slot {index}")


def counts(raw: bytes) -> Vector:
    """The sum over a campaign row's slots, as a rule without opening them."""
    at = _HEAD.size + _ABOUT.size + raw[_HEAD.size + _ABOUT.size - 1]
    return _counted(raw, at)[0] or Row(True, raw).counts


def _counted(raw: bytes, at: int) -> tuple[Vector | None, int]:
    """(the counts packed at this place, where they end); None where its slots must be counted."""
    found, end = Vector.unpack(raw, at)
    if found is None or raw[0] != _FIRST_VERSION or not any(map(_UNREACHED.__contains__, found.outcomes)):
        return found, end
    return (None if _has_ranked(raw, end) else found), end


def _has_ranked(raw: bytes, at: int) -> bool:
    """Whether some slot has several deliveries, of which one speaks for its recipient. at: of the slots' lengths."""
    count = _HEAD.unpack_from(raw)[3]
    lengths = struct.unpack_from(f"<{count}H", raw, at)
    places = zip(lengths, accumulate(lengths, initial=at + 2 * count), strict=False)  # and where the last one ends
    return any(length and packed_slots.deliveries(raw, start) > 1 for length, start in places)


_UNREACHED = frozenset((states.SUPPRESSED, states.REASON_CODES[reason]) for reason in UNREACHED)


def is_campaign(raw: bytes) -> bool:
    """Which kind of row these bytes are."""
    return raw[1] == 1


def touched_ms(raw: bytes) -> int:
    """When the row was last changed, without unpacking it."""
    return int(_HEAD.unpack_from(raw)[2]) * 1000


_HEAD = struct.Struct("<BBIHHI")
_ABOUT = struct.Struct("<HIB")


def _pack_long(slot: Slot) -> bytes:
    """As JSON: singles keep milliseconds, texts, providers and their ids."""
    deliveries = {name: tuple(parts) for name, parts in sorted(slot.deliveries.items())}
    content = [slot.plan, deliveries, sorted(slot.added), slot.end, slot.wait]
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _unpack_long(raw: bytes) -> Slot:
    plan, deliveries, added, end, wait = json.loads(raw.decode("utf-8", "surrogatepass"))
    return Slot(
        Plan(plan[0], plan[1], tuple(plan[2]), *plan[3:]) if plan else None,
        {name: _long_delivery(*parts) for name, parts in deliveries.items()},
        frozenset(added),
        End(*end) if end else None,
        Wait(*wait) if wait else None,
    )


def _long_delivery(wait: Any, settled: Any, *rest: Any) -> Delivery:
    return Delivery(Wait(*wait) if wait else None, _long_settled(settled) if settled else None, *rest)


def _long_settled(parts: Any) -> Call | End:
    if len(parts) == len(End._fields):
        return End(*parts)
    generation, call, sent_at_ms, unconfirmed, report, provider, provider_id = parts
    told = Report(*report) if report else None
    return Call(generation, call, sent_at_ms, unconfirmed, told, provider, provider_id)
