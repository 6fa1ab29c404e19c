"""Goal: each call counts once, in the minute it was made, whatever the order and repetition of what is told of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec, keys
from schemas.messages import EventKind, StatusEvent
from schemas.records import Record
from streams.share_tally import ShareTally
from streams.status_table import StatusTable
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_events import event, planned
from tests.doubles.status_road import IDS, PAGE, TENANT, TOPICS, StatusRoad, batch, park

MINUTE = START_MS // 60_000
SLOTS = 6


def sent(slot: int, at_ms: int = START_MS, provider: str = "gateway", **changes: int) -> StatusEvent:
    return event(EventKind.SENT, "push/00c0ffee", slot, at_ms=at_ms, provider=provider, **changes)


def delivered(slot: int, at_ms: int, provider: str = "gateway", **changes: int) -> StatusEvent:
    return event(EventKind.DELIVERED, "push/00c0ffee", slot, at_ms=at_ms, provider=provider, **changes)


async def counted(road: StatusRoad, *events: StatusEvent) -> dict[int, tuple[int, int]]:
    """Minutes after START_MS -> (sent, delivered soon)."""
    await road.write(batch(*(planned("push/00c0ffee", slot=slot) for slot in range(SLOTS)), *events))
    await road.read()
    assert {key[:2] for key in road.tally.counted} <= {("gateway", "push")}
    return {minute - MINUTE: (pair[0], pair[1]) for (_, _, minute), pair in road.tally.counted.items()}


@pytest.fixture
async def road(tmp_path: Path) -> StatusRoad:
    made = StatusRoad(tmp_path)
    await made.restart()
    return made


async def test_a_report_within_ten_minutes_of_the_call_is_soon(road: StatusRoad) -> None:
    events = [sent(0), delivered(0, START_MS + 600_000), sent(1), delivered(1, START_MS + 601_000), sent(2)]
    assert await counted(road, *events) == {0: (3, 1)}


async def test_calls_of_providers_that_promise_no_reports_are_not_counted(road: StatusRoad) -> None:
    assert await counted(road, sent(0, provider="mail"), delivered(0, START_MS, provider="mail")) == {}


async def test_a_second_call_counts_in_its_own_minute(road: StatusRoad) -> None:
    later = START_MS + 5 * 60_000
    assert await counted(road, sent(0), sent(0, later, call=2), delivered(0, later + 1_000, call=2)) == {
        0: (1, 0),
        5: (1, 1),
    }


async def test_a_second_reading_of_the_log_counts_nothing_again(road: StatusRoad) -> None:
    await counted(road, sent(0), delivered(0, START_MS + 1_000))
    await road.restart()
    await road.read()
    assert road.tally.counted == {}


@given(st.data())
def test_order_and_repetition_change_no_count(data: st.DataObject) -> None:
    soon = [data.draw(st.sampled_from((None, 1_000, 700_000))) for _ in range(SLOTS)]
    events = [sent(slot) for slot in range(SLOTS)]
    events += [delivered(slot, START_MS + after) for slot, after in enumerate(soon) if after is not None]
    shuffled = data.draw(st.permutations(events + data.draw(st.lists(st.sampled_from(events), max_size=5))))
    tally = ShareTally({"gateway"})
    table = StatusTable(TOPICS, IDS, park, tally)
    key, value = keys.row_key(TENANT, PAGE).encode(), codec.encode(batch(*shuffled))
    assert len(list(table.merge([Record(TOPICS.status, 0, 0, key, value, (), START_MS)], lambda *_: None))) < 9
    assert tally.counted == {("gateway", "push", MINUTE): [SLOTS, soon.count(1_000)]}
