"""The bytes of one slot in a campaign's row: whole seconds, no texts, no providers, at most 24 bytes a delivery.

Fields that are absent take no room; flags say which are there. Used only by `schemas/rows.py`.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from schemas import states
from schemas.messages import Channel
from schemas.slots import Plan, Slot
from schemas.states import BOUNCED, DELIVERED, UNDELIVERED, Call, Delivery, End, Report, Wait

DELIVERY_MAX_BYTES = 24
_SLOT = struct.Struct("<BB")
_PLAN = struct.Struct("<HIH")
_SLOT_END = struct.Struct("<BBI")
_END = struct.Struct("<BBBI")
_WAIT = struct.Struct("<BHBBI")
_WAIT_BESIDE = struct.Struct("<BHBB")
_CALL = struct.Struct("<BB")
_SENT = struct.Struct("<I")
_REPORT = struct.Struct("<BI")
_DEVICE = struct.Struct("<I")
_HAS_PLAN, _HAS_END, _HAS_WAIT = 1, 2, 4
_NAMED_DEVICE, _NUMBERED, _ADDED, _COMPLAINED, _SENT_ONCE = 8, 16, 32, 64, 128
_ENDED, _CALLED, _WAITS, _UNCONFIRMED, _REPORTED, _MASKS, _DOUBLED = 1, 2, 4, 8, 48, 64, 128
_REPORT_KINDS = (0, DELIVERED, UNDELIVERED, BOUNCED)
_CHANNELS = tuple(Channel)
_CODES: dict[str, int] = {channel: code for code, channel in enumerate(_CHANNELS)}


def pack(slot: Slot) -> bytes:
    """The slot's bytes, the same for the same content."""
    plan, found, added, end, wait = slot
    planned = plan.names if plan is not None else ()
    others = _others(found, added, planned)
    flags = (_HAS_PLAN if plan is not None else 0) | (_HAS_END if end is not None else 0)
    raw = _SLOT.pack(flags | (_HAS_WAIT if wait is not None else 0), len(planned) << 4 | len(others))
    if plan is not None:
        user = plan.user_id.encode()
        raw += _PLAN.pack(plan.source_offset >> 32, plan.source_offset & 0xFFFFFFFF, len(user)) + user
    if end is not None:
        raw += _SLOT_END.pack(end.kind, end.reason, end.at_ms // 1000)
    if wait is not None:
        raw += _WAIT.pack(wait.generation, wait.hop, wait.kind, wait.reason, wait.until_ms // 1000)
    for name in planned:
        raw += _pack_delivery(name, found.get(name, states.UNTOUCHED), name in added)
    for name in others:
        raw += _pack_delivery(name, found.get(name, states.UNTOUCHED), name in added)
    return raw


def _others(found: dict[str, Delivery], added: frozenset[str], planned: tuple[str, ...]) -> list[str]:
    if not added and all(map(planned.__contains__, found)):
        return []
    return sorted(added.union(found).difference(planned))


def deliveries(raw: bytes, at: int) -> int:
    """How many deliveries the slot has that was packed at this place."""
    return (raw[at + 1] >> 4) + (raw[at + 1] & 15)


def unpack(raw: bytes) -> Slot:
    """The slot that `pack` packed."""
    flags, counts = raw[0], raw[1]
    at, offset, user, end, wait = 2, 0, "", None, None
    if flags & _HAS_PLAN:
        high, low, length = _PLAN.unpack_from(raw, at)
        at += _PLAN.size
        offset, user = joined(high, low), raw[at : at + length].decode()
        at += length
    if flags & _HAS_END:
        kind, reason, seconds = _SLOT_END.unpack_from(raw, at)
        at += _SLOT_END.size
        end = End(0, seconds * 1000, kind, reason, "")
    if flags & _HAS_WAIT:
        generation, hop, kind, reason, seconds = _WAIT.unpack_from(raw, at)
        at += _WAIT.size
        wait = Wait(generation, hop, kind, reason, seconds * 1000)
    names, deliveries, added = _unpack_deliveries(raw, at, (counts >> 4) + (counts & 15))
    planned = tuple(names[: counts >> 4])
    plan = Plan(offset, not planned, planned, user, "", 0) if flags & _HAS_PLAN else None
    return Slot(plan, deliveries, added, end, wait)


def _unpack_deliveries(raw: bytes, at: int, count: int) -> tuple[list[str], dict[str, Delivery], frozenset[str]]:
    names: list[str] = []
    deliveries: dict[str, Delivery] = {}
    added: list[str] = []
    for _ in range(count):
        name, delivery, at, is_added = _unpack_delivery(raw, at)
        names.append(name)
        if delivery is not states.UNTOUCHED:
            deliveries[name] = delivery
        if is_added:
            added.append(name)
    return names, deliveries, frozenset(added)


def _pack_delivery(name: str, delivery: Delivery, added: bool) -> bytes:
    """At most 24 bytes: name 6, calls 1, masks 5, call 11 (7 beside a wait) or end 7, wait 9 (5 beside those)."""
    first, head = _packed_name(name)
    bits, flags, body = _packed_parts(delivery)
    return b"%c%c%b%b" % (first | bits | _ADDED if added else first | bits, flags, head, body)


@lru_cache(states.REMEMBERED)
def _packed_parts(delivery: Delivery) -> tuple[int, int, bytes]:
    """(bits of the first byte, flags, what comes behind the name) of a delivery."""
    wait, settled, delivered, bounced, doubled, sent, complained, calls = delivery
    bits = (_COMPLAINED if complained else 0) | (_SENT_ONCE if sent else 0)
    flags, body = _pack_settled(settled, wait is not None)
    if delivered or bounced:
        flags |= _MASKS
        body = (delivered << 12 | bounced).to_bytes(3, "little") + body
    if doubled:
        flags |= _DOUBLED
        body = doubled.to_bytes(2, "little") + body
    if wait is not None:
        flags |= _WAITS
        body += _pack_wait(wait, settled is not None)
    return bits, flags, b"%c%b" % (calls, body)


def _pack_settled(settled: Call | End | None, waits: bool) -> tuple[int, bytes]:
    if settled is None:
        return 0, b""
    if isinstance(settled, End):
        return _ENDED, _END.pack(settled.generation, settled.kind, settled.reason, settled.at_ms // 1000)
    generation, call, sent_at_ms, unconfirmed, report, _, _ = settled
    flags = _CALLED | _UNCONFIRMED if unconfirmed else _CALLED
    body = _CALL.pack(generation, call)
    if not waits:
        body += _SENT.pack(sent_at_ms // 1000)
    if report is not None:
        flags |= _REPORT_KINDS.index(report.kind) << 4
        body += _REPORT.pack(report.reason, report.at_ms // 1000)
    return flags, body


def _pack_wait(wait: Wait, beside: bool) -> bytes:
    if beside:
        return _WAIT_BESIDE.pack(wait.generation, wait.hop, wait.kind, wait.reason)
    return _WAIT.pack(wait.generation, wait.hop, wait.kind, wait.reason, wait.until_ms // 1000)


def _unpack_delivery(raw: bytes, at: int) -> tuple[str, Delivery, int, bool]:
    first, flags = raw[at], raw[at + 1]
    at += 2
    size = 4 if first & _NAMED_DEVICE else 1 if first & _NUMBERED else 0
    name = _unpacked_name(first & (7 | _NAMED_DEVICE | _NUMBERED), raw[at : at + size])
    at += size + 1
    calls, added = raw[at - 1], bool(first & _ADDED)
    if not (flags or calls or first & (_SENT_ONCE | _COMPLAINED)):
        return name, states.UNTOUCHED, at, added
    masks = doubled = 0
    if flags & _DOUBLED:
        doubled, at = int.from_bytes(raw[at : at + 2], "little"), at + 2
    if flags & _MASKS:
        masks, at = int.from_bytes(raw[at : at + 3], "little"), at + 3
    settled, at = _unpack_settled(raw, at, flags)
    wait, at = _unpack_wait(raw, at, settled is not None) if flags & _WAITS else (None, at)
    sent, complained = bool(first & _SENT_ONCE), bool(first & _COMPLAINED)
    return name, Delivery(wait, settled, masks >> 12, masks & 4095, doubled, sent, complained, calls), at, added


def _unpack_settled(raw: bytes, at: int, flags: int) -> tuple[Call | End | None, int]:
    if flags & _ENDED:
        generation, kind, reason, seconds = _END.unpack_from(raw, at)
        return End(generation, seconds * 1000, kind, reason, ""), at + _END.size
    if not flags & _CALLED:
        return None, at
    generation, call = raw[at], raw[at + 1]
    at, sent_at_ms, report = at + 2, 0, None
    if not flags & _WAITS:
        sent_at_ms, at = _SENT.unpack_from(raw, at)[0] * 1000, at + 4
    if flags & _REPORTED:
        reason, seconds = _REPORT.unpack_from(raw, at)
        kind = _REPORT_KINDS[(flags & _REPORTED) >> 4]
        report, at = Report(int(kind != BOUNCED), seconds * 1000, kind, reason, ""), at + _REPORT.size
    return Call(generation, call, sent_at_ms, bool(flags & _UNCONFIRMED), report, "", ""), at


def _unpack_wait(raw: bytes, at: int, beside: bool) -> tuple[Wait, int]:
    if beside:
        generation, hop, kind, reason = _WAIT_BESIDE.unpack_from(raw, at)
        return Wait(generation, hop, kind, reason, 0), at + _WAIT_BESIDE.size
    generation, hop, kind, reason, seconds = _WAIT.unpack_from(raw, at)
    return Wait(generation, hop, kind, reason, seconds * 1000), at + _WAIT.size


def _packed_name(name: str) -> tuple[int, bytes]:
    if name[0] == "#":
        return _NUMBERED, bytes((int(name[1:]),))
    channel, _, device = name.partition("/")
    return (_CODES[channel] | _NAMED_DEVICE, _DEVICE.pack(int(device, 16))) if device else (_CODES[channel], b"")


@lru_cache(maxsize=8192)
def _unpacked_name(first: int, raw: bytes) -> str:
    if first & _NUMBERED:
        return f"#{raw[0]}"
    channel = _CHANNELS[first & 7].value
    return f"{channel}/{_DEVICE.unpack(raw)[0]:08x}" if first & _NAMED_DEVICE else channel


def split(number: int) -> tuple[int, int]:
    """48 bits as 16 + 32."""
    return number >> 32, number & 0xFFFFFFFF


def joined(high: int, low: int) -> int:
    return high << 32 | low
