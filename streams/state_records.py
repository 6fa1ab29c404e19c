"""The public records of one row: the states of its deliveries on `notification.state`.

Written piece by piece in the order of DeliveryState's fields, as most pieces repeat: whose row it is, what is shown.
It costs a quarter of building and encoding each message, and every change of every delivery passes here. A test
holds each byte against the codec.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from schemas import codec, keys
from schemas.compiled import LONGS, text
from schemas.messages import DeliveryState, StatusEvent
from schemas.records import Outgoing
from schemas.slots import Plan
from schemas.states import Shown

REMEMBERED = 2048
_PREFIX = codec.prefix(DeliveryState)


class StateRecords:
    """Writes the records of one row; remembers the ids of its slots, as most change several times."""

    __slots__ = ("_ids", "_known", "_owner", "_row", "_tenant", "_topic")

    def __init__(self, topic: str, ids: keys.Ids, tenant: str, row: str, campaign_id: str | None) -> None:
        self._topic = topic
        self._ids = ids
        self._tenant = tenant
        self._row = row
        self._owner = text(tenant) + _optional(campaign_id or "")
        self._known: dict[int, _Known] = {}

    def record(
        self,
        slot: int,
        plan: Plan,
        template: str,
        accepted_at_ms: int,
        name: str,
        shown: Shown,
        told: StatusEvent | None,
        at_ms: int,
        version: int,
    ) -> Outgoing:
        """What is shown now of the delivery of this name; "" = of the whole slot.

        template, accepted_at_ms: the row's, where the plan has none. told: the event whose texts the row drops.
        """
        delivery, about = self._about(slot, plan, template, name)
        state, texts, counts, times = _pieces(shown)
        if told is not None:
            texts = _optional(told.detail) + _remembered(told.provider) + _optional(told.provider_id)
        accepted = LONGS[plan.accepted_at_ms or accepted_at_ms]
        value = (about, state, texts, counts, accepted, times, LONGS[at_ms], LONGS[version])
        return Outgoing(self._topic, delivery, b"".join(value))

    def _about(self, slot: int, plan: Plan, template: str, name: str) -> tuple[bytes, bytes]:
        """(the record's key, its value up to the device)."""
        known = self._known.get(slot)
        if known is not None and known.plan is plan and known.name == name and known.template == template:
            return known.delivery, known.about
        address = keys.Address(self._row, slot)
        notification = known.notification if known else self._ids.notification_id(self._tenant, address)
        delivery = keys.delivery_id(notification, name) if name else notification
        channel, _, device = name.partition("/")
        owner = (self._owner, text(plan.user_id), _text(plan.template or template))
        about = b"".join((_PREFIX, text(delivery), text(notification), *owner, _text(channel), _optional(device)))
        known = self._known[slot] = _Known(notification, plan, template, name, delivery.encode(), about)
        return known.delivery, known.about


class _Known(NamedTuple):
    """The record of a slot written last, as far as the next one will probably be the same."""

    notification: str
    plan: Plan
    template: str
    name: str
    delivery: bytes
    about: bytes


@lru_cache(REMEMBERED)
def _pieces(shown: Shown) -> tuple[bytes, bytes, bytes, bytes]:
    """(state and reason, detail and provider and its id, calls and possible duplicates, sent at and waits until)."""
    return (
        text(shown.state) + _optional(shown.reason),
        _optional(shown.detail) + _optional(shown.provider) + _optional(shown.provider_id),
        LONGS[shown.calls] + LONGS[shown.possible_duplicates],
        _optional_time(shown.sent_at_ms) + _optional_time(shown.until_ms),
    )


def _optional(value: str) -> bytes:
    """A text that is null when there is none."""
    return b"\2" + text(value) if value else b"\0"


def _optional_time(at_ms: int) -> bytes:
    return b"\2" + LONGS[at_ms] if at_ms else b"\0"


_remembered = lru_cache(REMEMBERED)(_optional)
_text = lru_cache(REMEMBERED)(text)
