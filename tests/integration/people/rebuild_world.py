"""A log, the stores, and the process that keeps the stores like the log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from redis.asyncio import Redis

from deploy.redis_news import RedisLine
from deploy.redis_trips import RedisTrips
from schemas import codec, facets, keys
from schemas.clock import SystemClock
from schemas.messages import FacetKind, InboxMessage, NotificationCancelled, RecipientFacet, Suppression
from schemas.records import Answer, Done, LogReader, Outgoing, Record
from schemas.topics import Topics
from schemas.trips import Epoch
from streams.inbox import RedisInbox
from streams.rebuild import Rebuild, RebuildOptions
from streams.recipients import RedisProfiles, RedisSuppressions
from streams.recipients_apply import Applier
from streams.recipients_route import RouteRecipients
from tests.doubles.memory_log import MemoryLog
from tests.integration.people.commands import run

TOPICS = Topics()
PARTITIONS = 2
HASHED = keys.address_hash("email", "a@example.org")


class EventfulLog:
    """The log, and a command that somebody sends to Redis while its fifth record is read."""

    def __init__(self, log: MemoryLog, redis: Redis, *command: str) -> None:
        self._log, self._redis, self._command, self._left = log, redis, command, 5
        self.read, self.offsets, self.offsets_of = log.read, log.offsets, log.offsets_of

    async def read_range(self, topic: str, partition: int, first: int, last: int) -> AsyncIterator[Record]:
        async for record in self._log.read_range(topic, partition, first, last):
            self._left -= 1
            if not self._left:
                await run(self._redis, *self._command)
            yield record


class World:
    """A log, the stores, and the process that keeps the stores like the log."""

    def __init__(self, redis: Redis, epoch: Epoch) -> None:
        self.redis, self.epoch, self.trips = redis, epoch, RedisTrips(redis, "rebuild")
        self.log = MemoryLog(PARTITIONS)
        self.profiles = RedisProfiles(self.trips, epoch)
        self.suppressions = RedisSuppressions(self.trips, epoch)
        self.inbox = RedisInbox(self.trips, partial(RedisLine, redis, "inbox"), epoch, SystemClock())
        self.facets = facets.FacetTopic(TOPICS.recipients, PARTITIONS)
        self.applier = Applier(
            self.trips, self.profiles, self.suppressions, self.inbox, self.facets, TOPICS, SystemClock()
        )
        self.rebuild = self.rebuilder("one")
        self.handler = RouteRecipients(self.applier, self.rebuild)

    def rebuilder(self, token: str, reader: LogReader | None = None, log_id: str = "log 1") -> Rebuild:
        counts = dict.fromkeys(self.applier.topics, PARTITIONS)
        options = RebuildOptions(batch=2, again=0)
        return Rebuild(self.trips, self.epoch, self.applier, reader or self.log, counts, log_id, token, options)

    async def write(self, *outgoing: Outgoing) -> None:
        """Into the log and through the handler."""
        before = len(self.log.records(*self.applier.topics))
        await self.log.publish(outgoing)
        assert len(self.log.records(*self.applier.topics)) == before + len(outgoing)
        written = {(record.topic, record.key): record for record in self.log.records(*self.applier.topics)}
        await self.hand_in(*[written[record.topic, record.key] for record in outgoing])

    async def hand_in(self, *records: Record) -> list[Done]:
        answers: list[Done] = []

        def answer(record: Record, given: Answer) -> None:
            assert isinstance(given, Done)
            answers.append(given)

        await self.handler.handle(records, answer)
        return answers

    def opt_out(self, user_id: str) -> Outgoing:
        facet = RecipientFacet("t", user_id, FacetKind.OPT_OUT, 1, channel="email", kind="*")
        return self.facets.record("t", user_id, facets.name_of(facet), facet)

    def user(self, user_id: str, email: str) -> Outgoing:
        facet = RecipientFacet("t", user_id, FacetKind.USER, 1, email=email)
        return self.facets.record("t", user_id, facets.USER, facet)

    def suppression(self) -> Outgoing:
        value = Suppression("t", "email", HASHED, "bounced", "mail", 1)
        return Outgoing(TOPICS.suppressions, keys.suppression_key("t", "email", HASHED).encode(), codec.encode(value))

    def cancel(self) -> Outgoing:
        value = NotificationCancelled("t", "n1", "t/e/1", "u1", SystemClock().now_ms())
        return Outgoing(TOPICS.control, b"n1", codec.encode(value))

    def message(self) -> Outgoing:
        value = InboxMessage("t", "u1", "n1", "welcome", "Hi", "Hello", "", SystemClock().now_ms(), 0)
        return Outgoing(TOPICS.inbox, keys.inbox_key("t", "u1", "n1").encode(), codec.encode(value))
