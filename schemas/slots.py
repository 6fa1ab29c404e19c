"""One notification's place in a row: its plan, the deliveries heard of, and how it counts.

Events merge in any order. The plan with the lowest (source offset, content) wins; deliveries outside it are kept
and shown, never counted. Reports that know a delivery only by its number wait under "#<number>" for the plan.
Only where two different plans met in one slot (Redis lost the first) such a report stays with the delivery it
was first given to. `schemas/states.py` merges single deliveries, `schemas/rows.py` packs slots.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from schemas import keys, states
from schemas.errors import Poison
from schemas.messages import Channel, EventKind, StatusEvent
from schemas.reasons import UNREACHED, ParkReason
from schemas.states import UNTOUCHED, Delivery, End, Shown, Wait
from schemas.stores import DeliveryView, SlotView

MAX_DELIVERIES = 8
"""Deliveries a slot has room for, those outside the plan included; more of these are dropped, last names first."""
NO_OFFSET = 2**48 - 1
"""Source offset of what is known of a person without a plan: any real plan comes before it."""
TEMPLATE_MAX_BYTES = 128


class Plan(NamedTuple):
    """Who it is for and which deliveries it has; the least tuple wins. An empty plan yields to a full one."""

    source_offset: int
    empty: bool
    names: tuple[str, ...]
    user_id: str
    template: str
    accepted_at_ms: int


class Slot(NamedTuple):
    """added: what fallbacks added. end: the earliest of the whole slot; wait: only until there is a plan or end."""

    plan: Plan | None
    deliveries: dict[str, Delivery]
    added: frozenset[str]
    end: End | None
    wait: Wait | None


EMPTY = Slot(None, {}, frozenset(), None, None)


class Tally(NamedTuple):
    """What a slot adds to its campaign's counts. outcome, reason: codes of schemas.states; outcome 0 = unfinished."""

    planned: int = 0
    sent: int = 0
    delivered: int = 0
    outcome: int = 0
    reason: int = 0
    doubled: int = 0


NOTHING = Tally()


def merge(slot: Slot, event: StatusEvent, exact: bool) -> Slot:
    """The slot with one more event; the very same object when it tells nothing new.

    exact: as in states.of_event. Raises Poison for a delivery name or a plan that no sender of ours makes.
    """
    kind = states.KIND_CODES[event.kind]
    if kind == _PLANNED:
        return _with_plan(slot, event, exact)
    name = name_of(slot, event)
    if not name:
        return _with_slot_event(slot, event, kind, exact)
    if slot.plan is None or name not in slot.plan.names:
        _check(name)
    slot = _with_delivery(slot, name, event, kind, exact)
    return _with_added(slot, event.next) if event.next else slot


def name_of(slot: Slot, event: StatusEvent) -> str:
    """The delivery an event speaks of; "#<number>" while nobody knows which that is; "": the whole slot."""
    index = event.index
    if event.delivery or index < 0:
        return event.delivery
    if slot.plan is not None and index < len(slot.plan.names):
        return slot.plan.names[index]
    return keys.fallback_name(index) or f"#{index}"


def counted(slot: Slot) -> tuple[str, ...]:
    """The deliveries that count: those of the plan in index order, then what fallbacks added."""
    names = slot.plan.names if slot.plan is not None else ()
    if slot.added:
        return (*names, *sorted(slot.added.difference(names)))
    return names


def tally(slot: Slot) -> Tally:
    """How the slot counts. A recipient counts once, by its furthest delivery, and only once there is a plan."""
    if slot is EMPTY:
        return NOTHING
    plan, found, added, _, _ = slot
    names = counted(slot) if plan is None or added else plan.names
    planned = 1 if plan is not None and plan.source_offset != NO_OFFSET else 0
    if not names:
        kind, reason = (slot.end.kind, slot.end.reason) if slot.end is not None else _UNFINISHED
        return Tally(planned, 0, 0, kind, reason, _doubled(found.values()))
    if not planned:
        return Tally(doubled=_doubled(found.values()))
    parts = tuple(map(found.get, names))
    tallied = _tallied(parts)
    if len(found) == len(parts) - parts.count(None):
        return tallied
    return tallied._replace(doubled=_doubled(found.values()))


def is_finished(slot: Slot) -> bool:
    """A plan whose deliveries are all settled, or no delivery and an end of the whole slot."""
    return tally(slot).outcome != 0


def has_plan(slot: Slot) -> bool:
    return slot.plan is not None and slot.plan.source_offset != NO_OFFSET


def outside(slot: Slot) -> int:
    """How many deliveries the slot knows that its plan does not name; 0 while it has no plan."""
    names = counted(slot)
    if not has_plan(slot) or _is_within(slot.deliveries, names):
        return 0
    return sum(name not in names for name in slot.deliveries)


def visible(slot: Slot) -> list[tuple[str, Delivery]]:
    """Name and parts of every delivery that people may see: those that count, then those outside the plan."""
    names, found = counted(slot), slot.deliveries
    seen = [(name, found.get(name, UNTOUCHED)) for name in names]
    if not _is_within(found, names):
        seen += [(name, found[name]) for name in sorted(found) if name not in names and name[0] != "#"]
    return seen


def rank(state: str, reason: str) -> int:
    """How little a delivery tells of its recipient: of several the lowest counts and is shown, of equal ones the first.

    One that may still be sent comes before one that will not be. Suppressed as its channel cannot reach the person
    comes last: the next channel was tried, and counts by what became of it, also when that was cancelled or expired.
    """
    return _LAST_RANK if state == _SUPPRESSED and reason in UNREACHED else _RANKS[state]


def changes(before: Slot, after: Slot) -> list[tuple[str, Shown]]:
    """What the public has to be told: (delivery name, what is shown of it now); name "" speaks of the whole slot.

    Nothing is told before it is known whom the notification is for; then everything is. An end of the whole slot
    is taken back (shown as accepted) when there are deliveries after all, told or not: who told it may have died.
    """
    if after.plan is None or after is before:
        return []
    if after.end is None and before.plan is after.plan and before.added is after.added:
        return _changed(before.deliveries, after)
    news = before.plan is None
    told = []
    for name, parts in visible(after):
        was = None if news else _seen(before, name)
        if parts is not was:
            now = states.shown(parts)
            if was is None or states.shown(was) != now:
                told.append((name, now))
    if after.end is not None:
        whole = _whole(after)
        if news or before.end is None or _whole(before) != whole:
            told.append(("", whole))
    return told


def _changed(known: dict[str, Delivery], after: Slot) -> list[tuple[str, Shown]]:
    """As `changes`, where only what is known of deliveries did: `known`, before."""
    names, found, told = counted(after), after.deliveries, []
    for name in names:
        parts, was = found.get(name, UNTOUCHED), known.get(name, UNTOUCHED)
        if parts is not was:
            now = states.shown(parts)
            if states.shown(was) != now:
                told.append((name, now))
    if not _is_within(found, names):
        told += _changed_outside(known, found, names)
    return told


def _changed_outside(
    known: dict[str, Delivery], found: dict[str, Delivery], names: tuple[str, ...]
) -> Iterator[tuple[str, Shown]]:
    for name in sorted(found):
        if name not in names and name[0] != "#":
            was, now = known.get(name), states.shown(found[name])
            if was is None or states.shown(was) != now:
                yield name, now


def _is_within(found: Iterable[str], names: tuple[str, ...]) -> bool:
    """Whether all these deliveries have one of these names; nearly always there is one, so no set is made."""
    return all(map(names.__contains__, found))


def view(slot: Slot, template: str = "", accepted_at_ms: int = 0) -> SlotView:
    """The slot as the API shows it. template and accepted_at_ms: the row's, where slots do not keep them."""
    deliveries = tuple(_delivery_view(name, parts) for name, parts in visible(slot))
    status, reason, detail = _status(slot, deliveries)
    plan = slot.plan
    return SlotView(
        status,
        reason,
        detail,
        plan.user_id if plan else "",
        (plan.template if plan else "") or template,
        (plan.accepted_at_ms if plan else 0) or accepted_at_ms,
        deliveries,
        slot.wait.until_ms if slot.wait is not None and not deliveries else 0,
    )


_PLANNED = states.KIND_CODES["planned"]
_SUPPRESSED = EventKind.SUPPRESSED.value
_UNFINISHED = (0, 0)
_RANKS = {
    state: rank
    for rank, state in enumerate(
        (
            "complained",
            "delivered",
            "sent",
            "unconfirmed",
            "retrying",
            "queued",
            "held",
            "scheduled",
            "accepted",
            "undelivered",
            "bounced",
            "failed",
            "suppressed",
            "cancelled",
            "expired",
        )
    )
}
_LAST_RANK = len(_RANKS)
"""Of a channel that was of no use."""


def _with_plan(slot: Slot, event: StatusEvent, exact: bool) -> Slot:
    names = event.plan
    if len(names) > MAX_DELIVERIES or len(set(names)) != len(names):
        raise Poison(ParkReason.BAD_REQUEST, f"a plan has at most {MAX_DELIVERIES} different deliveries: {names}")
    for name in names:
        _check(name)
    offset = states.clamped(event.source_offset, NO_OFFSET - 1)
    return _with_better_plan(slot, _plan(event, offset, exact))


def _plan(event: StatusEvent, source_offset: int, exact: bool) -> Plan:
    names, user_id = event.plan, event.user_id[: keys.USER_ID_MAX]
    if not exact:
        return Plan(source_offset, not names, names, user_id, "", 0)
    template, accepted_at_ms = event.template[:TEMPLATE_MAX_BYTES], states.clamped(event.accepted_at_ms, 2**48)
    return Plan(source_offset, not names, names, user_id, template, accepted_at_ms)


def _with_better_plan(slot: Slot, plan: Plan) -> Slot:
    if slot.plan is not None and slot.plan <= plan:
        return slot
    if plan.source_offset == NO_OFFSET or not (slot.deliveries or slot.added):
        wait = slot.wait if plan.source_offset == NO_OFFSET else None
        return Slot(plan, slot.deliveries, slot.added, slot.end, wait)
    deliveries = slot.deliveries
    for index, name in enumerate(plan.names):
        if (parts := deliveries.get(f"#{index}")) is not None:
            deliveries = {key: kept for key, kept in deliveries.items() if key != f"#{index}"}
            deliveries[name] = states.join(deliveries.get(name, UNTOUCHED), parts)
    return _bounded(Slot(plan, deliveries, slot.added, slot.end, None))


def _with_slot_event(slot: Slot, event: StatusEvent, kind: int, exact: bool) -> Slot:
    """Waits and ends of the whole slot; other kinds need a delivery and are passed over."""
    if event.user_id:
        slot = _with_better_plan(slot, _plan(event, NO_OFFSET, exact)._replace(empty=True, names=()))
    if kind in states.ENDS:
        end = states.end_of(event, kind, exact)._replace(generation=0)
        if slot.end is None or end < slot.end:
            return slot._replace(end=end, wait=None)
    elif kind in states.WAITS and slot.end is None and not has_plan(slot):
        wait = states.wait_of(event, kind, exact)
        if slot.wait is None or wait > slot.wait:
            return slot._replace(wait=wait)
    return slot


def _with_delivery(slot: Slot, name: str, event: StatusEvent, kind: int, exact: bool) -> Slot:
    known = slot.deliveries.get(name)
    before = UNTOUCHED if known is None else known
    parts = states.with_event(before, event, kind, exact)
    if parts is before:
        return slot
    slot = Slot(slot.plan, {**slot.deliveries, name: parts}, slot.added, slot.end, slot.wait)
    return _bounded(slot) if known is None and len(slot.deliveries) > 1 else slot


def _with_added(slot: Slot, name: str) -> Slot:
    _check(name)
    if name in slot.added:
        return slot
    return _bounded(slot._replace(added=slot.added | {name}))


def _bounded(slot: Slot) -> Slot:
    """Without the deliveries there is no room for: first those added last by name, then those outside the plan."""
    planned = slot.plan.names if slot.plan is not None else ()
    added = slot.added
    if len(planned) + len(added.difference(planned)) > MAX_DELIVERIES:
        added = frozenset(sorted(added.difference(planned))[: MAX_DELIVERIES - len(planned)])
    inside = added.union(planned)
    outside = [name for name in slot.deliveries if name not in inside]
    if len(inside) + len(outside) <= MAX_DELIVERIES:
        return slot if added is slot.added else slot._replace(added=added)
    kept = inside.union(sorted(outside)[: MAX_DELIVERIES - len(inside)])
    return slot._replace(added=added, deliveries={n: parts for n, parts in slot.deliveries.items() if n in kept})


def _whole(slot: Slot) -> Shown:
    """What is shown of a slot with an end of its own."""
    assert slot.end is not None
    return states.shown(UNTOUCHED) if counted(slot) else _shown_end(slot.end)


def _seen(slot: Slot, name: str) -> Delivery | None:
    """The delivery as people saw it in this slot; None when they did not."""
    found = slot.deliveries.get(name)
    return UNTOUCHED if found is None and name in counted(slot) else found


def _check(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise Poison(ParkReason.BAD_REQUEST, f"not the name of a delivery: {name[:80]!r}")


_NAME = re.compile(rf"(?:{'|'.join(Channel)})(?:/[0-9a-f]{{8}})?|#[0-{MAX_DELIVERIES - 1}]")


@lru_cache(states.REMEMBERED)
def _tallied(parts: tuple[Delivery | None, ...]) -> Tally:
    """How a recipient with these deliveries counts; its outcome is (0, 0) while any of them is unfinished.

    On a tie the first in index order.
    """
    best, best_rank, sent, delivered, finished = _UNFINISHED, _LAST_RANK + 1, 0, 0, True
    for delivery in parts:
        outcome = None if delivery is None else states.outcome(delivery)
        if delivery is None or outcome is None:
            finished = False
            continue
        if delivery.sent:
            sent = 1
        if outcome[0] == states.DELIVERED:
            delivered = 1
        own_rank = rank(states.STATES[outcome[0]], states.REASON_TEXTS[outcome[1]])
        if own_rank < best_rank:
            best, best_rank = outcome, own_rank
    kind, reason = best if finished else _UNFINISHED
    return Tally(1, sent, delivered, kind, reason, _doubled(part for part in parts if part is not None))


def _doubled(found: Iterable[Delivery]) -> int:
    """Calls that may have been repeats."""
    return sum(delivery.doubled.bit_count() for delivery in found if delivery.doubled)


def _status(slot: Slot, deliveries: tuple[DeliveryView, ...]) -> tuple[str, str, str]:
    if deliveries:
        inside = deliveries[: len(counted(slot))] or deliveries
        best = min(inside, key=lambda delivery: rank(delivery.state, delivery.reason))
        return best.state, best.reason, best.detail
    if slot.end is not None:
        shown = _shown_end(slot.end)
        return shown.state, shown.reason, shown.detail
    if slot.wait is not None:
        return states.STATES[slot.wait.kind], states.REASON_TEXTS[slot.wait.reason], ""
    return states.ACCEPTED, "", ""


def _delivery_view(name: str, parts: Delivery) -> DeliveryView:
    shown, settled = states.shown(parts), parts.settled
    channel, _, device = name.partition("/")
    generation, call = (settled.generation, settled.call) if isinstance(settled, states.Call) else (0, 0)
    return DeliveryView(
        channel,
        device,
        shown.state,
        shown.reason,
        shown.detail,
        shown.provider,
        shown.calls,
        shown.sent_at_ms,
        shown.until_ms,
        shown.possible_duplicates,
        generation,
        call,
    )


def _shown_end(end: End) -> Shown:
    return Shown(states.STATES[end.kind], states.REASON_TEXTS[end.reason], end.detail, 0, 0, 0, 0, "", "")
