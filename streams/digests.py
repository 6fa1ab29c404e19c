"""The leader's work on digests: when a window is over, its messages go out as one.

Beside `streams/held_release.py`, and in the same order: what comes out, its acks, the tombstones. First each message
gets a mark of the digest that it is in (`streams/digest_marks.py`), so that a crash anywhere makes the same digest
again, which ends `duplicate_of` the first. Who is alone in its window goes out as itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from retry_topics import hold
from schemas import keys, metrics
from schemas.clock import Clock
from schemas.gaps import Gap
from schemas.messages import Delivery, EventKind, Held, StatusEvent
from schemas.policies import Policies
from schemas.reasons import Reason
from schemas.records import Outgoing, Publisher
from schemas.topics import Topics
from streams import digest_marks, digest_requests
from streams.campaigns import Campaigns, is_stopped
from streams.digest_marks import DigestMarks, Mark, Window
from streams.digest_requests import Member
from streams.holds import Waiting
from streams.letting_go import Found, LettingGo

MEMBERS_A_LOOK = 1_000
"""Each is read again from the log."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Where requests enter: log epochs by entry topic, and what makes ids of the places there."""

    epochs: Mapping[str, str]
    ids: keys.Ids

    def notification_id(self, tenant: str, topic: str, partition: int, offset: int) -> str:
        return self.ids.notification_id(tenant, keys.single_address(self.epochs[topic], partition, offset))


class _Digest(NamedTuple):
    """Messages with the same mark. notification_id: "" unless it is known to be in the log."""

    window: Window
    notification_id: str
    members: Sequence[Found]


class _Lying(NamedTuple):
    """Messages of one window. free: they go out as one now. paused: their campaign is; unknown: nobody can say now
    whether they went long ago. These go along only where they bear the mark of a digest already: the one that is
    written twice ends as a repeat of the first, so both must have the same messages.
    """

    free: Sequence[Found]
    paused: Sequence[Found]
    unknown: Sequence[Found]

    def window(self) -> Window:
        all_of_it = [*self.free, *self.paused, *self.unknown]
        first, intents = all_of_it[0].delivery, _intents(self.free)
        others = [intent for intent in _intents(all_of_it) if intent not in intents]
        is_alone = len(intents) <= 1
        digest = digest_marks.ALONE if is_alone else keys.digest_event(one.thing.hold_id for one in self.free)
        return Window(first.tenant, first.user_id, first.channel, digest, intents, others)


@dataclass(slots=True)
class _Judged:
    """What becomes of the members of one look. moved: they wait in hold for something else from now on."""

    digests: list[_Digest] = field(default_factory=list)
    moved: list[Outgoing] = field(default_factory=list)
    events: list[tuple[Delivery, StatusEvent]] = field(default_factory=list)
    buried: list[Waiting] = field(default_factory=list)


class Digests:
    """Acts for the leader."""

    def __init__(
        self,
        campaigns: Campaigns,
        letting_go: LettingGo,
        marks: DigestMarks,
        entries: Entries,
        policies: Policies,
        publisher: Publisher,
        topics: Topics,
        clock: Clock,
        gap: Gap | None = None,
    ) -> None:
        self._campaigns = campaigns
        self._letting_go = letting_go
        self._holds = letting_go.holds
        self._marks = marks
        self._entries = entries
        self._policies = policies
        self._publisher = publisher
        self._topics = topics
        self._clock = clock
        self._gap = gap

    async def let_go(self) -> None:
        """Makes digests of windows that are over, some at a time. Raises Transient (StoreDown)."""
        now_ms = self._clock.now_ms()
        windows = self._holds.digests(now_ms, MEMBERS_A_LOOK)
        if not windows:
            return
        judged = _Judged()
        candidates = await self._candidates(windows, judged, now_ms)
        asked = [lying.window() for lying in candidates]
        marks = await self._marks.of(asked)
        for window, lying, found in zip(asked, candidates, marks, strict=True):
            by_intent = dict(zip([*window.intents, *window.others], found, strict=True))
            self._sort(window, lying, by_intent, judged, now_ms)
        judged.digests = await self._written(judged.digests, now_ms)
        for digest in judged.digests:
            self._end(digest, judged, now_ms)
        await self._publisher.publish([*judged.moved, *digest_requests.told(self._topics, judged.events)])
        await self._letting_go.bury(judged.buried, self._publisher)

    async def _candidates(self, windows: Sequence[Sequence[Waiting]], judged: _Judged, now_ms: int) -> list[_Lying]:
        """Window by window those that may go out as one; the others leave it."""
        read = await self._letting_go.found([thing for window in windows for thing in window])
        went = await self._letting_go.went_before(read, now_ms)
        known = {one.thing.hold_id: (one, gone) for one, gone in zip(read, went, strict=True)}
        candidates = []
        for window in windows:
            lying = [known[thing.hold_id] for thing in window if thing.hold_id in known]
            judged.buried += [one.thing for one, gone in lying if gone]
            unknown = [one for one, gone in lying if gone is None]
            staying = [one for one, gone in lying if gone is False and self._stays(one, now_ms)]
            paused = [one for one in staying if self._is_paused(one)]
            free = [one for one in staying if not self._is_paused(one)]
            if free or paused or unknown:
                candidates.append(_Lying(free, paused, unknown))
        return candidates

    def _stays(self, one: Found, now_ms: int) -> bool:
        """Whether it is still one of many; else it goes by itself."""
        campaign = self._campaigns.find(one.thing.flow.campaign)
        is_over = one.thing.expires_ms <= now_ms or (campaign is not None and is_stopped(campaign, now_ms))
        if is_over or not self._is_gathered(one.delivery):
            self._holds.goes_alone(one.thing, now_ms)
            return False
        return True

    def _is_paused(self, one: Found) -> bool:
        campaign = self._campaigns.find(one.thing.flow.campaign)
        return campaign is not None and campaign.is_paused

    def _is_gathered(self, delivery: Delivery) -> bool:
        """Whether its template makes digests, as it is now, and it can be a part of one."""
        policy = self._policies.get(delivery.template)
        is_ours = delivery.tenant in self._topics.tenants and keys.is_row(delivery.row)
        return is_ours and policy is not None and policy.makes_digests and digest_requests.fits(delivery)

    def _put_off(self, one: Found, judged: _Judged, now_ms: int) -> None:
        """Its campaign is paused: it waits for the resume, and then for its next window."""
        later = replace(one.delivery, hop=one.held.hop + 1)
        held = Held(later.tenant, 0, Reason.CAMPAIGN_PAUSED, later.hop, now_ms, delivery=later)
        judged.moved.append(hold.delivery_record(self._topics, held, one.record.headers))
        suffix = keys.delivery_suffix(later.channel, later.device)
        waits = StatusEvent(later.slot, EventKind.HELD, now_ms, suffix, generation=later.generation, hop=later.hop)
        judged.events.append((later, replace(waits, reason=Reason.CAMPAIGN_PAUSED)))
        judged.buried.append(one.thing)

    def _sort(self, window: Window, lying: _Lying, marks: Mapping[str, Mark], judged: _Judged, now_ms: int) -> None:
        """By their marks: out as one, out alone, cancelled; who has none stays for the next window, or the resume."""
        digests: dict[str, list[Found]] = {}
        names: dict[str, str] = {}
        paused = {one.thing.hold_id for one in lying.paused}
        in_one = [one for one in lying.unknown if _is_digest(marks[one.delivery.intent])]
        for one in [*lying.free, *lying.paused, *in_one]:
            mark = marks[one.delivery.intent]
            match mark.digest:
                case digest_marks.WAITS if one.thing.hold_id in paused:
                    self._put_off(one, judged, now_ms)
                case digest_marks.WAITS:
                    pass
                case digest_marks.ALONE:
                    self._holds.goes_alone(one.thing, now_ms)
                case digest_marks.CANCELLED:
                    judged.events.append((one.delivery, digest_requests.cancelled(one.delivery, now_ms)))
                    judged.buried.append(one.thing)
                case digest:
                    digests.setdefault(digest, []).append(one)
                    names[digest] = mark.notification_id or names.get(digest, "")
        for digest, together in digests.items():
            marked = window._replace(digest=digest, intents=_intents(together), others=())
            judged.digests.append(_Digest(marked, names[digest], together))

    async def _written(self, digests: Sequence[_Digest], now_ms: int) -> list[_Digest]:
        """The same, each of them in the log."""
        new = [digest for digest in digests if not digest.notification_id]
        outgoing = [
            digest_requests.record(self._topics, digest.window.digest, _in_order(digest.members), now_ms)
            for digest in new
        ]
        placed = await self._publisher.publish(outgoing)
        if new and self._gap is not None:
            self._gap("after_digest")
        named = {}
        for digest, record, place in zip(new, outgoing, placed, strict=True):
            tenant = digest.window.tenant
            named[digest.window.digest] = self._entries.notification_id(tenant, record.topic, *place)
            metrics.DIGESTS.labels(digest.window.channel).inc()
        await self._marks.name([(digest.window, named[digest.window.digest]) for digest in new])
        return [one._replace(notification_id=one.notification_id or named[one.window.digest]) for one in digests]

    def _end(self, digest: _Digest, judged: _Judged, now_ms: int) -> None:
        for one in digest.members:
            judged.events.append((one.delivery, digest_requests.ended(one.delivery, digest.notification_id, now_ms)))
            judged.buried.append(one.thing)
            metrics.ENDED.labels(one.delivery.channel, EventKind.SUPPRESSED, Reason.IN_DIGEST).inc()


def _intents(members: Iterable[Found]) -> list[str]:
    return list(dict.fromkeys(one.delivery.intent for one in members))


def _is_digest(mark: Mark) -> bool:
    return mark.digest not in (digest_marks.WAITS, digest_marks.ALONE, digest_marks.CANCELLED)


def _in_order(members: Iterable[Found]) -> list[Member]:
    return digest_requests.in_order(Member(one.delivery, one.record.headers) for one in members)
