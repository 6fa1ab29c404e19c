"""Many messages as one: the request that takes their place, and what their rows are told.

Pure. The items are the values of the messages in the order in which these were accepted; a template shows as many as it
likes of them, and how many others there are ("Mia and 4 others").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from schemas import codec, keys
from schemas.messages import Delivery, EventKind, NotificationRequested, Priority, StatusBatch, StatusEvent
from schemas.reasons import Reason
from schemas.records import Headers, Outgoing
from schemas.topics import Topics

MOST_ITEMS = 50
MOST_BYTES = 49_152
"""Of all items together: with them the request stays below what the door lets through."""
EVENTS_PER_BATCH = 200


class Member(NamedTuple):
    """A delivery that goes out with others. headers: those of its record."""

    delivery: Delivery
    headers: Headers


def fits(delivery: Delivery) -> bool:
    """Whether it can be an item; who is larger goes out alone."""
    return len(delivery.params.encode()) + len(delivery.campaign_params.encode()) <= MOST_BYTES


def in_order(members: Iterable[Member]) -> list[Member]:
    """In the order in which their notifications were accepted: by time, then by place in the log."""
    return sorted(members, key=_accepted)


def record(topics: Topics, event_id: str, members: Sequence[Member], now_ms: int) -> Outgoing:
    """The request, for the entry topic. members: `in_order`, of one user, template, channel and lane.

    It goes where the newest of them wanted to go, and is worth sending as long as any of them is.
    """
    newest = members[-1].delivery
    notifications = {member.delivery.intent: member.delivery for member in members}
    is_bulk = newest.priority is Priority.BULK
    request = NotificationRequested(
        tenant=newest.tenant,
        event_id=event_id,
        user_id=newest.user_id,
        template=newest.template,
        params=_params(list(notifications.values())),
        channels=(newest.channel,),
        priority=Priority.BULK if is_bulk else "",
        to=newest.to,
        expires_at_ms=max(member.delivery.expires_at_ms for member in members),
        accepted_at_ms=now_ms,
        digest_of=len(notifications),
    )
    topic = (topics.requests_bulk if is_bulk else topics.requests)(newest.tenant)
    key = keys.user_key(newest.tenant, newest.user_id).encode()
    return Outgoing(topic, key, codec.encode(request), members[-1].headers)


def ended(delivery: Delivery, notification_id: str, at_ms: int) -> StatusEvent:
    """It goes out as a part of this digest."""
    return _event(delivery, EventKind.SUPPRESSED, Reason.IN_DIGEST, at_ms, f"in digest {notification_id}")


def cancelled(delivery: Delivery, at_ms: int) -> StatusEvent:
    return _event(delivery, EventKind.CANCELLED, Reason.CANCELLED_BY_CALLER, at_ms, "")


def told(topics: Topics, events: Iterable[tuple[Delivery, StatusEvent]]) -> Iterator[Outgoing]:
    """The events as records of `delivery.status`, those of a row together."""
    rows: dict[tuple[str, str], list[StatusEvent]] = {}
    for delivery, event in events:
        rows.setdefault((delivery.tenant, delivery.row), []).append(event)
    for (tenant, row), all_of_it in rows.items():
        for start in range(0, len(all_of_it), EVENTS_PER_BATCH):
            batch = StatusBatch(tenant, row, tuple(all_of_it[start : start + EVENTS_PER_BATCH]))
            yield Outgoing(topics.status, keys.row_key(tenant, row).encode(), codec.encode(batch))


def _accepted(member: Member) -> tuple[int, bool, int, int, int]:
    delivery = member.delivery
    address = keys.Address(delivery.row, delivery.slot)
    if keys.is_campaign_row(address.row):
        _, page = keys.campaign_of_row(address.row)
        return delivery.accepted_at_ms, True, page, address.slot, delivery.index
    _, partition, offset = keys.single_place(address)
    return delivery.accepted_at_ms, False, partition, offset, delivery.index


def _params(notifications: Sequence[Delivery]) -> str:
    """What the template gets: the items that fit, how many messages there are, and how many besides the first."""
    items: list[bytes] = []
    left = MOST_BYTES
    for delivery in notifications[:MOST_ITEMS]:
        item = orjson.dumps({**_values(delivery.campaign_params), **_values(delivery.params)})
        left -= len(item) + 1
        if left < 0 and items:
            break
        items.append(item)
    count = len(notifications)
    return f'{{"items":[{b",".join(items).decode()}],"count":{count},"others":{count - 1}}}'


def _values(params: str) -> Mapping[str, Any]:
    """What is no JSON object, which no door lets through, has no values."""
    try:
        values = orjson.loads(params or "{}")
    except orjson.JSONDecodeError:
        return {}
    return values if isinstance(values, dict) else {}


def _event(delivery: Delivery, kind: EventKind, reason: Reason, at_ms: int, detail: str) -> StatusEvent:
    return StatusEvent(
        delivery.slot,
        kind,
        at_ms,
        keys.delivery_suffix(delivery.channel, delivery.device),
        generation=delivery.generation,
        call=delivery.call - 1,
        reason=reason,
        detail=detail,
    )
