"""The reference between the sender and the bare loop: the bare loop with all that the guards ask of Redis and the log.

On the sender's own lane, with the sender's own commands, a hundred deliveries a trip, and the status events that they
make. Nothing is decided: no token, no lease that is looked after, no judge, no retry, no fallback, no metric; what a
guard says is only asserted, and a message that was sent is not looked at again after a crash. It shows what is left of
the bare loop when it makes these commands, whatever the sender's own code costs.
usage: python -m benchmarks.guarded_loop CONFIG URL
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import uvloop
from confluent_kafka import Consumer, TopicPartition

from benchmarks.bare_loop import CONNECTIONS, CONSUMER, QUEUE, TEXT, TIMEOUT_S
from consumers import claims, verdicts
from consumers.caps import CapRules, RedisCaps
from consumers.claims import ClaimOptions, RedisClaims, VerdictClass
from consumers.guarding import Guards
from consumers.lookalikes import RedisLookalikes
from consumers.loop.outbox import EVENTS_A_BATCH
from consumers.providers.http_pool import HttpPool, PoolOptions
from consumers.sending import Room, Sending
from consumers.verdicts import Announcer, Numbers, Verdict
from deploy import catalogue, ready, redis_client
from deploy import settings as settings_file
from deploy.redis_trips import RedisTrips
from deploy.running import COLLECT_EVERY
from producers.publisher import KafkaPublisher, PublisherOptions
from schemas import codec, keys, timeline
from schemas.clock import SystemClock
from schemas.messages import Channel, Delivery, EventKind, Priority, StatusBatch, StatusEvent
from schemas.policies import read_policies
from schemas.records import Answer, Outgoing, Record
from schemas.trips import Epoch
from streams.recipients import RedisProfiles, RedisSuppressions

A_TRIP = 100
AT_ONCE = 4
"""Trips of deliveries on their way in, so that nobody waits for Redis."""
SETTLE_S, EVENTS_S = 0.005, 0.2
"""How long verdicts, and events, wait for others: as the sender's options have it for bulk."""
WAIT_S = 0.05
_Sent = tuple[Sending, Verdict]


class Loop:
    """One consumer, one pool, one connection pool to Redis, one producer."""

    def __init__(self, config: Path, url: str) -> None:
        settings = settings_file.load(config, {})
        topics = catalogue.topics_of(settings)
        epoch, clock = Epoch(), SystemClock()
        self._trips = RedisTrips(redis_client.connect(settings.redis.url, epoch), "bench")
        self._claims = RedisClaims(random.Random(1), ClaimOptions())
        self._profiles = RedisProfiles(self._trips, epoch)
        self._suppressions = RedisSuppressions(self._trips, epoch)
        self._ids = keys.Ids(b"bench")
        self._policies = read_policies(settings.templates.path)
        self._guards = Guards(RedisCaps(), RedisLookalikes(), CapRules({}, {}), _everything, self._ids, clock)
        self._announcer = Announcer(topics, _never_parked)
        self._clock = clock
        self._status_topic = topics.status
        self._publisher = KafkaPublisher(settings.kafka.client(), PublisherOptions(linger_ms=20))
        self._pool = HttpPool(url, PoolOptions(max_connections=CONNECTIONS))
        self._lane = topics.lane(Channel.PUSH, Priority.BULK)
        self._consumer = Consumer(
            {**CONSUMER, "bootstrap.servers": settings.kafka.bootstrap, "group.id": f"{self._lane}-guarded-loop"}
        )
        self._queue: asyncio.Queue[Sending] = asyncio.Queue(QUEUE)
        self._room = Room(QUEUE)
        self._coming = asyncio.Semaphore(AT_ONCE)
        self._sent: list[_Sent] = []
        self._told: list[_Sent] = []

    async def run(self) -> None:
        """Until it is ended."""
        self._consumer.subscribe([self._lane])
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._send_all())
            group.create_task(self._settle_all())
            group.create_task(self._tell_all())
            await self._read_all(group)

    async def _read_all(self, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._coming.acquire()
            found = await loop.run_in_executor(None, self._consumer.consume, A_TRIP, WAIT_S)
            group.create_task(self._take_in([self._sending(message) for message in found]))

    def _sending(self, message: Any) -> Sending:
        delivery = codec.decode(message.value(), Delivery)
        record = Record(
            message.topic(), message.partition(), message.offset(), message.key(), b"", (), message.timestamp()[1]
        )
        return Sending(
            record, _nobody, self._room, delivery, claims.bid_for(delivery), self._policies.get(delivery.template)
        )

    async def _take_in(self, batch: Sequence[Sending]) -> None:
        """Trips A and B, then whoever sends."""
        try:
            if batch:
                await self._look(batch)
                await self._claim(batch)
                for sending in batch:
                    await self._queue.put(sending)
        finally:
            self._coming.release()

    async def _look(self, batch: Sequence[Sending]) -> None:
        trip = self._trips.begin()
        self._claims.ask_now(trip)
        for sending in batch:
            self._claims.ask_seen(trip, sending.bid)
            self._profiles.ask(trip, sending.delivery.tenant, sending.delivery.user_id)
        now, *replies = await trip.execute()
        self._now_ms = self._claims.read_now(now)
        for sending, seen, profile in zip(batch, replies[::2], replies[1::2], strict=True):
            assert self._claims.read_seen(seen) == (None, False)
            known = self._profiles.read(profile)
            sending.address = next(device.token for device in known.devices if device.id == sending.delivery.device)

    async def _claim(self, batch: Sequence[Sending]) -> None:
        trip, asked = self._trips.begin(), 0
        for sending in batch:
            delivery, bid = sending.delivery, sending.bid
            sending.claim = self._claims.ask_first(trip, bid, self._now_ms)
            self._claims.ask_version(trip, bid)
            self._claims.ask_cancelled(trip, bid)
            self._suppressions.ask(trip, delivery.tenant, delivery.channel, sending.address)
            asked = 4 + self._guards.ask(trip, sending, sending.claim.token)
        replies = await trip.execute()
        for at, sending in enumerate(batch):
            claim, _, cancelled, cause, *guards = replies[at * asked : (at + 1) * asked]
            assert self._claims.read_first(claim) is None
            assert not self._claims.read_cancelled(cancelled)
            assert not self._suppressions.read(cause)
            assert self._guards.found(sending, guards) is None

    async def _send_all(self) -> None:
        while True:
            sending = await self._queue.get()
            delivery, key = sending.delivery, sending.bid.delivery_key
            values = orjson.loads(delivery.params)
            reference = keys.Reference(
                delivery.tenant, keys.Address(delivery.row, delivery.slot), delivery.index, delivery.generation, 1
            )
            body = {
                "delivery_key": key,
                "notification_id": sending.named(self._ids),
                "reference": self._ids.reference(reference),
                "to": sending.address,
                "text": TEXT.render(name=values["name"], order=values["order"]),
            }
            headers = b"Content-Type: application/json\r\nIdempotency-Key: " + key.encode() + b"\r\n"
            answer = await self._pool.post(headers, orjson.dumps(body), TIMEOUT_S)
            if answer.status != 200:
                raise RuntimeError(f"answered {answer.status}")
            verdict = Verdict(
                EventKind.SENT, self._clock.now_ms(), provider="gateway", provider_id="sim-00000001", called=True
            )
            self._sent.append((sending, verdict))

    async def _settle_all(self) -> None:
        """What was sent lately: its verdicts in one trip; then its events wait to be written."""
        while True:
            await asyncio.sleep(SETTLE_S)
            while self._sent:
                batch, self._sent = self._sent[: 2 * A_TRIP], self._sent[2 * A_TRIP :]
                await self._settle(batch)
                self._told += batch

    async def _settle(self, batch: Sequence[_Sent]) -> None:
        trip = self._trips.begin()
        for sending, verdict in batch:
            line = timeline.pack(self._line(sending, verdict))
            mine, detail = sending.held_claim(), verdicts.pack(verdict)
            self._claims.ask_settle(trip, sending.bid, mine, VerdictClass.SENT, detail, line)
        for sending, verdict in batch:
            self._guards.ask_settled(trip, sending, sending.held_claim().token, verdict)
        for reply in (await trip.execute())[: len(batch)]:
            assert self._claims.read_settle(reply) is claims.Settled.STORED

    def _line(self, sending: Sending, verdict: Verdict) -> timeline.Entry:
        delivery = sending.delivery
        device = keys.device_hash(delivery.device)
        name = sending.named(self._ids)
        return timeline.Entry(verdict.at_ms, name, delivery.channel, device, delivery.template, verdict.kind)

    async def _tell_all(self) -> None:
        """Events of some moments in one write, then the claims learn of it, then the places are committed."""
        while True:
            await asyncio.sleep(EVENTS_S)
            batch, self._told = self._told, []
            if batch:
                await self._publisher.publish(self._events(batch))
                trip = self._trips.begin()
                for sending, _ in batch:
                    self._claims.ask_published(trip, sending.bid, sending.held_claim().token)
                await trip.execute()
                ends = {sending.record.partition: sending.record.offset + 1 for sending, _ in batch}
                places = [TopicPartition(self._lane, number, end) for number, end in ends.items()]
                self._consumer.commit(offsets=places, asynchronous=True)

    def _events(self, batch: Sequence[_Sent]) -> list[Outgoing]:
        rows: defaultdict[tuple[str, str], list[StatusEvent]] = defaultdict(list)
        for sending, verdict in batch:
            _, events = self._announcer.announce(sending.record, sending.delivery, verdict, Numbers(1))
            for event in events:
                rows[event.tenant, event.row].append(event.event)
        outgoing = []
        for (tenant, row), found in rows.items():
            for first in range(0, len(found), EVENTS_A_BATCH):
                status = StatusBatch(tenant, row, tuple(found[first : first + EVENTS_A_BATCH]))
                outgoing.append(Outgoing(self._status_topic, keys.row_key(tenant, row).encode(), codec.encode(status)))
        return outgoing


def _everything(template: str) -> frozenset[str] | None:
    """What a template shows: whatever it is given."""
    return None


def _nobody(record: Record, answer: Answer) -> None:
    """Nobody waits for an answer."""


def _never_parked(record: Record, reason: str, text: str) -> Outgoing:
    raise AssertionError("what was sent is not parked")


async def main(config: str, url: str) -> None:
    ready.tell()
    await Loop(Path(config), url).run()


if __name__ == "__main__":
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)  # as every role of Tidings does
    uvloop.run(main(*sys.argv[1:]))
