"""The order in which a verdict is stored and told."""

from __future__ import annotations

from pathlib import Path

from schemas.records import Answer, Record
from tests.doubles import deliveries
from tests.doubles.sender_bench import SenderBench, shown


async def test_what_a_call_came_to_is_in_the_claim_before_anybody_is_told(tmp_path: Path) -> None:
    """Else a crash in between leaves a record done and its claim open, and a copy of the record is sent."""
    bench = SenderBench(tmp_path)
    answers: list[Answer] = []
    told_when_stored: list[int] = []

    def answer(record: Record, given: Answer) -> None:
        answers.append(given)

    async def gap(name: str) -> None:
        if name == "after_settle":
            told_when_stored.append(len(answers))

    bench.gap = gap
    worker = bench.worker()
    await worker.handle([bench.record(deliveries.single())], answer)
    await worker.close()
    assert told_when_stored == [0]
    assert [shown(given) for given in answers] == [[("sent", "")]]
