"""A status only moves forward, whatever the order, delay or repetition of what is told of it."""

from __future__ import annotations

from functools import reduce
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import states
from schemas.messages import EventKind, StatusEvent
from schemas.reasons import Reason
from schemas.states import Delivery
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_events import event, of_delivery

E = EventKind
T = START_MS


def told(event: StatusEvent, exact: bool = True) -> Delivery:
    return states.of_event(event, states.KIND_CODES[event.kind], exact)


def merged(*events: StatusEvent) -> Delivery:
    return reduce(states.join, map(told, events), states.UNTOUCHED)


def shown(*events: StatusEvent) -> str:
    return states.shown(merged(*events)).state


deliveries = st.lists(of_delivery(), max_size=8).map(lambda events: merged(*events))


@given(deliveries, deliveries)
def test_merging_is_the_same_in_either_order(one: Delivery, other: Delivery) -> None:
    assert states.join(one, other) == states.join(other, one)


@given(deliveries, deliveries, deliveries)
def test_merging_is_the_same_however_events_are_grouped(one: Delivery, two: Delivery, three: Delivery) -> None:
    assert states.join(states.join(one, two), three) == states.join(one, states.join(two, three))


@given(deliveries, deliveries)
def test_a_repeated_event_changes_nothing(one: Delivery, other: Delivery) -> None:
    both = states.join(one, other)
    assert states.join(both, one) == both
    assert states.join(both, other) == both


@given(st.lists(of_delivery(), min_size=1, max_size=10), st.randoms(use_true_random=False))
def test_only_what_was_told_matters_not_when(events: list[StatusEvent], random: Random) -> None:
    shuffled = events + events[::2]
    random.shuffle(shuffled)
    assert merged(*shuffled) == merged(*events)


@given(deliveries, of_delivery())
def test_nothing_learned_is_ever_lost(known: Delivery, news: StatusEvent) -> None:
    later = states.join(known, told(news))
    assert later.sent >= known.sent
    assert later.calls >= known.calls
    assert later.doubled & known.doubled == known.doubled
    assert (states.outcome(known) is None) or states.outcome(later) is not None


@given(deliveries, of_delivery())
def test_a_call_is_never_hidden_by_a_wait_or_end_of_its_generation(known: Delivery, news: StatusEvent) -> None:
    before, after = states.shown(known).state, states.shown(states.join(known, told(news))).state
    redriven = news.generation > (known.settled.generation if known.settled else -1)
    if before in {"sent", "unconfirmed", "undelivered"} and not redriven:
        assert after in {"sent", "unconfirmed", "delivered", "undelivered", "bounced", "complained"}
    if before == "complained":
        assert after == "complained"
    if before == "bounced":
        assert after in {"bounced", "delivered", "complained"}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([event(E.DELIVERED), event(E.SENT)], "delivered", id="delivered before sent arrives"),
        pytest.param(
            [event(E.UNDELIVERED), event(E.DELIVERED, at_ms=T + 1)], "undelivered", id="permanent failure came first"
        ),
        pytest.param([event(E.DELIVERED), event(E.BOUNCED, at_ms=T + 9)], "bounced", id="bounced after delivery"),
        pytest.param(
            [event(E.DELIVERED), event(E.SENT), event(E.QUEUED, hop=1), event(E.DELIVERED)],
            "delivered",
            id="delivered, sent, sending, delivered again",
        ),
    ],
)
def test_late_callbacks_do_not_turn_a_status_back(events: list[StatusEvent], expected: str) -> None:
    """N45, P24: in every order, and told twice."""
    for order in permutations(events):
        assert shown(*order) == expected
        assert shown(*order, *order) == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([], "accepted", id="nothing heard of"),
        pytest.param([event(E.QUEUED, hop=1), event(E.RETRYING, hop=2)], "retrying", id="the newest wait"),
        pytest.param([event(E.RETRYING, hop=2), event(E.FAILED)], "failed", id="an end after a wait"),
        pytest.param([event(E.FAILED), event(E.SENT)], "sent", id="a call beats an end of its generation"),
        pytest.param([event(E.SENT), event(E.UNCONFIRMED)], "unconfirmed", id="no word for long"),
        pytest.param([event(E.UNCONFIRMED), event(E.SENT, call=2)], "sent", id="the newest call"),
        pytest.param([event(E.UNCONFIRMED), event(E.DELIVERED)], "delivered", id="a late word"),
        pytest.param(
            [event(E.UNDELIVERED), event(E.UNCONFIRMED)], "undelivered", id="a word that came before the mark"
        ),
        pytest.param(
            [event(E.SENT), event(E.SENT, call=2), event(E.BOUNCED)], "bounced", id="bounced, the repeat undecided"
        ),
        pytest.param([event(E.BOUNCED), event(E.DELIVERED, call=2)], "delivered", id="bounced, but the repeat arrived"),
        pytest.param(
            [event(E.DELIVERED), event(E.BOUNCED), event(E.DELIVERED, call=2)], "delivered", id="one of two stayed"
        ),
        pytest.param([event(E.BOUNCED), event(E.COMPLAINED)], "complained", id="a complaint beats everything"),
        pytest.param(
            [event(E.FAILED), event(E.QUEUED, generation=1, hop=1)], "queued", id="a redrive waits in the open"
        ),
        pytest.param(
            [event(E.DELIVERED), event(E.FAILED, generation=1)], "delivered", id="what arrived stays, redriven or not"
        ),
        pytest.param(
            [event(E.SENT), event(E.FAILED, generation=1)], "failed", id="the newest generation is what shows"
        ),
    ],
)
def test_what_is_shown(events: list[StatusEvent], expected: str) -> None:
    for order in permutations(events):
        assert shown(*order) == expected


def test_a_waiting_delivery_is_unfinished_and_a_redriven_one_counts_as_before_until_it_ends() -> None:
    assert states.outcome(merged(event(E.RETRYING, hop=1))) is None
    redriven = merged(event(E.FAILED, reason=Reason.TEMPLATE_ERROR), event(E.QUEUED, generation=1, hop=1))
    assert states.outcome(redriven) == (states.FAILED, states.REASON_CODES[Reason.TEMPLATE_ERROR])
    assert states.outcome(states.join(redriven, told(event(E.SENT, generation=1)))) == (states.SENT, 0)


def test_possible_duplicates_are_counted_once_per_call() -> None:
    calls = [event(E.POSSIBLE_DUPLICATE, call=call) for call in (2, 3, 2, 3, 9)]
    assert states.shown(merged(*calls)).possible_duplicates == 3


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([event(E.SENT), event(E.SENT)], 0, id="one acceptance told twice"),
        pytest.param([event(E.SENT), event(E.SENT, at_ms=T + 4_000)], 1, id="accepted again under the same number"),
        pytest.param([event(E.SENT, at_ms=T + ms) for ms in (0, 4_000, 9_000)], 1, id="each call counts once"),
        pytest.param([event(E.SENT), event(E.SENT, at_ms=T + 9, call=2)], 1, id="accepted again as the next call"),
        pytest.param(
            [event(E.SENT), event(E.SENT, at_ms=T + 4_000), event(E.SENT, at_ms=T + 9_000, call=2)],
            1,
            id="twice, and then the next call",
        ),
        pytest.param(
            [event(E.SENT), event(E.SENT, call=2), event(E.SENT, at_ms=T + 9_000, call=2)], 2, id="each of two calls"
        ),
        pytest.param(
            [event(E.POSSIBLE_DUPLICATE), event(E.SENT), event(E.SENT, call=2)], 1, id="told already, by who took over"
        ),
        pytest.param([event(E.SENT), event(E.RETRYING, hop=1), event(E.DELIVERED)], 0, id="a copy that was not sent"),
        pytest.param([event(E.DELIVERED), event(E.SENT, at_ms=T + 4_000)], 0, id="a report is no acceptance"),
        pytest.param([event(E.UNCONFIRMED), event(E.SENT, call=2)], 0, id="nobody knows of the first"),
        pytest.param([event(E.SENT), event(E.SENT, generation=1)], 1, id="redriven although it was accepted"),
        pytest.param([event(E.SENT), event(E.QUEUED, generation=1, hop=1), event(E.SENT)], 1, id="while that waits"),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_a_call_that_was_accepted_twice_is_a_possible_duplicate(
    events: list[StatusEvent], expected: int, exact: bool
) -> None:
    """Redis had lost the claim, so the second sender knew nothing of the first: in every order, and told twice."""
    for order in permutations(events):
        known = states.UNTOUCHED
        for one in (*order, *order):
            known = states.with_event(known, one, states.KIND_CODES[one.kind], exact)
        assert states.shown(known).possible_duplicates == expected


def test_the_first_of_two_ends_is_the_reason_people_see() -> None:
    late = event(E.FAILED, at_ms=T + 5, reason=Reason.TOO_OLD)
    early = event(E.SUPPRESSED, reason=Reason.OPTED_OUT, detail="by the user")
    assert states.shown(merged(late, early))[:3] == ("suppressed", "opted_out", "by the user")


def test_a_call_shows_who_sent_it_and_when() -> None:
    parts = states.shown(merged(event(E.DELIVERED, at_ms=T + 9), event(E.SENT, provider="gateway", provider_id="m1")))
    assert (parts.sent_at_ms, parts.provider, parts.provider_id, parts.calls) == (T, "gateway", "m1", 1)


@given(of_delivery(), st.integers(-5, 10**15))
def test_times_and_numbers_out_of_range_are_bent_into_it(news: StatusEvent, number: int) -> None:
    bent = told(event(news.kind, at_ms=number, until_ms=number, generation=number, hop=number, call=number), False)
    assert bent.calls <= 255
    for part in (bent.settled, bent.wait):
        assert part is None or 0 <= part.generation <= 255
