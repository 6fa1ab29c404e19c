"""The state of one delivery: what is known of it, merged in any order, moving only forward.

A delivery's state is a product of parts, each a maximum or minimum on its own, so `join` is commutative,
associative and idempotent: events may come late, twice or in any order. Parts that can never show again are
dropped, which keeps a delivery within 24 bytes of a row. `schemas/slots.py` holds the deliveries of one
notification, `schemas/rows.py` packs them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from schemas.messages import EventKind, StatusEvent
from schemas.reasons import REASONS

KINDS: tuple[EventKind, ...] = tuple(EventKind)
"""Position = the code in a row. Append only."""
KIND_CODES: dict[str, int] = {kind: code for code, kind in enumerate(KINDS)}
REASON_CODES: dict[str, int] = {reason: code for code, reason in enumerate(REASONS)}
STATES: tuple[str, ...] = tuple(kind.value for kind in KINDS)
REASON_TEXTS: tuple[str, ...] = tuple(reason.value for reason in REASONS)

SCHEDULED, QUEUED, HELD, RETRYING = (KIND_CODES[k] for k in ("scheduled", "queued", "held", "retrying"))
SENT, UNCONFIRMED, DELIVERED = (KIND_CODES[k] for k in ("sent", "unconfirmed", "delivered"))
UNDELIVERED, BOUNCED, COMPLAINED = (KIND_CODES[k] for k in ("undelivered", "bounced", "complained"))
SUPPRESSED, EXPIRED, CANCELLED, FAILED = (KIND_CODES[k] for k in ("suppressed", "expired", "cancelled", "failed"))
POSSIBLE_DUPLICATE = KIND_CODES["possible_duplicate"]
WAITS = frozenset((SCHEDULED, QUEUED, HELD, RETRYING))
CALLS = frozenset((SENT, UNCONFIRMED, DELIVERED, UNDELIVERED, BOUNCED, COMPLAINED))
ENDS = frozenset((SUPPRESSED, EXPIRED, CANCELLED, FAILED))
ACCEPTED = "accepted"

REPORT_BITS = 12
"""Calls told apart by which of them were delivered or bounced; later ones share bits, 5 apart per redrive."""
DOUBLED_BITS = 16
"""Calls counted as possible duplicates, one each."""
TEXT_MAX = 200
TIME_MAX_MS = (2**32 - 1) * 1000
REMEMBERED = 4096
"""States a process works out once each: a campaign's deliveries go through the same few within every second."""


class Wait(NamedTuple):
    """Where it waits; the newest by (generation, hop) is the greatest tuple."""

    generation: int
    hop: int
    kind: int
    reason: int
    until_ms: int


class End(NamedTuple):
    """An end without a call: within a generation the earliest, so the least tuple."""

    generation: int
    at_ms: int
    kind: int
    reason: int
    detail: str


class Report(NamedTuple):
    """What the provider told of a call. rank 0 = bounced, which beats everything; else the earlier wins."""

    rank: int
    at_ms: int
    kind: int
    reason: int
    detail: str


class Call(NamedTuple):
    """A provider call, newest by (generation, call). sent_at_ms 0: nobody said yet that it was accepted."""

    generation: int
    call: int
    sent_at_ms: int
    unconfirmed: bool
    report: Report | None
    provider: str
    provider_id: str


class Delivery(NamedTuple):
    """All that is kept of one delivery.

    settled: the newest call or end; in one generation a call beats an end. wait is there only while it is of a
    newer generation than what is settled. delivered, bounced, doubled: one bit per call (see *_BITS). A call is doubled
    when it was told so, when it was accepted at two different times (its claim was lost, and it was made again under
    the same number), and when it was accepted and a newer call or generation followed.
    sent: some call was accepted by a provider. calls: highest call number heard of.
    """

    wait: Wait | None = None
    settled: Call | End | None = None
    delivered: int = 0
    bounced: int = 0
    doubled: int = 0
    sent: bool = False
    complained: bool = False
    calls: int = 0


UNTOUCHED = Delivery()
"""Planned, and nothing heard of yet."""


class Shown(NamedTuple):
    """What people see of a delivery."""

    state: str
    reason: str
    detail: str
    until_ms: int
    sent_at_ms: int
    calls: int
    possible_duplicates: int
    provider: str
    provider_id: str


_NOTHING_SHOWN = Shown(ACCEPTED, "", "", 0, 0, 0, 0, "", "")


def with_event(known: Delivery, event: StatusEvent, kind: int, exact: bool) -> Delivery:
    """What is known together with what an event says; the very same object when that is nothing new."""
    if not exact:
        at_s, until_s = event.at_ms // 1000, event.until_ms // 1000
        reason = REASON_CODES.get(event.reason, 0)
        return _told(known, kind, event.generation, event.call, event.hop, reason, at_s, until_s)
    both = join(known, of_event(event, kind, exact))
    return known if both == known else both


@lru_cache(REMEMBERED)
def _told(
    known: Delivery, kind: int, generation: int, call: int, hop: int, reason: int, at_s: int, until_s: int
) -> Delivery:
    """with_event by all that a campaign's row keeps of an event."""
    text = REASON_TEXTS[reason]
    event = StatusEvent(0, KINDS[kind], at_s * 1000, "", -1, generation, hop, call, text, "", until_s * 1000)
    both = join(known, of_event(event, kind, False))
    return known if both == known else both


def join(one: Delivery, other: Delivery) -> Delivery:
    """What both know together: the least upper bound."""
    wait, settled, repeated = one.wait, one.settled, 0
    if other.wait is not None and (wait is None or other.wait > wait):
        wait = other.wait
    if other.settled is not None:
        if settled is None:
            settled = other.settled
        elif settled != other.settled:
            repeated = _repeated(settled, other.settled)
            settled = _settle(settled, other.settled)
    if wait is not None and settled is not None:
        if wait.generation > settled.generation:
            repeated |= _accepted(settled)
        wait, settled = _redriven(wait, settled)
    return Delivery(
        wait,
        settled,
        one.delivered | other.delivered,
        one.bounced | other.bounced,
        one.doubled | other.doubled | repeated,
        one.sent or other.sent,
        one.complained or other.complained,
        one.calls if one.calls > other.calls else other.calls,
    )


def of_event(event: StatusEvent, kind: int, exact: bool) -> Delivery:
    """What one event says. exact: milliseconds, texts and provider are kept (singles), else whole seconds only."""
    generation, call = clamped(event.generation, 255), clamped(event.call, 255)
    if kind in WAITS:
        return Delivery(wait=wait_of(event, kind, exact), calls=call)
    if kind in ENDS:
        return Delivery(settled=end_of(event, kind, exact), calls=call)
    call = call or 1
    if kind == POSSIBLE_DUPLICATE:
        return Delivery(doubled=1 << _bit(generation, call, DOUBLED_BITS), calls=call)
    return _of_call(event, kind, exact, generation, call)


@lru_cache(REMEMBERED)
def shown(delivery: Delivery) -> Shown:
    """What people see: the first that applies of complained, bounced, delivered, then the newest generation."""
    if delivery is UNTOUCHED:
        return _NOTHING_SHOWN
    settled, wait = delivery.settled, delivery.wait
    call = settled if isinstance(settled, Call) else None
    kind, reason, detail, until_ms = _state(delivery)
    return Shown(
        STATES[kind] if kind else ACCEPTED,
        REASON_TEXTS[reason],
        detail,
        until_ms if wait is not None else 0,
        call.sent_at_ms if call is not None else 0,
        delivery.calls,
        delivery.doubled.bit_count(),
        call.provider if call is not None else "",
        call.provider_id if call is not None else "",
    )


@lru_cache(REMEMBERED)
def outcome(delivery: Delivery) -> tuple[int, int] | None:
    """(kind, reason) a finished delivery counts by; None while it is unfinished.

    A complaint counts as delivered. While a redrive waits, the delivery still counts by what it ended in before.
    """
    settled = delivery.settled
    if settled is None:
        return None
    if delivery.complained or (delivery.delivered and _received(delivery)):
        return DELIVERED, 0
    if delivery.bounced:
        return BOUNCED, _bounce_text(delivery)[0]
    if isinstance(settled, Call):
        return _call_state(settled)[:2]
    return settled.kind, settled.reason


def clamped(number: int, most: int) -> int:
    """number within 0..most. Clamping keeps the order, so merges still agree."""
    return 0 if number < 0 else most if number > most else number


def moment(at_ms: int, exact: bool) -> int:
    """A time as rows keep it: within what 32-bit seconds hold, cut to the second unless exact."""
    at_ms = clamped(at_ms, TIME_MAX_MS)
    return at_ms if exact else at_ms - at_ms % 1000


def wait_of(event: StatusEvent, kind: int, exact: bool) -> Wait:
    return Wait(
        clamped(event.generation, 255),
        clamped(event.hop, 65_535),
        kind,
        REASON_CODES.get(event.reason, 0),
        moment(event.until_ms, exact),
    )


def end_of(event: StatusEvent, kind: int, exact: bool) -> End:
    return End(
        clamped(event.generation, 255),
        moment(event.at_ms, exact),
        kind,
        REASON_CODES.get(event.reason, 0),
        event.detail[:TEXT_MAX] if exact else "",
    )


def _of_call(event: StatusEvent, kind: int, exact: bool, generation: int, call: int) -> Delivery:
    at_ms = moment(event.at_ms, exact)
    report = None
    if kind in _REPORTS:
        detail = event.detail[:TEXT_MAX] if exact else ""
        report = Report(int(kind != BOUNCED), at_ms, kind, REASON_CODES.get(event.reason, 0), detail)
    bit = 1 << _bit(generation, call, REPORT_BITS)
    return Delivery(
        None,
        Call(
            generation,
            call,
            at_ms if kind == SENT else 0,
            kind == UNCONFIRMED,
            report,
            event.provider[:TEXT_MAX] if exact else "",
            event.provider_id[:TEXT_MAX] if exact else "",
        ),
        bit if kind == DELIVERED else 0,
        bit if kind == BOUNCED else 0,
        0,
        kind != UNCONFIRMED,
        kind == COMPLAINED,
        call,
    )


_REPORTS = frozenset((DELIVERED, UNDELIVERED, BOUNCED))


def _settle(one: Call | End, other: Call | End) -> Call | End:
    """The newer of two; within one call or one generation's end, both together."""
    if one.generation != other.generation:
        return one if one.generation > other.generation else other
    if isinstance(one, End):
        return min(one, other) if isinstance(other, End) else other
    if isinstance(other, End):
        return one
    if one.call != other.call:
        return one if one.call > other.call else other
    return _same_call(one, other)


def _repeated(one: Call | End, other: Call | End) -> int:
    """The bit of the call that was made once more, or behind which another one was; 0 for none.

    The older one's is set as soon as a newer one is known, whether or not it was accepted twice: later nobody could
    tell, and what is known must not depend on the order in which it was told.
    """
    if isinstance(one, Call) and isinstance(other, Call) and _number(one) == _number(other):
        return _accepted(one) if other.sent_at_ms and one.sent_at_ms != other.sent_at_ms else 0
    older = one if _settle(one, other) is other else other
    return _accepted(older)


def _accepted(settled: Call | End) -> int:
    """The bit of this call among the doubled, if a provider is known to have accepted it."""
    if isinstance(settled, End) or not settled.sent_at_ms:
        return 0
    return 1 << _bit(settled.generation, settled.call, DOUBLED_BITS)


def _number(call: Call) -> tuple[int, int]:
    return call.generation, call.call


def _same_call(one: Call, other: Call) -> Call:
    if one == other:
        return one
    return Call(
        one.generation,
        one.call,
        min(one.sent_at_ms or other.sent_at_ms, other.sent_at_ms or one.sent_at_ms),
        one.unconfirmed or other.unconfirmed,
        _earlier(one.report, other.report),
        max(one.provider, other.provider),
        max(one.provider_id, other.provider_id),
    )


def _earlier(one: Report | None, other: Report | None) -> Report | None:
    if one is None or other is None:
        return one or other
    return min(one, other)


def _redriven(wait: Wait, settled: Call | End) -> tuple[Wait | None, Call | End]:
    """A wait shows beside something settled only after a redrive; then two times are given up to save room."""
    if wait.generation <= settled.generation:
        return None, settled
    if isinstance(settled, Call) and settled.sent_at_ms:
        settled = settled._replace(sent_at_ms=0)
    return (wait._replace(until_ms=0) if wait.until_ms else wait), settled


def _state(delivery: Delivery) -> tuple[int, int, str, int]:
    """(kind, reason, detail, until) as shown; kind 0: nothing heard of it yet."""
    if delivery.complained:
        return COMPLAINED, 0, "", 0
    if delivery.delivered and _received(delivery):
        return DELIVERED, 0, "", 0
    if delivery.bounced:
        return BOUNCED, *_bounce_text(delivery), 0
    wait, settled = delivery.wait, delivery.settled
    if wait is not None:
        return wait.kind, wait.reason, "", wait.until_ms
    if settled is None:
        return 0, 0, "", 0
    if isinstance(settled, Call):
        return *_call_state(settled), 0
    return settled.kind, settled.reason, settled.detail, 0


def _received(delivery: Delivery) -> int:
    """Bits of the calls that count as delivered: not bounced, and the newest call's earlier report was no other."""
    received = delivery.delivered & ~delivery.bounced
    settled = delivery.settled
    if isinstance(settled, Call) and settled.report is not None and settled.report.kind == UNDELIVERED:
        received &= ~(1 << _bit(settled.generation, settled.call, REPORT_BITS))
    return received


def _call_state(call: Call) -> tuple[int, int, str]:
    if call.report is not None:
        return call.report.kind, call.report.reason, call.report.detail
    return (UNCONFIRMED if call.unconfirmed else SENT), 0, ""


def _bounce_text(delivery: Delivery) -> tuple[int, str]:
    report = delivery.settled.report if isinstance(delivery.settled, Call) else None
    return (report.reason, report.detail) if report is not None and report.kind == BOUNCED else (0, "")


def _bit(generation: int, call: int, bits: int) -> int:
    return (call - 1 + 5 * generation) % bits
