"""Goal: the list of a campaign's recipients and its counts say the same of everybody."""

from __future__ import annotations

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from producers.api import campaign_recipients
from schemas import slots, states
from schemas.messages import StatusEvent
from schemas.slots import EMPTY
from tests.doubles.status_events import NAMES, of_slot, planned


@given(st.lists(of_slot(), max_size=12).map(lambda told: [planned(*NAMES, source_offset=0), *told]))
def test_a_recipient_stands_in_the_list_of_the_outcome_that_it_is_counted_by(events: list[StatusEvent]) -> None:
    slot = reduce(lambda known, news: slots.merge(known, news, False), events, EMPTY)
    listed = campaign_recipients.outcome_of(slots.view(slot))
    if listed and not slots.outside(slot):
        assert listed == states.STATES[slots.tally(slot).outcome]
