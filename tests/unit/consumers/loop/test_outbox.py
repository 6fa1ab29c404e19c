"""Publishing of answers: nothing is let go before the log has everything it led to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from consumers.loop.outbox import Entry, Outbox, OutboxOptions
from consumers.loop.tracker import Tracker
from retry_topics.dead_letters import DeadLetters
from schemas import codec, topics
from schemas.errors import Transient
from schemas.messages import EventKind, StatusBatch, StatusEvent
from schemas.records import Done, Outgoing, Placed, Record, RowEvent
from schemas.topics import Topics
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_log import MemoryLog

BIG = b"x" * (topics.MAX_MESSAGE_BYTES + 1)


class Office:
    """An outbox over a log in memory, and what became of its entries."""

    def __init__(self, linger_s: float = 0.0, events_linger_s: float = 0.0) -> None:
        self.log = MemoryLog(1)
        self.finished: list[Entry] = []
        self.gaps: list[str] = []
        self.broken: list[BaseException] = []
        self.done = asyncio.Event()
        self.written = asyncio.Event()
        park = DeadLetters(Topics(), ManualClock()).parked
        options = OutboxOptions("delivery.status", linger_s, events_linger_s or linger_s, retry_first_s=0.001)
        self.outbox = Outbox(
            self, options, "group", park, Random(1), self.gaps.append, self._finish, self.broken.append
        )
        self.order: list[str] = []
        self.refusals = 0
        self.finished_at_refusals: list[int] = []

    async def publish(self, outgoing: Sequence[Outgoing]) -> list[Placed]:
        if self.refusals:
            self.finished_at_refusals.append(len(self.finished))
            self.refusals -= 1
            raise Transient("away")
        placed = await self.log.publish(outgoing)
        self.order += [one.topic for one in outgoing]
        self.written.set()
        return placed

    def put(self, *answers: Done) -> None:
        self.expected = len(answers)
        for offset, done in enumerate(answers):
            self.outbox.put(Entry(Tracker("push.bulk", 0, 0), Record("push.bulk", 0, offset, b"k", b"v", (), 0), done))

    async def all_finished(self) -> list[int]:
        async with asyncio.timeout(5):
            await self.done.wait()
        return [entry.record.offset for entry in self.finished]

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.log.records(topic)]

    def _finish(self, entries: Sequence[Entry]) -> None:
        self.finished += entries
        if len(self.finished) == self.expected:
            self.done.set()


def said(row: str, slot: int) -> RowEvent:
    return RowEvent("default", row, StatusEvent(slot, EventKind.SENT, 1, "push"))


async def test_events_of_one_row_go_out_together_at_most_two_hundred_in_a_record() -> None:
    office = Office(linger_s=0.001)
    office.put(*(Done(events=(said("c.x.1", slot), said("c.x.2", slot))) for slot in range(250)))
    await office.all_finished()
    batches = [codec.decode(value, StatusBatch) for value in office.values("delivery.status")]
    assert [(batch.row, len(batch.events)) for batch in batches] == [
        ("c.x.1", 200),
        ("c.x.1", 50),
        ("c.x.2", 200),
        ("c.x.2", 50),
    ]
    assert {record.key for record in office.log.records("delivery.status")} == {b"default/c.x.1", b"default/c.x.2"}


async def test_what_somebody_waits_for_goes_out_at_once_and_its_record_is_kept_until_its_status_events_followed() -> (
    None
):
    office = Office(events_linger_s=60.0)
    office.put(
        Done(publish=(Outgoing("out", b"k", b"1"),), events=(said("c.x.1", 1),)), Done(events=(said("c.x.1", 2),))
    )
    async with asyncio.timeout(5):
        await office.written.wait()
    await asyncio.sleep(0.01)  # for more to be written, which must not be
    assert (office.values("delivery.status"), office.finished) == ([], [])
    office.outbox.flush()
    assert sorted(await office.all_finished()) == [0, 1]
    (batch,) = (codec.decode(value, StatusBatch) for value in office.values("delivery.status"))
    assert [event.slot for event in batch.events] == [2, 1]


async def test_what_carries_a_delivery_on_is_not_in_the_log_before_what_is_said_of_its_last_call() -> None:
    """Whoever claims the next record makes this one stale: a worker that died in between would have said nothing."""
    office = Office()
    office.put(Done((Outgoing("push.retry.10s", b"k", b"1"),), (said("c.x.1", 1),), events_first=True))
    assert await office.all_finished() == [0]
    assert office.order == ["delivery.status", "push.retry.10s"]


async def test_a_retry_that_is_too_large_is_parked_and_holds_up_nobody_else() -> None:
    office = Office(linger_s=0.001)
    for_each = ((), (Outgoing("push.retry.10s", b"k", BIG),), (Outgoing("push.retry.10s", b"k", b"3"),))
    office.put(*(Done(one, (said("c.x.1", n),), events_first=bool(one)) for n, one in enumerate(for_each)))
    assert await office.all_finished() == [0, 1, 2]
    assert office.values("push.retry.10s") == [b"3"]
    (letter,) = office.log.records("push.dlq")
    assert letter.header("tid-first-offset") == b"1"
    assert office.order == ["delivery.status", "push.dlq", "push.retry.10s"]


async def test_acked_is_called_after_the_log_has_it_and_before_the_record_is_let_go() -> None:
    office = Office()
    seen: list[tuple[int, int]] = []
    done = Done(
        publish=(Outgoing("out", b"k", b"1"),),
        acked=lambda: seen.append((len(office.values("out")), len(office.finished))),
    )
    office.put(done)
    await office.all_finished()
    assert seen == [(1, 0)]
    assert office.gaps == ["before_publish", "after_publish"]


async def test_a_log_that_is_away_is_tried_again_and_nothing_is_let_go_meanwhile() -> None:
    office = Office()
    office.refusals = 3
    office.put(Done(publish=(Outgoing("out", b"k", b"1"),)))
    assert await office.all_finished() == [0]
    assert office.values("out") == [b"1"]
    assert office.finished_at_refusals == [0, 0, 0]


async def test_one_oversize_answer_is_parked_and_its_neighbours_go_out() -> None:
    office = Office(linger_s=0.001)
    office.put(*(Done(publish=(Outgoing("out", b"k", value),)) for value in (b"1", BIG, b"3")))
    assert sorted(await office.all_finished()) == [0, 1, 2]
    assert office.values("out") == [b"1", b"3"]
    (letter,) = office.log.records("push.dlq")
    assert letter.value == b"v"
    assert letter.header("tid-error-class") == b"too_large"
    assert letter.header("tid-first-offset") == b"1"


async def test_an_event_that_cannot_be_written_parks_its_record_and_nothing_goes_out_twice() -> None:
    office = Office(linger_s=0.001)
    bad = RowEvent("default", "c.x.1", StatusEvent(2, EventKind.SENT, 1, "push", user_id="\ud800"))
    for_each = (said("c.x.1", 1), bad, said("c.x.1", 3))
    office.put(*(Done((Outgoing("out", b"k", b"%d" % n),), (event,)) for n, event in enumerate(for_each)))
    assert sorted(await office.all_finished()) == [0, 1, 2]
    assert office.values("out") == [b"0", b"1", b"2"]
    (letter,) = office.log.records("push.dlq")
    assert letter.header("tid-first-offset") == b"1"


async def test_an_acked_callback_that_raises_holds_nothing_up() -> None:
    office = Office()
    office.put(Done(publish=(Outgoing("out", b"k", b"1"),), acked=lambda: 1 // 0))  # type: ignore[arg-type]
    assert await office.all_finished() == [0]
