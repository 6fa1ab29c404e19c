"""Counts of a campaign equal what its rows say, whatever happened in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas import rows, slots
from schemas.counts import Vector
from schemas.messages import EventKind, StatusEvent
from schemas.reasons import Reason
from schemas.rows import Row
from schemas.slots import EMPTY
from tests.doubles.status_events import ENDS, event, of_slot, planned


@given(st.lists(st.tuples(st.integers(0, 5), of_slot()), max_size=40))
def test_counts_moved_event_by_event_equal_counts_recomputed_from_the_row(
    events: list[tuple[int, StatusEvent]],
) -> None:
    row, recomputed = Row(campaign=True), Vector()
    for index, news in events:
        before = row.slot(index)
        after = slots.merge(before, news, False)
        if after is not before:
            row.put(index, before, after)
    for slot in row.slots():
        recomputed.move(slots.NOTHING, slots.tally(slot))
    expected = recomputed.progress("default", "spring", 0, 1)
    assert row.counts.progress("default", "spring", 0, 1) == expected
    assert rows.counts(row.pack()).progress("default", "spring", 0, 1) == expected


@given(st.lists(st.tuples(st.integers(0, 3), of_slot()), max_size=20))
def test_a_campaigns_counts_are_the_sum_of_its_rows(events: list[tuple[int, StatusEvent]]) -> None:
    total, apart = Vector(), [Vector() for _ in range(4)]
    for number, news in events:
        after = slots.tally(slots.merge(EMPTY, news, False))
        total.move(slots.NOTHING, after)
        apart[number].move(slots.NOTHING, after)
    again = Vector()
    for one in apart:
        again.add(one)
    assert again.progress("default", "spring", 0, 1) == total.progress("default", "spring", 0, 1)
    again.add(total, -1)
    assert again.progress("default", "spring", 0, 1) == Vector().progress("default", "spring", 0, 1)


def test_counts_too_varied_for_their_room_in_a_row_are_counted_slot_by_slot() -> None:
    row = Row(campaign=True)
    ends = [(kind, reason) for kind in ENDS for reason in Reason][:150]
    for index, (kind, reason) in enumerate(ends):
        row.put(index, EMPTY, slots.merge(EMPTY, event(kind, "", reason=reason), False))
    raw = row.pack()
    assert rows.counts(raw).outcomes == row.counts.outcomes
    assert len(row.counts.outcomes) == 150


@given(st.lists(st.tuples(st.integers(0, 5), of_slot()), max_size=40))
def test_every_finished_recipient_has_exactly_one_outcome(events: list[tuple[int, StatusEvent]]) -> None:
    vector, found = Vector(), dict.fromkeys(range(6), EMPTY)
    for index, news in events:
        found[index] = slots.merge(found[index], news, False)
    for slot in found.values():
        vector.move(slots.tally(EMPTY), slots.tally(slot))
    progress = vector.progress("default", "spring", 0, 1)
    assert sum(progress.outcomes.values()) == progress.finished == sum(map(slots.is_finished, found.values()))
    assert progress.delivered <= progress.sent <= progress.planned


def test_a_reason_is_counted_for_who_was_not_reached_and_not_for_who_was() -> None:
    vector = Vector()
    for told in (
        [planned("email"), event(EventKind.SUPPRESSED, reason=Reason.OPTED_OUT)],
        [planned("email"), event(EventKind.FAILED, reason=Reason.TRIES_USED_UP)],
        [planned("email"), event(EventKind.BOUNCED, reason=Reason.ADDRESS_REFUSED)],
    ):
        slot = EMPTY
        for news in told:
            slot = slots.merge(slot, news, False)
        vector.move(slots.tally(EMPTY), slots.tally(slot))
    progress = vector.progress("default", "spring", 2, 9)
    assert progress.outcomes == {"suppressed": 1, "failed": 1, "bounced": 1}
    assert progress.reasons == {"opted_out": 1, "tries_used_up": 1}
