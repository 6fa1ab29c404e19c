"""What a planned single leads to: deliveries into their lanes or into hold, and what its row is told.

Pure: the same request, plan and time give the same records, under the same ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from retry_topics import hold
from schemas import codec, keys, metrics
from schemas.messages import Delivery, EventKind, Held, NotificationRequested, Snapshot, StatusEvent
from schemas.policies import TemplatePolicy
from schemas.reasons import Reason
from schemas.records import Done, Headers, Outgoing, Record, RowEvent
from schemas.topics import Topics
from streams import planning
from streams.planning import Plan
from streams.starts import Start

DUE = "tid-not-before"
NOTHING: Mapping[str, Snapshot] = {}
FIRST_HOLDING = 1
"""The hop of what route holds, once it comes out: it was queued nowhere before."""


@dataclass(frozen=True, slots=True)
class Single:
    """A readable request on its way through route. intent: what makes two of them the same."""

    record: Record
    event: NotificationRequested
    address: keys.Address
    policy: TemplatePolicy
    intent: str

    def has_expired(self, now_ms: int) -> bool:
        return self.event.expires_at_ms <= now_ms

    @property
    def headers(self) -> Headers:
        """Those that go on with it."""
        return tuple(header for header in self.record.headers if header[0] != DUE)


def in_lanes(
    topics: Topics, single: Single, plan: Plan, now_ms: int, snapshots: Mapping[str, Snapshot] = NOTHING
) -> Done:
    """It goes out now. snapshots: by delivery suffix, where its template may be sent while Redis is away."""
    key = keys.user_key(single.event.tenant, single.event.user_id).encode()
    outgoing = []
    for delivery in _deliveries(single, plan, now_ms):
        metrics.PLANNED.labels(delivery.channel, delivery.priority).inc()
        lane = topics.lane(delivery.channel, delivery.priority)
        if snapshots:
            suffix = keys.delivery_suffix(delivery.channel, delivery.device)
            delivery = replace(delivery, snapshot=snapshots.get(suffix))
        outgoing.append(Outgoing(lane, key, codec.encode(delivery), single.headers))
    waits = StatusEvent(0, EventKind.QUEUED, now_ms)
    return Done(tuple(outgoing), tuple(_told(single, plan, waits, now_ms)))


def in_hold(topics: Topics, single: Single, plan: Plan, start: Start, now_ms: int) -> Done:
    """It waits for its start, each delivery by itself. It counts as released when it is due, not before."""
    outgoing = []
    for delivery in _deliveries(single, plan, start.due_ms):
        metrics.PUT_INTO_HOLD.labels(single.record.topic, start.reason).inc()
        later = replace(delivery, hop=FIRST_HOLDING)
        held = Held(later.tenant, start.due_ms, Reason.SCHEDULED, FIRST_HOLDING, now_ms, delivery=later)
        outgoing.append(hold.delivery_record(topics, held, single.headers))
    waits = StatusEvent(0, EventKind.SCHEDULED, now_ms, hop=FIRST_HOLDING, reason=start.reason, until_ms=start.due_ms)
    return Done(tuple(outgoing), tuple(_told(single, plan, waits, now_ms)))


def stopped(single: Single, plan: Plan, kind: EventKind, reason: Reason, now_ms: int) -> Done:
    """It goes nowhere any more. What of it went before, unknown to this process, is not undone by that."""
    ends = StatusEvent(0, kind, now_ms, reason=reason)
    return Done(events=tuple(_told(single, plan, ends, now_ms)))


def end(
    event: NotificationRequested, address: keys.Address, kind: EventKind, reason: str, at_ms: int, detail: str = ""
) -> RowEvent:
    """All of it ends without a delivery."""
    user_id, template = event.user_id[: keys.USER_ID_MAX], event.template[: keys.USER_ID_MAX]
    ended = planning.slot_end(address.slot, kind, reason, at_ms, user_id, template, event.accepted_at_ms, detail)
    return RowEvent(event.tenant, address.row, ended)


def sent_out(plan: Plan) -> list[str]:
    """The suffixes of the deliveries that go anywhere, in the order of their records."""
    return [part.suffix for part in plan.parts if not part.reason]


def _told(single: Single, plan: Plan, each: StatusEvent, now_ms: int) -> Iterator[RowEvent]:
    """The plan, what of it goes nowhere, and `each` of the others."""
    for one in _events(single, plan, each, now_ms):
        yield RowEvent(single.event.tenant, single.address.row, one)


def _events(single: Single, plan: Plan, each: StatusEvent, now_ms: int) -> Iterator[StatusEvent]:
    event, slot = single.event, single.address.slot
    who = (event.user_id, event.template, event.accepted_at_ms)
    if not plan.parts:
        yield planning.slot_end(slot, EventKind.SUPPRESSED, Reason.NO_CHANNEL, now_ms, *who)
        return
    yield planning.planned(plan.suffixes(), slot, now_ms, single.record.offset, *who)
    yield from planning.unsent(plan, slot, now_ms)
    for suffix in sent_out(plan):
        yield replace(each, slot=slot, delivery=suffix)


def _deliveries(single: Single, plan: Plan, released_at_ms: int) -> Iterator[Delivery]:
    for index, part in enumerate(plan.parts):
        if not part.reason:
            yield _delivery(single, plan, index, released_at_ms)


def _delivery(single: Single, plan: Plan, index: int, released_at_ms: int) -> Delivery:
    event, part = single.event, plan.parts[index]
    return Delivery(
        tenant=event.tenant,
        user_id=event.user_id,
        intent=single.intent,
        row=single.address.row,
        slot=single.address.slot,
        index=index,
        channel=part.channel,
        device=part.device,
        priority=single.policy.priority(event.priority),
        template=event.template,
        campaign_id="",
        params=event.params,
        campaign_params="{}",
        to=event.to,
        accepted_at_ms=event.accepted_at_ms,
        released_at_ms=released_at_ms,
        expires_at_ms=event.expires_at_ms,
        siblings=plan.siblings(index),
        fallback=plan.fallback,
        force=event.force,
        digest_of=event.digest_of,
    )
