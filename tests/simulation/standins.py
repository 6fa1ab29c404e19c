"""What stands for Faust and for the leader's group: members of the log's groups, around the product's own rules.

Faust itself is tested with Kafka (`tests/integration`); what it promises is what these keep: records of a partition
in order, a commit only of what was acknowledged, tables restored from their changelog before anything is merged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from schemas import codec
from schemas.clock import Clock
from schemas.errors import Transient
from schemas.messages import LeaderRecord
from schemas.records import Publisher, Record
from schemas.topics import Topics
from streams.leader import KafkaLeadership
from streams.row_store import TOMBSTONE
from streams.status_flow import StatusFlow
from streams.status_rivals import Fence, Rivals
from tests.doubles.memory_groups import Committed, Membership, MemoryGroups, Place
from tests.doubles.memory_log import MemoryLog
from tests.doubles.memory_rows import MemoryRows

PAGES_IN_FLIGHT = 8
BATCH_RECORDS, BATCH_WITHIN_S = 500, 0.02
"""As in `streams/agents.py`."""
COMMIT_EVERY_S = 1.0
Joined = Callable[[Membership], None]
Pause = Callable[[], Awaitable[None]]


class GroupLeadership(KafkaLeadership):
    """The product's leadership with a membership in place of its thread."""

    def __init__(
        self,
        log: MemoryLog,
        groups: MemoryGroups,
        topics: Topics,
        instance: str,
        publisher: Publisher,
        clock: Clock,
        joined: Joined,
    ) -> None:
        self._topic = topics.leader
        self._group = topics.group("dispatch")
        self._instance = instance
        self._publisher = publisher
        self._clock = clock
        self._epoch: int | None = None
        self._owns = False
        self._claim: asyncio.Task[None] | None = None
        self._acquired = asyncio.Event()
        self.joined = asyncio.Event()
        self._log = log
        self._groups = groups
        self._told = joined

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._join()
        self._log.listen(self._topic, self._heard)

    def assigned(self, places: Sequence[Place]) -> None:
        self.joined.set()
        self._gained()

    def revoked(self, places: Sequence[Place]) -> None:
        self._lost()
        self._member.release(places)

    def lost(self, places: Sequence[Place]) -> None:
        self._lost()
        self._join()

    def _join(self) -> None:
        self._member = self._groups.join(self._group, [self._topic], self)
        self._told(self._member)

    def _heard(self, record: Record) -> None:
        instance = codec.decode(record.value, LeaderRecord).instance
        self._loop.call_later(0.002, self._seen, record.offset, instance, context=self._member.context)


class Pages:
    """`campaign.pages` as Faust's agent works them: several at once, acknowledged in order of their offsets."""

    def __init__(
        self,
        log: MemoryLog,
        groups: MemoryGroups,
        group: str,
        topic: str,
        work: Callable[[Record], Awaitable[None]],
        pause: Pause,
        joined: Joined,
    ) -> None:
        self._log = log
        self._groups = groups
        self._group = group
        self._topic = topic
        self._work = work
        self._pause = pause
        self._joined = joined
        self._news = asyncio.Event()
        self._lines: dict[Place, _Line] = {}
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Raises what no page may raise."""
        self._join()
        self._log.listen(self._topic, lambda _: self._news.set())
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._read()), loop.create_task(self._commit())]
        try:
            await self._failed
        finally:
            for task in tasks:
                task.cancel()

    def assigned(self, places: Sequence[Place]) -> None:
        for place in places:
            found = self._member.committed(place)
            self._lines[place] = _Line(found.offset if found else 0)
        self._news.set()

    def revoked(self, places: Sequence[Place]) -> None:
        self._commit_now()
        self._drop(places)
        self._member.release(places)

    def lost(self, places: Sequence[Place]) -> None:
        self._drop(places)
        self._join()

    def _join(self) -> None:
        self._member = self._groups.join(self._group, [self._topic], self)
        self._joined(self._member)

    def _drop(self, places: Sequence[Place]) -> None:
        for place in places:
            if (line := self._lines.pop(place, None)) is not None:
                line.drop()

    async def _read(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._pause()
            for place, line in list(self._lines.items()):
                room = PAGES_IN_FLIGHT - len(line.waiting)
                for record in self._log.kept(*place, line.next_offset, room):
                    line.begin(record, self._until_done(record), self._done)

    async def _until_done(self, record: Record) -> None:
        wait_s = 0.1
        while True:
            try:
                await self._work(record)
                return
            except Transient:
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, 5.0)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)
        for line in self._lines.values():
            line.acknowledge()
        self._news.set()

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_EVERY_S)
            self._commit_now()

    def _commit_now(self) -> None:
        self._member.commit({place: Committed(line.acked) for place, line in self._lines.items()})


class _Line:
    def __init__(self, start: int) -> None:
        self.next_offset = start
        self.acked = start
        self.waiting: deque[tuple[int, asyncio.Task[None]]] = deque()

    def begin(self, record: Record, work: Awaitable[None], done: Callable[[asyncio.Task[None]], None]) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        self.waiting.append((record.offset, task))
        self.next_offset = record.offset + 1
        task.add_done_callback(done)

    def acknowledge(self) -> None:
        waiting = self.waiting
        while waiting and waiting[0][1].done() and not waiting[0][1].cancelled() and not waiting[0][1].exception():
            self.acked = waiting.popleft()[0] + 1

    def drop(self) -> None:
        for _, task in self.waiting:
            task.cancel()


class StatusMember:
    """`delivery.status` as Faust's table agent works it: one batch after the other, rows restored beforehand."""

    def __init__(
        self,
        log: MemoryLog,
        groups: MemoryGroups,
        topics: Topics,
        flow: StatusFlow,
        rows: MemoryRows,
        rivals: Rivals,
        fence: Fence,
        instance: str,
        pause: Pause,
        joined: Joined,
    ) -> None:
        self._log = log
        self._groups = groups
        self._topics = topics
        self._flow = flow
        self._rows = rows
        self._rivals = rivals
        self._fence = fence
        self._instance = instance
        self._pause = pause
        self._joined = joined
        self._news = asyncio.Event()
        self._next: dict[int, int] = {}
        self._fresh: set[int] = set()
        self._leaving: set[int] = set()

    async def run(self) -> None:
        """Raises what ends the process."""
        self._join()
        self._log.listen(self._topics.status, self._heard)
        loop = asyncio.get_running_loop()
        beside = [loop.create_task(self._every_second()), loop.create_task(self._merge())]
        done, _ = await asyncio.wait(beside, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    def assigned(self, places: Sequence[Place]) -> None:
        self._fresh.update(partition for _, partition in places)
        self._news.set()

    def revoked(self, places: Sequence[Place]) -> None:
        self._leaving.update(partition for _, partition in places)
        self._news.set()

    def lost(self, places: Sequence[Place]) -> None:
        gone = {partition for _, partition in places}
        self._flow.revoked(gone)
        self._fresh -= gone
        self._leaving -= gone
        for partition in gone:
            self._next.pop(partition, None)
        self._join()

    def _join(self) -> None:
        self._member = self._groups.join(
            self._topics.group("status"), [self._topics.status], self, instance=self._instance
        )
        self._joined(self._member)

    def _heard(self, record: Record) -> None:
        if record.partition in self._next:
            self._news.set()

    async def _merge(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await asyncio.sleep(BATCH_WITHIN_S)
            await self._pause()
            if self._leaving:
                await self._give_up()
            if self._fresh:
                await self._take_over()
            records = [
                record
                for partition, at in sorted(self._next.items())
                for record in self._log.kept(self._topics.status, partition, at, BATCH_RECORDS)
            ]
            if records:
                await self._flow.work(records)
                for record in records:
                    if record.partition in self._next:
                        self._next[record.partition] = record.offset + 1
                if any(self._log.ends(self._topics.status, partition)[1] > at for partition, at in self._next.items()):
                    self._news.set()

    async def _give_up(self) -> None:
        leaving, self._leaving = self._leaving, set()
        self._fence.pass_through()
        await self._rivals.check()
        self._commit_now()
        self._flow.revoked(leaving)
        for partition in leaving:
            self._next.pop(partition, None)
        self._fresh -= leaving
        self._member.release([(self._topics.status, partition) for partition in leaving])
        await self._flow.assigned(dict(self._next))

    async def _take_over(self) -> None:
        fresh, self._fresh = self._fresh, set()
        for partition in sorted(fresh):
            self._rows.open(partition)
            await self._pause()
            self._restore(partition)
            found = self._member.committed((self._topics.status, partition))
            self._next[partition] = found.offset if found else 0
        await self._flow.assigned(dict(self._next))

    def _restore(self, partition: int) -> None:
        reached = self._rows.changelog_offset(partition)
        records = self._log.kept(self._topics.status_changelog, partition, reached + 1, 1_000_000)
        if records:
            rows = {record.key: record.value if record.value is not None else TOMBSTONE for record in records}
            self._rows.write(partition, {key: row for key, row in rows.items() if key}, records[-1].offset)

    async def _every_second(self) -> None:
        while True:
            self._fence.pass_through()
            await self._flow.publish_progress()
            await self._rivals.check()
            self._commit_now()
            await asyncio.sleep(COMMIT_EVERY_S)

    def _commit_now(self) -> None:
        offsets = {(self._topics.status, partition): Committed(at) for partition, at in self._next.items()}
        self._member.commit(offsets)
