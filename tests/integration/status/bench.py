"""The topics of one status group, its processes, and what readers of its topics know."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import aiohttp
from redis.asyncio import Redis

from deploy import children
from deploy.redis_trips import RedisTrips
from producers.publisher import KafkaPublisher
from schemas import codec, keys
from schemas.messages import CampaignProgress, DeliveryState, StatusBatch, StatusEvent
from schemas.records import Outgoing, Record
from schemas.topics import Topics, TopicSpec
from streams.log_reader import KafkaLogReader
from streams.status_reads import OwnerReads

DEADLINE_S = 90.0
LOOK_S = 0.25
T = TypeVar("T")


@dataclass
class Bench:
    """folder: below it each process has one of its own."""

    bootstrap: str
    redis_url: str
    topics: Topics
    partitions: int
    folder: Path
    publisher: KafkaPublisher
    reader: KafkaLogReader
    redis: Redis
    http: aiohttp.ClientSession
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def reads(self) -> OwnerReads:
        return OwnerReads(
            self.http, RedisTrips(self.redis, "status owner"), self.topics.group("status"), self.partitions
        )

    async def start(self, name: str = "one", instance: str = "") -> asyncio.subprocess.Process:
        """A status process with a folder of this name."""
        process = await children.begin(
            sys.executable,
            "-m",
            "tests.integration.status.status_main",
            self.bootstrap,
            self.redis_url,
            self.topics.prefix,
            str(self.folder / name),
            str(self.partitions),
            instance,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.processes.append(process)
        return process

    async def kill(self, process: asyncio.subprocess.Process) -> None:
        process.send_signal(signal.SIGKILL)
        await process.communicate()

    async def stop(self, process: asyncio.subprocess.Process) -> str:
        """Asks it to stop; what it printed as errors."""
        process.terminate()
        _, errors = await process.communicate()
        return errors.decode()

    async def write(self, batches: Iterable[StatusBatch]) -> None:
        outgoing = [
            Outgoing(self.topics.status, keys.row_key(b.tenant, b.row).encode(), codec.encode(b)) for b in batches
        ]
        await self.publisher.publish(outgoing)

    async def records(self, topic: str) -> list[Record]:
        """Everything that lies in the topic."""
        found: list[Record] = []
        for partition in range(self.partitions if topic != self.topics.internal_dlq else 1):
            start, end = await self.reader.offsets(topic, partition)
            if end > start:
                found += [record async for record in self.reader.read_range(topic, partition, start, end - 1)]
        return found

    async def written(self, topic: str) -> int:
        """How many records were ever written to the topic."""
        ends = [(await self.reader.offsets(topic, partition))[1] for partition in range(self.partitions)]
        return sum(ends)

    async def counts(self, campaign_id: str) -> CampaignProgress:
        """The campaign's counts as a reader sums them: the highest version of each partition."""
        newest: dict[int, CampaignProgress] = {}
        for record in await self.records(self.topics.progress):
            message = codec.decode(record.value, CampaignProgress)
            known = newest.get(message.partition)
            if message.campaign_id == campaign_id and (known is None or known.version <= message.version):
                newest[message.partition] = message
        return total(campaign_id, newest.values())

    async def public(self) -> dict[str, DeliveryState]:
        """Delivery id -> its state, as a reader knows it that keeps the highest version."""
        newest: dict[str, DeliveryState] = {}
        for record in await self.records(self.topics.state):
            state = codec.decode(record.value, DeliveryState)
            known = newest.get(state.delivery_id)
            if known is None or known.version <= state.version:
                newest[state.delivery_id] = state
        return newest

    async def until(self, look: Callable[[], object], what: str, within_s: float = DEADLINE_S) -> None:
        """Waits for something to become true; says what was waited for when it does not."""
        async with asyncio.timeout(within_s):
            while True:
                found = look()
                if asyncio.iscoroutine(found):
                    found = await found
                if found:
                    return
                for process in self.processes:
                    if process.returncode not in (None, 0, -9):
                        _, errors = await process.communicate()
                        raise AssertionError(f"a process ended while waiting for {what}:\n{errors.decode()[-3000:]}")
                await asyncio.sleep(LOOK_S)

    async def until_finished(self, campaign_id: str, expected: int) -> CampaignProgress:
        async def finished() -> bool:
            return (await self.counts(campaign_id)).finished >= expected

        await self.until(finished, f"{expected} finished recipients of {campaign_id}")
        return await self.counts(campaign_id)


@contextlib.asynccontextmanager
async def opened(bootstrap: str, redis_url: str, topics: Topics, partitions: int, folder: Path) -> AsyncIterator[Bench]:
    """The topics exist already. Its processes are ended on the way out."""
    kafka = {"bootstrap.servers": bootstrap}
    redis, publisher, reader = Redis.from_url(redis_url), KafkaPublisher(kafka), KafkaLogReader(kafka)
    async with aiohttp.ClientSession() as http:
        bench = Bench(bootstrap, redis_url, topics, partitions, folder, publisher, reader, redis, http)
        yield bench
        for process in bench.processes:
            if process.returncode is None:
                await bench.kill(process)
    await reader.close()
    await publisher.close()
    await redis.aclose()


def specs(topics: Topics) -> list[TopicSpec]:
    """What a status group needs; the topic of dead letters comes last."""
    found = {spec.name: spec for spec in topics.specs()}
    names = (topics.status, topics.status_changelog, topics.state, topics.progress, topics.internal_dlq)
    return [found[name] for name in names]


def total(campaign_id: str, parts: Iterable[CampaignProgress]) -> CampaignProgress:
    found = list(parts)
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for part in found:
        outcomes.update(part.outcomes)
        reasons.update(part.reasons)
    return CampaignProgress(
        "default",
        campaign_id,
        -1,
        sum(part.version for part in found),
        sum(part.planned for part in found),
        sum(part.finished for part in found),
        sum(part.sent for part in found),
        sum(part.delivered for part in found),
        dict(outcomes),
        dict(reasons),
        sum(part.possible_duplicates for part in found),
    )


def batch(row: str, events: Iterable[StatusEvent]) -> StatusBatch:
    return StatusBatch("default", row, tuple(events))
