"""A status row keeps what it was told, in little room, and packs the same content into the same bytes."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import packed_slots, rows, slots, states
from schemas.errors import Poison
from schemas.messages import EventKind, StatusEvent
from schemas.reasons import Reason
from schemas.rows import Row
from schemas.slots import EMPTY, Slot
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_events import event, of_delivery, of_slot, planned

E = EventKind


def merged(events: list[StatusEvent], exact: bool) -> Slot:
    return reduce(lambda slot, news: slots.merge(slot, news, exact), events, EMPTY)


any_slot = st.lists(of_slot(), min_size=1, max_size=12)


@given(any_slot)
def test_a_campaigns_slot_comes_back_as_it_was(events: list[StatusEvent]) -> None:
    slot = merged(events, exact=False)
    assert packed_slots.unpack(packed_slots.pack(slot)) == slot


@given(st.dictionaries(st.integers(0, 15), any_slot, max_size=4), st.booleans())
def test_a_row_comes_back_as_it_was(events: dict[int, list[StatusEvent]], campaign: bool) -> None:
    row = Row(campaign)
    row.touched_ms = START_MS // 1000 * 1000
    for index, told in events.items():
        row.put(index, EMPTY, merged(told, not campaign))
        for news in told:
            row.learn(news)
    again = Row(campaign, row.pack())
    assert list(again.slots()) == list(row.slots())
    assert again.counts.pack() == row.counts.pack()
    assert (again.touched_ms, again.shared, again.pack()) == (row.touched_ms, row.shared, row.pack())


@given(st.lists(of_delivery(), max_size=8), st.lists(of_delivery(), max_size=8))
def test_packing_between_events_changes_nothing(early: list[StatusEvent], late: list[StatusEvent]) -> None:
    """What the packed form drops can never show again: merging goes on as if it had been kept."""
    through_bytes = packed_slots.unpack(packed_slots.pack(merged(early, exact=False)))
    assert reduce(lambda slot, news: slots.merge(slot, news, False), late, through_bytes) == merged(early + late, False)


numbers = st.integers(0, 2**70)


@given(
    st.lists(
        st.builds(
            StatusEvent,
            st.just(0),
            st.sampled_from([kind for kind in E if kind is not E.PLANNED]),
            numbers,
            st.just("push/ffffffff"),
            generation=numbers,
            hop=numbers,
            call=numbers,
            until_ms=numbers,
            reason=st.just("internal_error"),
        ),
        max_size=20,
    )
)
def test_a_delivery_takes_at_most_24_bytes(events: list[StatusEvent]) -> None:
    slot = merged(events, exact=False)
    bare = len(packed_slots.pack(EMPTY))
    assert len(packed_slots.pack(slot)) - bare <= packed_slots.DELIVERY_MAX_BYTES


def test_the_worst_row_of_a_campaign_stays_below_64_kb() -> None:
    """250 people with ids of 48 bytes, 8 deliveries each, all redriven after everything happened to them once."""
    names = [f"push/{number:08x}" for number in range(8)]
    row = Row(campaign=True)
    row.learn(planned(*names, template="t" * 300))
    for index in range(rows.CAMPAIGN_SLOTS):
        events = [planned(*names, user_id=f"{index:048}", source_offset=2**47), event(E.CANCELLED, "")]
        for name in names:
            kinds = (E.SENT, E.DELIVERED, E.BOUNCED, E.COMPLAINED, E.POSSIBLE_DUPLICATE)
            events += [event(kind, name, generation=3, call=200) for kind in kinds]
            events.append(event(E.HELD, name, generation=4, hop=60_000, until_ms=START_MS))
        row.put(index, EMPTY, merged(events, exact=False))
    raw = row.pack()
    assert len(raw) <= rows.CAMPAIGN_ROW_MAX_BYTES
    assert len(raw) > 60_000, "not the worst case any more"
    assert all(state.status == "complained" for state in map(slots.view, Row(True, raw).slots()))


def test_the_bound_of_64_kb_follows_from_its_parts() -> None:
    slot_with_length, head, counts = 20, 149, 306
    per_slot = slot_with_length + slots.MAX_DELIVERIES * packed_slots.DELIVERY_MAX_BYTES
    most = rows.CAMPAIGN_SLOTS * per_slot + rows.USER_IDS_MAX_BYTES + head + counts
    assert most <= rows.CAMPAIGN_ROW_MAX_BYTES


def test_an_ordinary_page_is_small() -> None:
    row = Row(campaign=True)
    for index in range(rows.CAMPAIGN_SLOTS):
        told = [planned("email", user_id=f"user{index}"), event(E.SENT), event(E.DELIVERED)]
        row.put(index, EMPTY, merged(told, False))
    assert len(row.pack()) < 12_000


def test_writing_the_same_again_does_not_change_a_row() -> None:
    row = Row(campaign=True)
    slot = merged([planned("email"), event(E.SENT)], exact=False)
    assert row.put(3, EMPTY, slot)
    assert not row.put(3, slot, slot)
    assert row.learn(planned("email"))
    assert not row.learn(planned("email"))
    assert len(row) == 4 and row.slot(2) is EMPTY


def test_singles_keep_milliseconds_texts_and_provider() -> None:
    row = Row(campaign=False)
    sent = event(E.SENT, at_ms=START_MS + 7, provider="gateway", provider_id="é-1")
    row.put(0, EMPTY, merged([planned("email"), sent], exact=True))
    shown = states.shown(Row(False, row.pack()).slot(0).deliveries["email"])
    assert (shown.sent_at_ms, shown.provider, shown.provider_id) == (START_MS + 7, "gateway", "é-1")


@pytest.mark.parametrize(("campaign", "index"), [(True, 250), (True, -1), (False, 16)])
def test_a_slot_that_no_row_has_is_poison(campaign: bool, index: int) -> None:
    with pytest.raises(Poison):
        Row(campaign).put(index, EMPTY, merged([event(E.SENT)], False))


def test_a_row_of_the_other_kind_or_a_later_version_is_refused() -> None:
    raw = Row(campaign=True).pack()
    with pytest.raises(ValueError, match="cannot be read"):
        Row(False, raw)
    with pytest.raises(ValueError, match="cannot be read"):
        Row(True, b"\x03" + raw[1:])


FALLBACK = [
    planned("push"),
    event(E.SUPPRESSED, "push", reason=Reason.NO_ADDRESS, next="email"),
    event(E.CANCELLED, reason=Reason.CAMPAIGN_CANCELLED),
]
"""Of somebody without a device, whose mail was cancelled."""


def test_a_row_that_was_counted_by_the_first_ranking_is_counted_anew_before_it_is_moved() -> None:
    kept, row = merged(FALLBACK, exact=False), Row(campaign=True)
    row.put(0, EMPTY, kept)
    row.put(1, EMPTY, merged([planned("email"), event(E.SENT)], exact=False))
    counted = row.counts.pack()
    nobody = merged([planned("push"), event(E.SUPPRESSED, "push", reason=Reason.NO_ADDRESS)], exact=False)
    row.counts.move(slots.tally(kept), slots.tally(nobody))
    first = b"\x01" + row.pack()[1:]
    assert counted not in first
    assert rows.counts(first).pack() == Row(True, first).counts.pack() == counted
    again = Row(True, first)
    again.put(0, kept, slots.merge(kept, event(E.SENT), False))
    assert dict(+again.counts.outcomes) == {(states.SENT, 0): 2}
    assert rows.counts(again.pack()).pack() == again.counts.pack()


def test_a_row_of_the_first_version_in_which_nobody_had_a_second_channel_is_read_without_counting_its_slots() -> None:
    row = Row(campaign=True)
    row.put(1, EMPTY, merged([planned("push"), event(E.SUPPRESSED, "push", reason=Reason.NO_ADDRESS)], exact=False))
    row.counts.planned = 9
    assert rows.counts(b"\x01" + row.pack()[1:]).planned == 9


def test_a_row_of_the_first_version_in_which_everybody_was_reached_is_read_without_counting_its_slots() -> None:
    row = Row(campaign=True)
    row.put(0, EMPTY, merged([planned("email"), event(E.SUPPRESSED, reason=Reason.OPTED_OUT)], exact=False))
    row.counts.planned = 9
    assert rows.counts(b"\x01" + row.pack()[1:]).planned == 9
