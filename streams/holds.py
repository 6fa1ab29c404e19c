"""What waits in hold, in memory: when each thing is due, and where the log has it.

Every dispatch process keeps it up to date from the topic `hold`, leader or not, so that a new leader starts warm.
Small, for millions of recipients: of a part of a page its slots are one number, of a delivery only its place is kept.
Who lets go (`streams/dispatch.py`) publishes what comes out, then the tombstone; a thing may come up again until then.
"""

from __future__ import annotations

import heapq
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from schemas import codec, keys, metrics
from schemas.errors import Poison
from schemas.messages import Delivery, Held, HeldPage
from schemas.reasons import ParkReason, Reason
from schemas.records import Record
from schemas.rows import CAMPAIGN_SLOTS
from schemas.topics import Topics
from streams import digest_groups
from streams.digest_groups import Gathered, Groups

log = logging.getLogger(__name__)

NEVER_MS = 2**62
ALL = (1 << CAMPAIGN_SLOTS) - 1
_BITS = [1 << slot for slot in range(CAMPAIGN_SLOTS)]
DEAD_IN_HEAP = 1_000
"""So many more than live ones a heap may hold of things that are gone."""


class Flow(NamedTuple):
    """Things that go the same way: the parts of a campaign's pages (tenant and lane ""), or deliveries into one lane.

    campaign: its key; "" for singles.
    """

    tenant: str
    campaign: str
    lane: str


class Part(NamedTuple):
    """A part of a page. mask: a bit for each slot that waits; ALL: the whole page. since_ms: it may have been let go
    before, but not before this.
    """

    due_ms: int
    source_offset: int
    hold_id: bytes
    flow: Flow
    reason: str
    page: int
    mask: int
    hop: int
    since_ms: int

    @property
    def recipients(self) -> int:
        """How many wait; of a whole page as many as it may have."""
        return self.mask.bit_count()


class Waiting(NamedTuple):
    """A delivery: it lies at this place of `hold`. due_ms is not later than its expiry. gathered: it waits for a
    digest, which takes it out before it is due.
    """

    due_ms: int
    offset: int
    hold_id: bytes
    flow: Flow
    reason: str
    partition: int
    expires_ms: int
    gathered: Gathered | None = None

    @property
    def recipients(self) -> int:
        return 1


Thing = Part | Waiting


class _Queue:
    """The things of one flow, by due time. `live` are held, for so many recipients; others in the heap are gone."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.heap: list[Thing] = []
        self.live = 0
        self.recipients = 0


class Holds:
    """All that is held. topics: those whose records it takes."""

    def __init__(self, topics: Topics) -> None:
        self.topics = (topics.hold,)
        self._lane_of = topics.lane
        self._held: dict[bytes, Thing] = {}
        self._queues: dict[Flow, _Queue] = {}
        self._taken: dict[bytes, Thing] = {}
        self._reasons: Counter[str] = Counter()
        self._groups = Groups()

    def __len__(self) -> int:
        return len(self._held)

    def on_record(self, record: Record) -> None:
        """Takes one record; what cannot be read is logged and left out."""
        hold_id = record.key or b""
        if record.value is None:
            self._remove(hold_id)
            return
        try:
            thing = self._thing(hold_id, record)
        except Poison as error:
            place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            log.warning("hold.record_unreadable", extra={**place, "error": error.text})
            return
        self._remove(hold_id)
        self._add(thing)

    def recipients(self, campaign: str) -> int:
        """How many recipients wait in parts of pages of this campaign (its key)."""
        queue = self._queues.get(parts_of(campaign))
        return queue.recipients if queue is not None else 0

    def deliveries(self) -> Counter[str]:
        """How many deliveries wait, by the key of their campaign."""
        found = Counter[str]()
        for flow, queue in self._queues.items():
            found[flow.campaign] += queue.live if flow.lane else 0
        return found

    def flows(self) -> list[Flow]:
        """Every flow that has something."""
        return list(self._queues)

    def has_due(self, flow: Flow, now_ms: int) -> bool:
        return self._first(flow, now_ms) is not None

    def take_parts(self, campaign: str, now_ms: int, most: int) -> list[Part]:
        """As `take`, of a campaign's parts."""
        return [thing for thing in self._take(parts_of(campaign), now_ms, most) if isinstance(thing, Part)]

    def take(self, flow: Flow, now_ms: int, most: int) -> list[Waiting]:
        """Up to so many deliveries that are due, in due order. They do not come up again before `start_over`."""
        return [thing for thing in self._take(flow, now_ms, most) if isinstance(thing, Waiting)]

    def digests(self, now_ms: int, most: int) -> list[list[Waiting]]:
        """What goes out as one: the members of windows that are over (`streams/digest_groups.py`)."""
        windows = self._groups.due(now_ms, most)
        return [[member for member in window if isinstance(member, Waiting)] for window in windows]

    def waiting(self, hold_id: bytes) -> Waiting | None:
        """The delivery of this id; None when nothing is held under it, or a part of a page."""
        thing = self._held.get(hold_id)
        return thing if isinstance(thing, Waiting) else None

    def goes_alone(self, member: Waiting, now_ms: int) -> None:
        """It waits for nothing any more, for no digest either: it is due."""
        if self._held.get(member.hold_id) is member:
            self._remove(member.hold_id)
            self._add(member._replace(due_ms=now_ms, gathered=None))

    def start_over(self) -> None:
        """What was taken and is not gone comes up again."""
        for thing in self._taken.values():
            if self._held.get(thing.hold_id) is thing:
                heapq.heappush(self._queues[thing.flow].heap, thing)
        self._taken.clear()

    def gone(self, things: Iterable[Thing]) -> None:
        """Their tombstones are in the log. What was put in under the same id meanwhile stays until it sees them."""
        for thing in things:
            if self._held.get(thing.hold_id) is thing:
                self._remove(thing.hold_id)

    def shrink(self, part: Part, mask: int) -> None:
        """A piece of it went; these slots still wait."""
        if self._held.get(part.hold_id) is part:
            self._remove(part.hold_id)
            self._add(part._replace(mask=mask))

    def tell(self, now_ms: int, waits: Callable[[Flow], bool]) -> None:
        """Sets the metrics. waits: whether a flow may not go whatever is due (a paused campaign)."""
        overdue: dict[str, int] = {}
        for flow in self._queues:
            first = self._first(flow, now_ms) if not waits(flow) else None
            if first is not None and first.due_ms:
                overdue[first.reason] = max(overdue.get(first.reason, 0), now_ms - first.due_ms)
        overdue[Reason.DIGEST] = max(overdue.get(Reason.DIGEST, 0), self._groups.overdue_ms(now_ms))
        for reason, count in self._reasons.items():
            metrics.HELD.labels(reason).set(count)
            metrics.HELD_OVERDUE_S.labels(reason).set(overdue.get(reason, 0) / 1000)

    def _take(self, flow: Flow, now_ms: int, most: int) -> list[Thing]:
        taken: list[Thing] = []
        while len(taken) < most and (thing := self._first(flow, now_ms)) is not None:
            heapq.heappop(self._queues[flow].heap)
            self._taken[thing.hold_id] = thing
            taken.append(thing)
        return taken

    def _first(self, flow: Flow, now_ms: int) -> Thing | None:
        queue = self._queues.get(flow)
        if queue is None:
            return None
        while queue.heap and self._held.get(queue.heap[0].hold_id) is not queue.heap[0]:
            heapq.heappop(queue.heap)
        return queue.heap[0] if queue.heap and queue.heap[0].due_ms <= now_ms else None

    def _add(self, thing: Thing) -> None:
        queue = self._queues.setdefault(thing.flow, _Queue(thing.flow))
        heapq.heappush(queue.heap, thing)
        queue.live += 1
        queue.recipients += thing.recipients
        self._held[thing.hold_id] = thing
        self._reasons[thing.reason] += 1
        if isinstance(thing, Waiting) and thing.gathered is not None:
            self._groups.add(thing)

    def _remove(self, hold_id: bytes) -> None:
        thing = self._held.pop(hold_id, None)
        if thing is None:
            return
        self._reasons[thing.reason] -= 1
        if isinstance(thing, Waiting) and thing.gathered is not None:
            self._groups.remove(thing)
        queue = self._queues[thing.flow]
        queue.live -= 1
        queue.recipients -= thing.recipients
        if not queue.live:
            del self._queues[thing.flow]
        elif len(queue.heap) > 2 * queue.live + DEAD_IN_HEAP:
            queue.heap = [kept for kept in queue.heap if self._held.get(kept.hold_id) is kept]
            heapq.heapify(queue.heap)

    def _thing(self, hold_id: bytes, record: Record) -> Thing:
        held = codec.decode(record.value, Held)
        reason = sys.intern(held.reason)
        if held.page is not None and held.delivery is None:
            return self._part(hold_id, held, held.page, reason)
        if held.delivery is not None and held.page is None:
            return self._waiting(hold_id, held, held.delivery, reason, record)
        raise Poison(ParkReason.BAD_REQUEST, "exactly one of page and delivery must be set")

    def _part(self, hold_id: bytes, held: Held, page: HeldPage, reason: str) -> Part:
        due_ms = held.due_ms or _undated(reason)
        flow = self._flow(parts_of(keys.campaign_key(held.tenant, page.campaign_id)))
        since_ms = held.due_ms or held.held_at_ms
        return Part(due_ms, page.source_offset, hold_id, flow, reason, page.page, _mask(page), held.hop, since_ms)

    def _waiting(self, hold_id: bytes, held: Held, delivery: Delivery, reason: str, record: Record) -> Waiting:
        campaign = keys.campaign_key(held.tenant, delivery.campaign_id) if delivery.campaign_id else ""
        flow = self._flow(Flow(held.tenant, campaign, self._lane_of(delivery.channel, delivery.priority)))
        expires_ms = delivery.expires_at_ms or NEVER_MS
        waits = digest_groups.gathered(held)
        due_ms = expires_ms if waits is not None else min(held.due_ms or _undated(reason), expires_ms)
        return Waiting(due_ms, record.offset, hold_id, flow, reason, record.partition, expires_ms, waits)

    def _flow(self, flow: Flow) -> Flow:
        """The same object for all things of a flow."""
        queue = self._queues.get(flow)
        return queue.flow if queue is not None else flow


def parts_of(campaign: str) -> Flow:
    """The flow of a campaign's parts."""
    return Flow("", campaign, "")


def _undated(reason: str) -> int:
    """What waits for the resume of its campaign is due whenever that runs; the others wait for their expiry."""
    return 0 if reason == Reason.CAMPAIGN_PAUSED else NEVER_MS


def _mask(page: HeldPage) -> int:
    if page.slots and not 0 <= min(page.slots) <= max(page.slots) < CAMPAIGN_SLOTS:
        raise Poison(ParkReason.BAD_REQUEST, f"a page has {CAMPAIGN_SLOTS} slots at most")
    mask = 0
    for slot in page.slots:
        mask |= _BITS[slot]
    return mask or ALL


def slots(mask: int) -> tuple[int, ...]:
    """The slots whose bits are set."""
    return tuple([slot for slot in range(CAMPAIGN_SLOTS) if mask >> slot & 1])
