"""A record of an entry topic -> the request in it, or what becomes of it at once: parked, or moved to the other topic.

By the API's own rules: upstream teams may publish without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from schemas import codec, keys
from schemas.errors import Poison, Refused
from schemas.messages import Channel, EventKind, NotificationRequested, Priority
from schemas.policies import Policies
from schemas.reasons import ParkReason, Reason
from schemas.records import Answer, Done, Outgoing, Record, RowEvent
from schemas.stores import Profiles, StatusReads, Suppressions
from schemas.topics import Topics
from streams import planning, single_records
from streams.single_records import Single

CheckEvent = Callable[[NotificationRequested, int], NotificationRequested]
"""The API's own rules: the event with its times filled in, given the time on its record. Raises Refused."""
Park = Callable[[Record, str, str, tuple[RowEvent, ...]], Done]
"""The answer that parks a record: (record, error class, text, what its row is told)."""
_REFUSALS = {"event_id": ParkReason.NO_KEY, "template": ParkReason.UNKNOWN_TEMPLATE}
"""Field of a refusal -> error class; all others are bad requests."""
_FAILURES = {
    ParkReason.NO_KEY: Reason.NO_KEY,
    ParkReason.UNKNOWN_TEMPLATE: Reason.UNKNOWN_TEMPLATE,
    ParkReason.BAD_REQUEST: Reason.BAD_REQUEST,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry topic: whose it is, its log epoch, and the lanes its requests are meant for."""

    tenant: str
    epoch: str
    priority: Priority


@dataclass(frozen=True, slots=True)
class Doors:
    """What `deploy` hands over from other rooms. served: the channels that have a provider; others reach nobody.

    zones: tenant -> the time zone of users who have none (UTC for a tenant not named). rows: what became of requests
    older than claims. suppressions: read where a template is sent while Redis is away; None: none of them is.
    """

    check_event: CheckEvent
    park: Park
    profiles: Profiles
    rows: StatusReads
    served: Collection[Channel] = planning.ALL_CHANNELS
    zones: Mapping[str, str] = field(default_factory=dict)
    suppressions: Suppressions | None = None


class Intake:
    """Of the entry topics of one priority."""

    def __init__(self, entries: Mapping[str, Entry], policies: Policies, doors: Doors, topics: Topics) -> None:
        self._entries = entries
        self._policies = policies
        self._doors = doors
        self._topics = topics

    def take_in(self, record: Record, now_ms: int) -> Single | Answer:
        """The request, or at once what becomes of it when there is nothing to plan."""
        entry = self._entries[record.topic]
        try:
            event = codec.decode(record.value or b"", NotificationRequested)
        except Poison as error:
            return self._doors.park(record, error.reason, error.text, ())
        event = replace(event, tenant=entry.tenant)
        address = _address(record, event, entry)
        try:
            event = self._doors.check_event(event, known_at_ms(record, event))
        except Refused as error:
            return self._refused(record, event, address, error, now_ms)
        policy = self._policies[event.template]
        if policy.priority(event.priority) is not entry.priority:
            return self._moved(record, event, address)
        return Single(record, event, address, policy, keys.single_intent(event.tenant, event.event_id))

    def _refused(
        self, record: Record, event: NotificationRequested, address: keys.Address, error: Refused, now_ms: int
    ) -> Done:
        """Parked as it came, and failed for whoever asks."""
        reason = _REFUSALS.get(error.field, ParkReason.BAD_REQUEST)
        ended = single_records.end(event, address, EventKind.FAILED, _FAILURES[reason], now_ms, str(error)[:200])
        return self._doors.park(record, reason, str(error), (ended,))

    def _moved(self, record: Record, event: NotificationRequested, address: keys.Address) -> Done:
        """Into the other entry topic, keeping its address."""
        topics, tenant = self._topics, event.tenant
        other = topics.requests_bulk if record.topic == topics.requests(tenant) else topics.requests
        moved = replace(event, origin_row=address.row, origin_slot=address.slot)
        key = keys.user_key(tenant, event.user_id).encode()
        return Done((Outgoing(other(tenant), key, codec.encode(moved), record.headers),))


def _address(record: Record, event: NotificationRequested, entry: Entry) -> keys.Address:
    """Its place in the log, or where it was first accepted when it was moved or replayed."""
    if _has_origin(event):
        return keys.Address(event.origin_row, event.origin_slot)
    return keys.single_address(entry.epoch, record.partition, record.offset)


def known_at_ms(record: Record, event: NotificationRequested) -> int:
    """When it was first in the log: by this time its own times are judged, however often it is read. Never later than
    the record itself: whoever publishes may write any time into it.
    """
    is_known = _has_origin(event) and event.accepted_at_ms > 0
    return min(event.accepted_at_ms, record.timestamp_ms) if is_known else record.timestamp_ms


def _has_origin(event: NotificationRequested) -> bool:
    """Whether it names the place where it was first accepted; what is no place counts as none."""
    return keys.is_single_row(event.origin_row) and 0 <= event.origin_slot < keys.SLOTS_PER_ROW
