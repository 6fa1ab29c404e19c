"""What was decided about a delivery, how it lies in the claim, and what it makes the log say.

Pure. The same verdict gives the same records and events whether it was just decided or is read back from a
claim after a crash, so publishing it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

import orjson

from consumers.claims import Entry, VerdictClass
from retry_topics import hold
from schemas import codec, keys
from schemas.messages import Channel, Delivery, EventKind, Held, StatusEvent, Suppression
from schemas.reasons import Reason
from schemas.records import Headers, Outgoing, Record, RowEvent
from schemas.topics import Topics

Park = Callable[[Record, str, str], Outgoing]
"""The dead letter of a record, counted: (record, error class, text): `dead_letters.DeadLetters.letter`."""
NOT_BEFORE = "tid-not-before"
WAITS = frozenset({EventKind.RETRYING, EventKind.HELD})
"""Kinds of verdict after which the delivery goes on: in a tier, or in hold."""
_LASTING = WAITS | {EventKind.EXPIRED, EventKind.CANCELLED}
"""Kinds that a claim need not keep where no call was made: a wait's next record asks for one itself."""


class Verdict(NamedTuple):
    """kind: SENT, a wait, UNCONFIRMED or an end. until_ms, tries: of a wait's next record; tier: of a RETRYING.

    park: the error class under which the record is parked as well; cause: why its address is suppressed from now
    on; is_unknown: this call may have been accepted although it is repeated or told as failed; called: whether a call
    was made at all.
    lapsed_from: of an end without a call, the first of the calls before it that nobody heard of; 0 = the claim knows.
    address_hash: what was called, where there is a cause: whoever publishes the verdict later may know another one.
    """

    kind: EventKind
    at_ms: int
    reason: str = Reason.NONE
    detail: str = ""
    provider: str = ""
    provider_id: str = ""
    until_ms: int = 0
    tier: str = ""
    tries: int = 0
    park: str = ""
    cause: str = ""
    is_unknown: bool = False
    called: bool = False
    lapsed_from: int = 0
    address_hash: str = ""

    @property
    def claim_class(self) -> VerdictClass:
        if self.kind is EventKind.SENT:
            return VerdictClass.SENT
        return VerdictClass.WAITING if self.kind in WAITS else VerdictClass.ENDED


def pack(verdict: Verdict) -> bytes:
    return orjson.dumps(tuple(verdict))


def unpack(raw: bytes) -> Verdict:
    kind, *rest = orjson.loads(raw)
    return Verdict(EventKind(kind), *rest)


def could_change(verdict: Verdict) -> bool:
    """Whether this is an end that a later look at the same record might not come to: an address may be added.

    What expired or was cancelled is so at every look.
    """
    return verdict.kind not in _LASTING


def lapsed(verdict: Verdict, entry: Entry) -> range:
    """The calls of which nobody heard, by what the claim keeps: those of lapsed holders."""
    return range(verdict.lapsed_from or entry.record_call, entry.call)


def with_doubt(verdict: Verdict) -> Verdict:
    """The same, saying that a repeat of its call can no longer be ruled out."""
    return verdict._replace(is_unknown=True)


def doubted_at(delivery: Delivery, stay_ms: int, now_ms: int) -> str:
    """The provider that has a call of it in doubt, and alone can tell the repeat by the key; "" after stay_ms: then a
    late message is worse than one that may come twice.
    """
    return delivery.doubted_at if now_ms - delivery.doubted_at_ms < stay_ms else ""


class Numbers(NamedTuple):
    """Which call the verdict is about. lapsed: calls whose lease ran out before anybody heard of their outcome."""

    call: int
    lapsed: range = range(0)


class Announcer:
    """Turns verdicts into records and events."""

    def __init__(self, topics: Topics, park: Park, served: Collection[Channel] = frozenset(Channel)) -> None:
        self._topics = topics
        self._park = park
        self._served = served

    def following(self, delivery: Delivery) -> Channel | None:
        """The next channel of its fallback list that has a provider."""
        return next((channel for channel in delivery.fallback if channel in self._served), None)

    def announce(
        self,
        record: Record,
        delivery: Delivery,
        verdict: Verdict,
        numbers: Numbers,
        following: Channel | None = None,
    ) -> tuple[tuple[Outgoing, ...], tuple[RowEvent, ...]]:
        """What to publish for a verdict. following: the fallback that starts with it."""
        events = _events(delivery, verdict, numbers, following.value if following else "")
        outgoing: tuple[Outgoing, ...] = ()
        if verdict.kind is not EventKind.SENT:  # nearly all are, and nothing follows
            outgoing = tuple(self._outgoing(record, delivery, verdict, numbers, following))
        return outgoing, tuple([RowEvent(delivery.tenant, delivery.row, event) for event in events])

    def _outgoing(
        self,
        record: Record,
        delivery: Delivery,
        verdict: Verdict,
        numbers: Numbers,
        following: Channel | None,
    ) -> Iterator[Outgoing]:
        if verdict.kind in WAITS:
            yield self._later(record, delivery, verdict, numbers)
        if verdict.park:
            yield self._park(record, verdict.park, verdict.detail)
        if verdict.address_hash:
            yield self._suppression(delivery, verdict)
        if following is not None:
            yield self._fallback(record, delivery, following, verdict, numbers)

    def _later(self, record: Record, delivery: Delivery, verdict: Verdict, numbers: Numbers) -> Outgoing:
        """Its age counts from now: its claims were asked just before, so they know of every call so far."""
        call, released_at_ms = _next_call(delivery, verdict, numbers), max(delivery.released_at_ms, verdict.at_ms)
        later = replace(delivery, call=call, tries=verdict.tries, hop=delivery.hop + 1, released_at_ms=released_at_ms)
        if verdict.is_unknown or (numbers.lapsed and not delivery.doubted_at):
            later = replace(later, doubted_at=verdict.provider, doubted_at_ms=verdict.at_ms)
        if verdict.kind is EventKind.HELD:
            held = Held(delivery.tenant, verdict.until_ms, verdict.reason, later.hop, verdict.at_ms, delivery=later)
            return hold.delivery_record(self._topics, held, _carried(record.headers))
        topic = self._topics.tier(delivery.channel, delivery.priority, verdict.tier)
        due = (NOT_BEFORE, str(verdict.until_ms).encode())
        return Outgoing(topic, record.key, codec.encode(later), (*_carried(record.headers), due))

    def _fallback(
        self, record: Record, delivery: Delivery, channel: Channel, verdict: Verdict, numbers: Numbers
    ) -> Outgoing:
        """It takes along that the message may be there already; that another channel can tell is not so.

        By the time of the verdict, as all else in it: however often it is written, it is the same record.
        """
        may_have_gone = verdict.is_unknown or numbers.lapsed or delivery.siblings or delivery.doubted_at_ms
        other = replace(
            delivery,
            channel=channel,
            device="",
            index=keys.fallback_index(channel),
            call=1,
            tries=0,
            hop=delivery.hop + 1,
            siblings=(),
            fallback=delivery.fallback[delivery.fallback.index(channel) + 1 :],
            doubted_at="",
            doubted_at_ms=verdict.at_ms if may_have_gone else 0,
            released_at_ms=verdict.at_ms,
            snapshot=None,
        )
        topic = self._topics.lane(channel, delivery.priority)
        return Outgoing(topic, record.key, codec.encode(other), _carried(record.headers))

    def _suppression(self, delivery: Delivery, verdict: Verdict) -> Outgoing:
        hashed = verdict.address_hash
        message = Suppression(delivery.tenant, delivery.channel, hashed, verdict.cause, verdict.provider, verdict.at_ms)
        key = keys.suppression_key(delivery.tenant, delivery.channel, hashed)
        return Outgoing(self._topics.suppressions, key.encode(), codec.encode(message))


def _next_call(delivery: Delivery, verdict: Verdict, numbers: Numbers) -> int:
    """The number that the next record makes its call by.

    Whoever waits in hold may come back when the claim of a lapsed call is gone: its number must not be used again.
    From a tier it comes back in time to take that claim over.
    """
    if verdict.called:
        return numbers.call + 1
    return numbers.lapsed.stop if verdict.kind is EventKind.HELD and numbers.lapsed else delivery.call


def _events(delivery: Delivery, verdict: Verdict, numbers: Numbers, following: str) -> list[StatusEvent]:
    suffix = keys.delivery_suffix(delivery.channel, delivery.device)
    slot, at_ms, generation = delivery.slot, verdict.at_ms, delivery.generation
    events = []
    for call in numbers.lapsed:
        is_last = call + 1 == numbers.lapsed.stop and _leaves_it_open(verdict)
        kind = EventKind.UNCONFIRMED if is_last else EventKind.POSSIBLE_DUPLICATE
        events.append(StatusEvent(slot, kind, at_ms, suffix, generation=generation, call=call))
    if verdict.is_unknown:
        doubt = StatusEvent(slot, EventKind.POSSIBLE_DUPLICATE, at_ms, suffix, generation=generation, call=numbers.call)
        events.append(doubt)
    own = StatusEvent(
        slot,
        verdict.kind,
        at_ms,
        suffix,
        generation=generation,
        hop=delivery.hop + 1 if verdict.kind in WAITS else 0,
        call=numbers.call if verdict.called else numbers.call - 1,
        reason=verdict.reason,
        detail=verdict.detail,
        until_ms=verdict.until_ms,
        provider=verdict.provider,
        provider_id=verdict.provider_id,
        next=following,
    )
    events.append(own)
    return events


def _leaves_it_open(verdict: Verdict) -> bool:
    """Whether no call follows the lapsed ones, so that nobody will ever know what came of them.

    A delivery that kills its workers is shown as failed all the same: somebody has to look at it.
    """
    return not verdict.called and verdict.kind not in WAITS and verdict.reason != Reason.CRASHES_WORKER


def _carried(headers: Headers) -> Headers:
    return tuple(header for header in headers if header[0] != NOT_BEFORE)
