"""What becomes of records whose handler raises."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from consumers.loop.batches import Batch, Caller
from consumers.loop.tracker import Tracker
from retry_topics.dead_letters import DeadLetters
from schemas.errors import Poison, Transient
from schemas.records import Answer, AnswerTo, Defer, Done, Record
from schemas.topics import Topics
from tests.doubles.manual_clock import START_MS, ManualClock


class Moody:
    """Raises what is in `moods` for these offsets; answers the rest Done. Remembers its calls."""

    def __init__(self, moods: dict[int, Exception]) -> None:
        self.moods = moods
        self.calls: list[list[int]] = []

    async def handle(self, records: Sequence[Record], answer: AnswerTo) -> None:
        self.calls.append([record.offset for record in records])
        for record in records:
            if record.offset in self.moods:
                raise self.moods[record.offset]
            answer(record, Done())


class Desk:
    """A caller with three records."""

    def __init__(self, moods: dict[int, Exception]) -> None:
        self.handler = Moody(moods)
        self.answers: dict[int, Answer] = {}
        self.tracker = Tracker("push.bulk", 0, 0)
        park = DeadLetters(Topics(), ManualClock()).parked
        self.caller = Caller(self.handler, "group", park, Random(1), ManualClock(), 30.0)

    async def call(self, *offsets: int) -> None:
        records = [Record("push.bulk", 0, offset, None, b"v", (), 0) for offset in offsets]
        batch = Batch([(self.tracker, record) for record in records], self._note)
        await self.caller.call(batch)

    def parked(self, offset: int) -> dict[str, bytes]:
        answer = self.answers[offset]
        assert isinstance(answer, Done)
        return dict(answer.publish[0].headers)

    def _note(self, tracker: Tracker, record: Record, answer: Answer) -> None:
        assert record.offset not in self.answers
        self.answers[record.offset] = answer


async def test_an_unwell_world_puts_off_what_is_not_answered_yet_and_parks_nothing() -> None:
    desk = Desk({1: Transient("redis is away")})
    await desk.call(0, 1, 2)
    assert desk.answers[0] == Done()
    assert desk.answers[1] == desk.answers[2]
    assert isinstance(desk.answers[1], Defer)


async def test_the_pauses_grow_up_to_their_bound() -> None:
    desk = Desk({0: Transient("away")})
    pauses = []
    for _ in range(12):
        await desk.call(0)
        answer = desk.answers.pop(0)
        assert isinstance(answer, Defer)
        pauses.append(answer.until_ms - START_MS)
    assert all(100 * 2**n <= pause <= 200 * 2**n for n, pause in enumerate(pauses[:7]))
    assert all(15_000 <= pause <= 30_000 for pause in pauses[8:])


async def test_an_unexpected_error_parks_the_record_that_causes_it_and_no_other() -> None:
    desk = Desk({1: KeyError("someone@example.org")})
    await desk.call(0, 1, 2)
    assert desk.handler.calls == [[0, 1, 2], [1], [2]]
    assert (desk.answers[0], desk.answers[2]) == (Done(), Done())
    headers = desk.parked(1)
    assert headers["tid-error-class"] == b"internal_error"
    assert headers["tid-error-text"].startswith(b"KeyError in handle (test_batches.py:")
    assert b"example.org" not in headers["tid-error-text"]


async def test_poison_is_parked_under_its_own_name() -> None:
    desk = Desk({0: Poison("no_key", "an event without event_id")})
    await desk.call(0)
    assert desk.parked(0)["tid-error-class"] == b"no_key"


async def test_an_answer_given_twice_counts_once() -> None:
    desk = Desk({})
    record = Record("push.bulk", 0, 0, None, b"v", (), 0)
    batch = Batch([(desk.tracker, record)], desk._note)
    batch.answer(record, Done())
    batch.answer(record, Defer(1))
    assert desk.answers == {0: Done()}
