"""One notification with several deliveries: when it is finished, how it counts once, what the public is told."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import keys, slots, states
from schemas.errors import Poison
from schemas.messages import Channel, EventKind, StatusEvent
from schemas.reasons import Reason
from schemas.rows import Row
from schemas.slots import EMPTY, Slot
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_events import event, of_slot, of_slot_with_rival_plans, planned

E = EventKind
T = START_MS


def merged(events: Sequence[StatusEvent], slot: Slot = EMPTY, exact: bool = True) -> Slot:
    return reduce(lambda known, news: slots.merge(known, news, exact), events, slot)


def outcome(*events: StatusEvent) -> str:
    """What the recipient counts by; "" while unfinished."""
    code = slots.tally(merged(events)).outcome
    return states.STATES[code] if code else ""


any_events = st.one_of(
    st.lists(of_slot(), min_size=1, max_size=12), st.lists(of_slot_with_rival_plans(), min_size=1, max_size=12)
)


@given(any_events, st.randoms(use_true_random=False), st.booleans())
def test_the_same_events_give_the_same_slot_in_any_order(
    events: list[StatusEvent], random: Random, exact: bool
) -> None:
    shuffled = events + events[::2]
    random.shuffle(shuffled)
    assert merged(shuffled, exact=exact) == merged(events, exact=exact)


@given(any_events)
def test_a_repeat_gives_the_very_same_slot_so_nothing_is_written(events: list[StatusEvent]) -> None:
    slot = merged(events)
    for again in events:
        assert slots.merge(slot, again, True) is slot


@given(any_events, st.randoms(use_true_random=False))
def test_counts_do_not_depend_on_the_order(events: list[StatusEvent], random: Random) -> None:
    shuffled = events[:]
    random.shuffle(shuffled)
    assert slots.tally(merged(shuffled)) == slots.tally(merged(events))


@given(st.lists(of_slot(), max_size=10).filter(lambda events: not any(e.next or not e.delivery for e in events)))
def test_what_is_finished_stays_finished(events: list[StatusEvent]) -> None:
    slot, was = EMPTY, False
    for news in events:
        slot = slots.merge(slot, news, True)
        assert slots.is_finished(slot) or not was
        was = slots.is_finished(slot)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([planned("email")], "", id="planned only"),
        pytest.param([planned("email"), event(E.RETRYING, hop=1)], "", id="a waiting retry"),
        pytest.param([planned("email", "sms"), event(E.SENT)], "", id="one of two channels"),
        pytest.param([planned("email", "sms"), event(E.SENT), event(E.FAILED, "sms")], "sent", id="sent goes further"),
        pytest.param(
            [planned("email", "sms"), event(E.BOUNCED), event(E.UNDELIVERED, "sms")], "undelivered", id="undelivered"
        ),
        pytest.param([planned("email"), event(E.COMPLAINED)], "delivered", id="a complaint was delivered"),
        pytest.param([planned("email"), event(E.SENT), event(E.SENT, "sms")], "sent", id="a stranger beside it"),
        pytest.param([planned("email"), event(E.SENT, "sms")], "", id="a stranger never counts"),
        pytest.param([event(E.SENT)], "", id="no plan yet"),
        pytest.param([event(E.CANCELLED, "")], "cancelled", id="cancelled before any delivery"),
        pytest.param([event(E.CANCELLED, ""), planned("email")], "", id="a plan has the word, not the slot's end"),
        pytest.param([event(E.SUPPRESSED, "", reason=Reason.NO_CHANNEL), planned()], "suppressed", id="an empty plan"),
        pytest.param(
            [planned("email", "sms"), event(E.SUPPRESSED, reason=Reason.OPTED_OUT), event(E.CANCELLED, "sms")],
            "suppressed",
            id="a wish goes before a cancel",
        ),
        pytest.param(
            [planned("email", "sms"), event(E.CANCELLED), event(E.EXPIRED, "sms")],
            "cancelled",
            id="cancelled goes before expired",
        ),
    ],
)
def test_when_a_notification_is_finished_and_what_it_counts_by(events: list[StatusEvent], expected: str) -> None:
    for order in permutations(events):
        assert outcome(*order) == expected


@pytest.mark.parametrize("reason", [Reason.NO_ADDRESS, Reason.DEAD_DEVICE, Reason.NO_PROVIDER, Reason.FELL_BACK])
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (E.CANCELLED, Reason.CAMPAIGN_CANCELLED),
        (E.EXPIRED, Reason.EXPIRED),
        (E.SUPPRESSED, Reason.OPTED_OUT),
        (E.FAILED, Reason.TEMPLATE_ERROR),
    ],
)
def test_who_one_channel_could_not_reach_counts_and_shows_by_what_became_of_the_next(
    reason: Reason, kind: EventKind, why: Reason
) -> None:
    unreached = event(E.SUPPRESSED, "push", reason=reason, next="email")
    for order in permutations([planned("push"), unreached, event(kind, reason=why)]):
        slot = merged(order)
        tally, seen = slots.tally(slot), slots.view(slot)
        assert (tally.outcome, tally.reason) == (states.KIND_CODES[kind], states.REASON_CODES[why])
        assert (seen.status, seen.reason) == (kind, why)


def test_whom_no_channel_could_reach_counts_by_the_first_of_them() -> None:
    unreached = event(E.SUPPRESSED, "push", reason=Reason.NO_ADDRESS, next="sms")
    seen = slots.view(merged([planned("push"), unreached, event(E.SUPPRESSED, "sms", reason=Reason.NO_PROVIDER)]))
    assert (seen.status, seen.reason) == ("suppressed", "no_address")


def test_a_fallback_is_added_in_the_same_merge_so_no_row_shows_it_finished_in_between() -> None:
    push = event(E.FAILED, "push/00c0ffee", reason=Reason.TRIES_USED_UP, next="email")
    slot = merged([planned("push/00c0ffee"), push])
    assert not slots.is_finished(slot)
    assert [d.channel for d in slots.view(slot).deliveries] == ["push", "email"]
    assert outcome(planned("push/00c0ffee"), push, event(E.SENT, "email")) == "sent"


def test_the_plan_that_came_first_in_the_log_wins_and_the_others_deliveries_are_kept_but_never_counted() -> None:
    first, second = planned("email", source_offset=3), planned("sms", source_offset=9)
    for order in permutations([first, second, event(E.SENT, "sms")]):
        slot = merged(order)
        assert slots.counted(slot) == ("email",)
        assert slots.tally(slot).sent == 0
        assert [d.state for d in slots.view(slot).deliveries] == ["accepted", "sent"]


def test_a_report_that_knows_its_delivery_by_number_may_come_before_the_plan() -> None:
    report = event(E.DELIVERED, "", index=1)
    for order in permutations([report, planned("email", "sms"), event(E.SENT, "sms")]):
        slot = merged(order)
        assert {name: states.shown(parts).state for name, parts in slots.visible(slot)} == {
            "email": "accepted",
            "sms": "delivered",
        }


def test_a_report_of_a_fallback_needs_no_plan() -> None:
    report = event(E.DELIVERED, "", index=keys.fallback_index(Channel.SMS))
    assert "sms" in merged([report]).deliveries


def test_a_flood_of_unknown_deliveries_is_bounded_and_the_plan_keeps_its_room() -> None:
    strangers = [event(E.SENT, f"push/{number:08x}") for number in range(40)]
    for events in ([planned("sms"), *strangers], [*strangers, planned("sms")]):
        slot = merged(events)
        assert len(slot.deliveries) <= slots.MAX_DELIVERIES
        assert slots.counted(slot) == ("sms",)
        assert len(list(slots.visible(slot))) == slots.MAX_DELIVERIES


@pytest.mark.parametrize("name", ["fax", "push/xyz", "push/", "push/00C0FFEE", "#9", "email/0"])
def test_a_name_that_no_sender_makes_is_poison(name: str) -> None:
    with pytest.raises(Poison):
        slots.merge(EMPTY, event(E.SENT, name), True)
    with pytest.raises(Poison):
        slots.merge(EMPTY, planned(name), True)


def test_a_plan_of_too_many_or_of_equal_deliveries_is_poison() -> None:
    with pytest.raises(Poison):
        slots.merge(EMPTY, planned(*(f"push/{number:08x}" for number in range(9))), True)
    with pytest.raises(Poison):
        slots.merge(EMPTY, planned("email", "email"), True)


def test_support_sees_the_notification_as_its_furthest_delivery() -> None:
    slot = merged([planned("push/00c0ffee", "email"), event(E.FAILED, "push/00c0ffee"), event(E.RETRYING, hop=1)])
    seen = slots.view(slot)
    assert (seen.status, seen.user_id, seen.template, seen.accepted_at_ms) == ("retrying", "42", "welcome", T)
    assert [(d.channel, d.device, d.state) for d in seen.deliveries] == [
        ("push", "00c0ffee", "failed"),
        ("email", "", "retrying"),
    ]


def test_a_notification_held_before_it_has_deliveries_says_so() -> None:
    held = event(E.HELD, "", reason=Reason.QUIET_HOURS, until_ms=T + 9, hop=1)
    waiting = slots.view(merged([held]))
    assert (waiting.status, waiting.reason, waiting.waits_until_ms) == ("held", Reason.QUIET_HOURS, T + 9)
    going = slots.view(merged([held, planned("email")]))
    assert (going.status, going.waits_until_ms) == ("accepted", 0)
    assert slots.view(merged([held, event(E.CANCELLED, "")])).status == "cancelled"


def test_the_public_hears_of_each_change_once_and_only_when_it_is_known_whose_it_is() -> None:
    sent = slots.merge(EMPTY, event(E.SENT), True)
    assert slots.changes(EMPTY, sent) == []
    plan = slots.merge(sent, planned("email", "sms"), True)
    assert [(name, shown.state) for name, shown in slots.changes(sent, plan)] == [
        ("email", "sent"),
        ("sms", "accepted"),
    ]
    again = slots.merge(plan, event(E.QUEUED, hop=1), True)
    assert slots.changes(plan, again) == []
    done = slots.merge(plan, event(E.DELIVERED), True)
    assert [(name, shown.state) for name, shown in slots.changes(plan, done)] == [("email", "delivered")]


def test_the_public_hears_of_a_notification_that_ends_without_a_delivery() -> None:
    end = event(E.SUPPRESSED, "", reason=Reason.NO_CHANNEL, user_id="42", template="welcome")
    slot = slots.merge(EMPTY, end, True)
    assert [(name, shown.state, shown.reason) for name, shown in slots.changes(EMPTY, slot)] == [
        ("", "suppressed", "no_channel")
    ]


def test_an_end_of_the_whole_notification_is_taken_back_when_it_has_deliveries_after_all() -> None:
    ended = slots.merge(EMPTY, event(E.CANCELLED, "", user_id="42"), True)
    planned_late = slots.merge(ended, planned("email"), True)
    assert [(name, shown.state) for name, shown in slots.changes(ended, planned_late)] == [
        ("email", "accepted"),
        ("", "accepted"),
    ]
    both = slots.changes(EMPTY, planned_late)
    assert both == slots.changes(ended, planned_late), "somebody may have told the end and died"


def test_a_name_of_any_length_fits_into_a_row_of_singles() -> None:
    row = Row(campaign=False)
    for slot in range(keys.SLOTS_PER_ROW):
        told = event(E.FAILED, "", slot=slot, user_id="u" * 600_000, template="t" * 600_000, detail="d" * 600_000)
        row.put(slot, EMPTY, merged([told]))
    assert Row(False, row.pack()).slot(3) == row.slot(3)


@pytest.mark.parametrize("name", ["", "#", "#8", "#" + "9" * 5_000])
def test_a_plan_with_a_name_that_is_none_is_poison(name: str) -> None:
    with pytest.raises(Poison):
        merged([planned("email", name)])
