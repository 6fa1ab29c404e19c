"""Counts of a campaign equal what its rows say, whatever happened in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas import slots
from schemas.counts import Vector
from schemas.messages import EventKind, StatusEvent
from schemas.reasons import Reason
from schemas.rows import Row
from schemas.slots import EMPTY
from tests.doubles.status_events import event, of_slot, planned


@given(st.lists(st.tuples(st.integers(0, 5), of_slot()), max_size=40))
def test_counts_moved_event_by_event_equal_counts_recomputed_from_the_row(
    events: list[tuple[int, StatusEvent]],
) -> None:
    row, moved, recomputed = Row(campaign=True), Vector(), Vector()
    for index, news in events:
        before = row.slot(index)
        after = slots.merge(before, news, False)
        moved.move(slots.tally(before), slots.tally(after))
        if after is not before:
            row.put(index, after)
    recomputed.add_row(Row(True, row.pack()))
    assert moved.progress("default", "spring", 0, 1) == recomputed.progress("default", "spring", 0, 1)


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
