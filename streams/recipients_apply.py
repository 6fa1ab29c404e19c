"""From records of `recipients`, `suppressions`, `inbox` and `notification.control` to Redis, one round trip a batch.

Used by `route recipients` for what is new and by `rebuild` for everything there is. Applying a record twice,
late or beside the API changes nothing: every store keeps what is newer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from schemas import codec, facets, keys, metrics
from schemas.clock import Clock
from schemas.errors import Poison
from schemas.messages import InboxMessage, NotificationCancelled, RecipientFacet, Suppression
from schemas.reasons import ParkReason
from schemas.records import Outgoing, Record
from schemas.stores import FacetWrite
from schemas.topics import Topics
from schemas.trips import Trip, Trips, asked
from streams.inbox import RedisInbox
from streams.recipients import RedisProfiles, RedisSuppressions, removed_names

CANCEL_KEPT_MS = 30 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Applied:
    """bad: records that can never be applied. follow_up: what an erasure leaves to be removed from the log."""

    good: tuple[Record, ...]
    bad: tuple[tuple[Record, Poison], ...]
    follow_up: tuple[Outgoing, ...]


@dataclass(slots=True)
class _Batch:
    """Commands in the making; facets are grouped by user, so that each user costs one script."""

    trip: Trip
    writes: dict[tuple[str, str], list[FacetWrite]]


class Applier:
    """Writes batches of records to the stores."""

    def __init__(
        self,
        trips: Trips,
        profiles: RedisProfiles,
        suppressions: RedisSuppressions,
        inbox: RedisInbox,
        facet_topic: facets.FacetTopic,
        topics: Topics,
        clock: Clock,
    ) -> None:
        self._trips = trips
        self._profiles = profiles
        self._suppressions = suppressions
        self._inbox = inbox
        self._facet_topic = facet_topic
        self._clock = clock
        self._by_topic: dict[str, Callable[[_Batch, Record], None]] = {
            topics.recipients: self._facet,
            topics.suppressions: self._suppression,
            topics.inbox: self._message,
            topics.control: self._cancel,
        }
        self.topics = tuple(self._by_topic)

    async def apply(self, records: Sequence[Record]) -> Applied:
        """Applies what can be applied. Raises StoreDown: nothing, some or all of it was applied, do it again."""
        good: list[Record] = []
        bad: list[tuple[Record, Poison]] = []
        writes: dict[tuple[str, str], list[FacetWrite]] = {}

        def ask(trip: Trip) -> None:
            batch = _Batch(trip, writes)
            for record in records:
                try:
                    self._by_topic[record.topic](batch, record)
                    good.append(record)
                except Poison as poison:
                    bad.append((record, poison))
            for (tenant, user_id), facets_ in writes.items():
                self._profiles.write(trip, tenant, user_id, facets_)

        removed = self._removed(writes, await asked(self._trips, ask))
        metrics.FACETS_APPLIED.labels("applied").inc(len(good))
        metrics.FACETS_APPLIED.labels("unreadable").inc(len(bad))
        return Applied(tuple(good), tuple(bad), removed)

    def _removed(self, owners: Collection[tuple[str, str]], replies: Sequence[Any]) -> tuple[Outgoing, ...]:
        """What erasures removed: the replies to the users' scripts, which come last, tell."""
        replies_of_users = replies[len(replies) - len(owners) :]
        return tuple(
            self._facet_topic.record(tenant, user_id, name, None)
            for (tenant, user_id), reply in zip(owners, replies_of_users, strict=True)
            for name in removed_names(reply)
        )

    def _facet(self, batch: _Batch, record: Record) -> None:
        tenant, user_id, name = facets.owner_of(record.key)
        facet = None if record.value is None else codec.decode(record.value, RecipientFacet)
        if facet is not None and facets.name_of(facet) != name:
            raise Poison(ParkReason.UNDECODABLE, f"the key names the facet {name}, the value is another")
        write = FacetWrite(name, record.offset, facet)
        batch.writes.setdefault((tenant, user_id), []).append(write)

    def _suppression(self, batch: _Batch, record: Record) -> None:
        tenant, channel, hashed = _parsed(keys.suppression_of_key, record)
        cause = "" if record.value is None else codec.decode(record.value, Suppression).cause
        self._suppressions.write(batch.trip, tenant, channel, hashed, record.offset, cause)

    def _message(self, batch: _Batch, record: Record) -> None:
        if record.value is not None:
            self._inbox.write(batch.trip, codec.decode(record.value, InboxMessage))
            return
        self._inbox.remove(batch.trip, *_parsed(keys.inbox_of_key, record))

    def _cancel(self, batch: _Batch, record: Record) -> None:
        if record.value is None:
            return
        cancel = codec.decode(record.value, NotificationCancelled)
        left_ms = cancel.at_ms + CANCEL_KEPT_MS - self._clock.now_ms()
        if left_ms > 0:
            key = keys.redis_cancel(cancel.tenant, cancel.user_id, cancel.intent)
            batch.trip.execute_command("SET", key, 1, "PX", left_ms)


def _parsed(parse: Callable[[bytes | None], tuple[str, str, str]], record: Record) -> tuple[str, str, str]:
    try:
        return parse(record.key)
    except ValueError:
        raise Poison(ParkReason.UNDECODABLE, f"the key is not one of {record.topic}") from None
