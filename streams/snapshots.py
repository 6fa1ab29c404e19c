"""What is known of people when Redis goes away, for templates that are sent all the same (`when_redis_is_down`).

While Redis answers, each delivery of such a template takes along where it goes, and `route` remembers for a few minutes
whom it read. While Redis is away a request is planned by that memory, or, where it brings every address it needs, by
itself: then nobody knows of opt-outs, and the snapshot says so. Everything else waits for Redis.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schemas import contacts
from schemas.clock import Clock
from schemas.messages import Channel, Priority, Snapshot
from schemas.policies import WhenRedisIsDown
from schemas.stores import Profile
from streams import planning
from streams.planning import Plan
from streams.single_records import Single

Barred = frozenset[tuple[str, str]]
"""(channel, address) that must not be written to."""
_UNKNOWN = Profile()


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """fresh_ms: nobody goes by a snapshot that is older. most: people remembered. away_after_s: how long Redis must
    have been away: a moment's trouble is waited out. unfixed: plans that are to be kept once Redis is back; with so
    many everything waits again.
    """

    fresh_ms: int = 300_000
    most: int = 50_000
    unfixed: int = 10_000
    away_after_s: float = 2.0


class _Known(NamedTuple):
    """A person as read at this time."""

    profile: Profile
    barred: Barred
    at_ms: int


class Unfixed(NamedTuple):
    """A plan as it is to lie in Redis."""

    tenant: str
    user_id: str
    intent: str
    packed: bytes


class Alone(NamedTuple):
    """How a request goes out without Redis."""

    plan: Plan
    snapshots: Mapping[str, Snapshot]


class Snapshots:
    """Takes them, and plans by them."""

    def __init__(self, served: Collection[Channel], clock: Clock, options: SnapshotOptions = SnapshotOptions()) -> None:
        self._served = served
        self._clock = clock
        self._options = options
        self._people: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self._away_since_s: float | None = None
        self._unfixed: list[Unfixed] = []

    def answered(self) -> None:
        """Redis is there."""
        self._away_since_s = None

    def is_away(self, asked_s: float) -> bool:
        """Called when Redis did not answer what was asked then: whether it has been away for long enough by now."""
        if self._away_since_s is None:
            self._away_since_s = asked_s
        return self._clock.steady_s() - self._away_since_s >= self._options.away_after_s

    def unfixed(self) -> Sequence[Unfixed]:
        """The plans that went out and lie nowhere yet: to be kept before anything else is planned."""
        return self._unfixed

    def fixed(self) -> None:
        self._unfixed = []

    def take(self, single: Single, profile: Profile, plan: Plan, barred: Barred, at_ms: int) -> Mapping[str, Snapshot]:
        """By delivery suffix, of a single that may go out without Redis; the person is remembered as well."""
        event = single.event
        who = (event.tenant, event.user_id)
        self._people.pop(who, None)
        self._people[who] = _Known(profile, barred, at_ms)
        while len(self._people) > self._options.most or self._oldest_at_ms() <= at_ms - self._options.fresh_ms:
            self._people.popitem(last=False)
        return dict(_snapshots(single, _Known(profile, barred, at_ms), plan, False))

    def alone(self, single: Single, now_ms: int) -> Alone | None:
        """How it goes out while Redis is away; None when it waits."""
        event = single.event
        if not may_go_alone(single) or event.send_at_ms or event.send_at_local or single.has_expired(now_ms):
            return None
        known = self._people.get((event.tenant, event.user_id))
        is_known = known is not None and now_ms - known.at_ms < self._options.fresh_ms
        person = known if known is not None and is_known else _Known(_UNKNOWN, frozenset(), now_ms)
        plan = planning.plan(single.policy, event.channels, person.profile, event.to, self._served)
        if not plan.parts or (not is_known and any(part.reason for part in plan.parts)):
            return None
        snapshots = dict(_snapshots(single, person, plan, not is_known))
        sent_out = [part.suffix for part in plan.parts if not part.reason]
        if not sent_out or not all(suffix in snapshots for suffix in sent_out):
            return None
        if len(self._unfixed) >= self._options.unfixed:
            return None
        packed = planning.pack(plan, single.address)
        self._unfixed.append(Unfixed(event.tenant, event.user_id, single.intent, packed))
        return Alone(plan, snapshots)

    def _oldest_at_ms(self) -> int:
        return next(iter(self._people.values())).at_ms


def may_go_alone(single: Single) -> bool:
    """Whether its template opted in, and nobody lowered it to bulk, which can wait."""
    is_urgent = single.policy.priority(single.event.priority) is Priority.TRANSACTIONAL
    return is_urgent and single.policy.when_redis_is_down is WhenRedisIsDown.SEND


def addresses(single: Single, profile: Profile, plan: Plan) -> Iterator[tuple[str, str]]:
    """(channel, address) of the plan's deliveries that go into a lane; the inbox lies in Redis, so it has none."""
    for _, channel, address in _reached(single, profile, plan):
        yield channel, address


def _snapshots(single: Single, known: _Known, plan: Plan, is_unchecked: bool) -> Iterable[tuple[str, Snapshot]]:
    contact = contacts.effective(known.profile, single.event.to)
    for suffix, channel, address in _reached(single, known.profile, plan):
        if (channel, address) not in known.barred:
            yield suffix, Snapshot(known.at_ms, address, contact.locale, contact.time_zone, is_unchecked)


def _reached(single: Single, profile: Profile, plan: Plan) -> Iterator[tuple[str, Channel, str]]:
    contact = contacts.effective(profile, single.event.to)
    for part in plan.parts:
        if part.reason or part.channel is Channel.INAPP:
            continue
        address = contacts.address_of(contact, part.channel, part.device, single.event.user_id)
        if address:
            yield part.suffix, part.channel, address
