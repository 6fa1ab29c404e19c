"""`tidings holds ...`: what waits in hold, read from the log, and orders about single deliveries, written to it.

Dispatch obeys an order within a second (`streams/hold_orders.py`). Recipients that wait as a part of a campaign's
page are listed by page; they go with their campaign (`tidings campaigns`). What its caller cancelled lies in hold
until its time comes, and is not sent then: it waits no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rich.table import Table

from deploy import ground as grounds
from deploy.ground import Ground
from deploy.settings import Settings
from schemas import codec, keys
from schemas.errors import Misconfigured, Poison
from schemas.messages import Held, HoldOrder, HoldOrdered, NotificationCancelled
from schemas.reasons import REASONS, Reason
from schemas.records import Outgoing, Record
from schemas.rows import CAMPAIGN_SLOTS

WRITTEN_TOGETHER = 1_000


@dataclass(frozen=True, slots=True)
class Wish:
    """Which held things are meant; "" and nothing: any."""

    reason: str = ""
    tenant: str = ""
    template: str = ""
    notifications: Collection[str] = ()
    user: str = ""

    def check(self) -> None:
        """Raises Misconfigured for a reason that nothing is held for by that name."""
        if self.reason and self.reason not in list(Reason):
            raise Misconfigured(f"{self.reason!r} is no reason; there are {', '.join(filter(None, REASONS))}")

    def means(self, entry: Entry) -> bool:
        if self.reason not in ("", entry.held.reason) or self.tenant not in ("", entry.held.tenant):
            return False
        delivery = entry.held.delivery
        if self.template and (delivery is None or delivery.template != self.template):
            return False
        if self.user and (delivery is None or delivery.user_id != self.user):
            return False
        return not self.notifications or entry.notification_id in self.notifications


Intent = tuple[str, str, str]
"""Tenant, user id, intent key: what a cancel speaks of."""


class Entry(NamedTuple):
    """Something in hold. notification_id: "" for a part of a page."""

    hold_id: bytes
    held: Held
    notification_id: str

    def is_of(self, cancelled: Collection[Intent]) -> bool:
        """Whether it is one of these; a part of a page is not."""
        delivery = self.held.delivery
        return delivery is not None and (delivery.tenant, delivery.user_id, delivery.intent) in cancelled

    def told(self) -> dict[str, Any]:
        """For machines."""
        held, delivery, page = self.held, self.held.delivery, self.held.page
        told: dict[str, Any] = {"tenant": held.tenant, "reason": held.reason, "held_at": _time(held.held_at_ms)}
        told["due_at"] = _time(held.due_ms)
        if delivery is not None:
            told |= {"notification_id": self.notification_id, "user_id": delivery.user_id}
            told |= {"template": delivery.template, "campaign_id": delivery.campaign_id or None, "recipients": 1}
            told |= {"delivery": keys.delivery_suffix(delivery.channel, delivery.device)}
            told |= {"expires_at": _time(delivery.expires_at_ms)}
        elif page is not None:
            told |= {"campaign_id": page.campaign_id, "page": page.page}
            told |= {"recipients": len(page.slots) or CAMPAIGN_SLOTS}
        return told


async def held(settings: Settings, wish: Wish) -> list[Entry]:
    """What waits and is meant, the longest waiting first. Raises Transient when the log does not answer."""
    wish.check()
    async with grounds.opened(settings) as ground:
        waiting, _ = await _held(ground, wish)
        return waiting


async def order(settings: Settings, wish: Wish, wanted: HoldOrder) -> list[Entry]:
    """Orders this of every delivery that is meant, once the log has it; returns them.

    Raises Misconfigured when no delivery is, or the wish is wider than one would mean.
    """
    wish.check()
    if not wish.notifications and not (wish.reason and wish.template):
        raise Misconfigured("name the notifications, or give --reason and --template for all of those")
    async with grounds.opened(settings) as ground:
        waiting, cancelled = await _held(ground, wish)
        entries = [entry for entry in waiting if entry.held.delivery is not None]
        check_all_wait(wish, entries, cancelled)
        publisher, now_ms = ground.publisher(1.0), ground.clock.now_ms()
        records = [_ordered(ground, entry, wanted, now_ms) for entry in entries]
        for start in range(0, len(records), WRITTEN_TOGETHER):
            await publisher.publish(records[start : start + WRITTEN_TOGETHER])
        return entries


def check_all_wait(wish: Wish, waiting: Sequence[Entry], cancelled: Sequence[Entry]) -> None:
    """Raises Misconfigured where something that is named does not wait, or nothing that is meant does."""
    missing = set(wish.notifications) - {entry.notification_id for entry in waiting}
    if gone := missing & {entry.notification_id for entry in cancelled}:
        raise Misconfigured(f"cancelled, so never sent: {', '.join(sorted(gone))}; nothing was ordered")
    if missing or not waiting:
        which = ", ".join(sorted(missing)) or "anything like that"
        raise Misconfigured(f"not in hold: {which}; nothing was ordered")


def parted(entries: Iterable[Entry], cancelled: Collection[Intent]) -> tuple[list[Entry], list[Entry]]:
    """(what waits, what was cancelled), the longest waiting first."""
    ordered = sorted(entries, key=lambda entry: (entry.held.held_at_ms, entry.hold_id))
    return [one for one in ordered if not one.is_of(cancelled)], [one for one in ordered if one.is_of(cancelled)]


def counts(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """How many recipients wait, by reason, tenant and template ("" in pages)."""
    found = Counter[tuple[str, str, str]]()
    for entry in entries:
        told = entry.told()
        found[told["reason"], told["tenant"], told.get("template", "")] += told["recipients"]
    return [
        {"reason": reason, "tenant": tenant, "template": template, "recipients": count}
        for (reason, tenant, template), count in found.most_common()
    ]


def table(entries: Sequence[Entry], most: int) -> Table:
    """The first ones, for people."""
    shown = Table("notification", "delivery", "reason", "template", "tenant", "user", "held since", "until", box=None)
    for entry in entries[:most]:
        told = entry.told()
        until = told["due_at"] or ("resume" if told["reason"] == Reason.CAMPAIGN_PAUSED else "an operator")
        user, what = told.get("user_id", f"{told['recipients']} people"), told.get("delivery", "")
        name = told.get("notification_id") or f"campaign {told['campaign_id']}, page {told.get('page')}"
        shown.add_row(
            name, what, told["reason"], told.get("template", ""), told["tenant"], user, told["held_at"], until
        )
    return shown


def summary(entries: Sequence[Entry]) -> Table:
    shown = Table("held", "reason", "tenant", "template", box=None)
    for count in counts(entries):
        shown.add_row(f"{count['recipients']:,}", count["reason"], count["tenant"], count["template"])
    return shown


async def _held(ground: Ground, wish: Wish) -> tuple[list[Entry], list[Entry]]:
    """As `parted`, of what is meant."""
    found: dict[bytes, Entry] = {}
    async for record in _records(ground, ground.topics.hold):
        entry = _entry(ground.ids, record)
        found.pop(record.key or b"", None)
        if entry is not None and wish.means(entry):
            found[entry.hold_id] = entry
    cancelled = {intent async for record in _records(ground, ground.topics.control) if (intent := _cancelled(record))}
    return parted(found.values(), cancelled)


async def _records(ground: Ground, topic: str) -> AsyncIterator[Record]:
    reader = ground.log_reader()
    partitions: Mapping[str, int] = ground.broker.partitions
    for partition in range(partitions[topic]):
        first, end = await reader.offsets(topic, partition)
        async for record in reader.read_range(topic, partition, first, end - 1):
            yield record


def _cancelled(record: Record) -> Intent | None:
    """What a cancel speaks of; None for a tombstone, and for what nobody can read."""
    if record.value is None:
        return None
    try:
        order = codec.decode(record.value, NotificationCancelled)
    except Poison:
        return None
    return order.tenant, order.user_id, order.intent


def _entry(ids: keys.Ids, record: Record) -> Entry | None:
    """None for a tombstone, and for what nobody can read."""
    if record.key is None or record.value is None:
        return None
    try:
        there = codec.decode(record.value, Held)
    except Poison:
        return None
    delivery = there.delivery
    address = keys.Address(delivery.row, delivery.slot) if delivery is not None else None
    return Entry(record.key, there, ids.notification_id(there.tenant, address) if address is not None else "")


def _ordered(ground: Ground, entry: Entry, wanted: HoldOrder, now_ms: int) -> Outgoing:
    message = HoldOrdered(entry.held.tenant, entry.hold_id.decode(), wanted, now_ms)
    return Outgoing(ground.topics.hold_control, entry.hold_id, codec.encode(message))


def _time(at_ms: int) -> str | None:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds") if at_ms else None
