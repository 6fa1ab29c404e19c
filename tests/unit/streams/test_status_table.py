"""What batches of status events come to: rows, public records, counts, dead letters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas import codec, keys, metrics, slots
from schemas.errors import Refused
from schemas.messages import EventKind, StatusBatch, StatusEvent
from schemas.reasons import Reason
from schemas.records import Outgoing
from schemas.rows import Row
from schemas.slots import EMPTY
from streams import status_table
from tests.doubles.manual_clock import START_MS
from tests.doubles.status_events import event, planned
from tests.doubles.status_road import IDS, PAGE, TOPICS, StatusRoad, batch

E = EventKind
SINGLE = "n.0a1b2c3d.3.2"


@pytest.fixture
async def road(tmp_path: Path) -> StatusRoad:
    road = StatusRoad(tmp_path)
    await road.restart()
    return road


async def test_a_recipient_goes_from_planned_to_delivered(road: StatusRoad) -> None:
    await road.write(batch(planned("email")), batch(event(E.SENT)), batch(event(E.DELIVERED, "", index=0)))
    await road.read()
    assert road.seen().status == "delivered"
    assert [state.state for state in road.public()] == ["delivered"]
    counts = (await road.counts())["default/spring:0"]
    assert (counts.planned, counts.finished, counts.sent, counts.delivered) == (1, 1, 1, 1)
    assert counts.outcomes == {"delivered": 1}


async def test_a_public_record_says_whose_it_is_what_happened_and_through_whom(road: StatusRoad) -> None:
    sent = event(E.SENT, provider="gateway", provider_id="m-1", at_ms=START_MS + 7)
    await road.write(batch(planned("push/00c0ffee", user_id="42")), batch(replace(sent, delivery="push/00c0ffee")))
    await road.read()
    (state,) = road.public()
    notification = IDS.notification_id("default", keys.Address(PAGE, 0))
    assert state.delivery_id == f"{notification}.push.00c0ffee"
    assert (state.notification_id, state.campaign_id, state.user_id) == (notification, "spring", "42")
    assert (state.template, state.accepted_at, state.channel, state.device) == ("welcome", START_MS, "push", "00c0ffee")
    assert (state.state, state.reason, state.provider, state.provider_id) == ("sent", None, "gateway", "m-1")
    assert (state.calls, state.sent_at, state.at, state.version) == (1, START_MS, START_MS + 7, 1 << 8)


async def test_a_single_keeps_its_provider_for_later_records(road: StatusRoad) -> None:
    sent = event(E.SENT, slot=3, provider="gateway", provider_id="m-1")
    await road.write(batch(planned("email", slot=3), sent, row=SINGLE))
    await road.read()
    await road.write(batch(event(E.DELIVERED, slot=3), row=SINGLE))
    await road.read(road.records()[1:])
    assert [(s.state, s.provider, s.campaign_id) for s in road.public()] == [
        ("sent", "gateway", None),
        ("delivered", "gateway", None),
    ]
    assert await road.counts() == {}


async def test_an_acceptance_that_shows_a_repeat_counts_for_its_campaign_and_in_the_metrics(road: StatusRoad) -> None:
    counter = metrics.POSSIBLE_DUPLICATES.labels("email", "claim_lost")
    before = counter._value.get()
    sent = event(E.SENT, provider="gateway")
    await road.write(batch(planned("email"), sent, sent), batch(replace(sent, at_ms=START_MS + 60_000)), batch(sent))
    for _ in range(2):
        await road.read()
        assert (await road.counts())["default/spring:0"].possible_duplicates == 1
        assert road.public()[-1].possible_duplicates == 1
        assert counter._value.get() == before + 1


async def test_a_doubt_that_was_told_is_not_counted_again_as_its_late_acceptance_comes(road: StatusRoad) -> None:
    counter = metrics.POSSIBLE_DUPLICATES.labels("email", "claim_lost")
    before = counter._value.get()
    late, sent = event(E.SENT, provider="gateway"), event(E.SENT, call=2, at_ms=START_MS + 9_000, provider="gateway")
    await road.write(batch(planned("email"), event(E.POSSIBLE_DUPLICATE, call=1), sent), batch(late))
    await road.read()
    assert (await road.counts())["default/spring:0"].possible_duplicates == 1
    assert counter._value.get() == before


async def test_reading_everything_again_writes_and_tells_nothing(road: StatusRoad) -> None:
    await road.write(batch(planned("email"), event(E.SENT)), batch(event(E.DELIVERED)))
    await road.read()
    row, told = road.row(), len(road.public())
    before = len(road.log.records(TOPICS.status_changelog))
    await road.read()
    assert len(road.public()) == told
    assert len(road.log.records(TOPICS.status_changelog)) == before
    assert row is not None
    assert road.row().pack() == row.pack()  # type: ignore[union-attr]


async def test_a_fallback_is_never_seen_finished_in_between(road: StatusRoad) -> None:
    failed = event(E.FAILED, "push/00c0ffee", reason=Reason.TRIES_USED_UP, next="email")
    await road.write(batch(planned("push/00c0ffee")), batch(failed))
    await road.read()
    assert (await road.counts())["default/spring:0"].finished == 0
    await road.write(batch(event(E.SENT)))
    await road.read(road.records()[2:])
    assert (await road.counts())["default/spring:0"].outcomes == {"sent": 1}


async def test_garbage_among_good_records_is_parked_byte_for_byte_and_the_good_ones_are_merged(
    road: StatusRoad,
) -> None:
    await road.write(batch(planned("email")))
    garbage = [b"\x00\x00\x00\x00\x63nothing", b"", codec.encode(batch(event(E.SENT))) + b"\x00"]
    await road.log.publish([Outgoing(TOPICS.status, b"k", value, (("x", b"y"),)) for value in garbage])
    await road.write(batch(event(E.SENT)))
    await road.read()
    parked = road.log.records(TOPICS.internal_dlq)
    assert [(record.key, record.value) for record in parked] == [(b"k", value) for value in garbage]
    assert all(record.header("x") == b"y" and record.header("tid-error-class") for record in parked)
    assert road.seen().status == "sent"


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(batch(event(E.SENT), row="x.1"), id="no such kind of row"),
        pytest.param(batch(event(E.SENT), row="c.spring"), id="a row without its page"),
        pytest.param(batch(planned("email"), row="c.spring." + "1" * 5_000), id="a page of thousands of digits"),
        pytest.param(batch(planned("email"), row="c.spring.٣"), id="a page in other digits"),
        pytest.param(batch(planned("email"), row="c.sp/ring.1"), id="a campaign that would be two parts of a key"),
        pytest.param(batch(planned("email"), event(E.SENT), row="n.spring.x.2"), id="a single's row of no entry topic"),
        pytest.param(batch(event(E.SENT), row=""), id="no row at all"),
        pytest.param(batch(event(E.SENT, slot=250)), id="a slot no row has"),
        pytest.param(batch(event(E.SENT, "fax")), id="a channel nobody has"),
    ],
)
async def test_a_batch_that_no_sender_makes_is_parked(road: StatusRoad, bad: StatusBatch) -> None:
    await road.write(bad)
    await road.read()
    assert len(road.log.records(TOPICS.internal_dlq)) == 1


async def test_a_batch_under_the_key_of_another_row_is_parked_since_it_lies_in_the_wrong_partition(
    road: StatusRoad,
) -> None:
    await road.log.publish([Outgoing(TOPICS.status, b"default/c.other.0", codec.encode(batch(event(E.SENT))))])
    await road.read()
    assert len(road.log.records(TOPICS.internal_dlq)) == 1


async def test_one_bad_event_does_not_keep_the_others_of_its_batch_out(road: StatusRoad) -> None:
    await road.write(batch(planned("email"), event(E.SENT, "fax"), event(E.SENT)))
    await road.read()
    assert road.seen().status == "sent"
    assert len(road.log.records(TOPICS.internal_dlq)) == 1


async def test_a_tick_is_no_row_and_no_dead_letter(road: StatusRoad) -> None:
    tick = Outgoing(TOPICS.status, b"tick", codec.encode(status_table.tick(START_MS)), partition=0)
    await road.log.publish([tick])
    await road.read()
    assert road.flow.ticks == {0: START_MS}
    assert road.log.records(TOPICS.internal_dlq) == []


@pytest.mark.parametrize(
    "events",
    [
        pytest.param((), id="none"),
        pytest.param((event(E.EXPIRED, at_ms=2**62),), id="in millions of years"),
        pytest.param((event(E.EXPIRED, at_ms=START_MS + 2 * 86_400_000),), id="in two days"),
        pytest.param((event(E.EXPIRED, at_ms=-(2**62)),), id="before all time"),
    ],
)
async def test_a_tick_without_a_time_to_trust_is_parked_and_deletes_nothing(
    road: StatusRoad, events: tuple[StatusEvent, ...]
) -> None:
    await road.write(StatusBatch("", status_table.TICK_ROW, events), batch(planned("email")))
    await road.read()
    assert road.flow.ticks == {}
    assert len(road.log.records(TOPICS.internal_dlq)) == 1
    assert road.seen().user_id == "42", "what came after it was merged"


wild = st.integers(-(2**63), 2**63 - 1)
words = st.text(max_size=12) | st.sampled_from(("email", "push/00c0ffee", "#0", "a" * 5_000))
rows = st.sampled_from((PAGE, SINGLE, "tick", "c.%FF.0")) | st.builds("c.{}.{}".format, words, wild) | st.text()
wild_events = st.builds(
    StatusEvent,
    wild,
    st.sampled_from(E),
    wild,
    words,
    **dict.fromkeys(("index", "generation", "hop", "call", "until_ms", "source_offset", "accepted_at_ms"), wild),
    **dict.fromkeys(("reason", "detail", "provider", "provider_id", "next", "user_id", "template"), words),
    plan=st.lists(words, max_size=3).map(tuple),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.builds(StatusBatch, st.text(max_size=5), rows, st.tuples(wild_events)), max_size=6))
async def test_no_record_that_can_be_decoded_ends_the_process(road: StatusRoad, batches: list[StatusBatch]) -> None:
    known = len(road.records())
    await road.write(*(one for one in batches if is_text(one)))
    await road.read(road.records()[known:])
    await road.counts()


def is_text(message: StatusBatch) -> bool:
    """Lone surrogates have no bytes, so no record holds one."""
    try:
        codec.encode(message)
    except Refused:
        return False
    return True


async def test_a_campaign_named_with_separators_is_counted_under_its_own_name(road: StatusRoad) -> None:
    row = keys.recipient_address("sp/ri:ng.1", 4, 0).row
    await road.write(batch(planned("email"), row=row))
    await road.read()
    (counts,) = (await road.counts()).values()
    assert (counts.tenant, counts.campaign_id) == ("default", "sp/ri:ng.1")


async def test_a_recipient_becomes_public_once_something_happened_to_it_and_a_single_at_once(road: StatusRoad) -> None:
    await road.write(batch(planned("email")), batch(planned("email", slot=3), row=SINGLE))
    await road.read()
    assert [(state.state, state.campaign_id) for state in road.public()] == [("accepted", None)]


async def test_a_row_that_another_process_wrote_meanwhile_is_read_again(road: StatusRoad) -> None:
    """A table keeps the rows it touched last open; what is stored counts, not what it remembers."""
    await road.write(batch(planned("email")))
    await road.read()
    key = keys.row_key("default", PAGE).encode()
    other = Row(True, road.store.get(0, key))
    other.put(1, EMPTY, slots.merge(EMPTY, event(E.CANCELLED, "", slot=1, user_id="43"), False))
    road.store.write(0, {key: other.pack()}, 0)
    await road.write(batch(event(E.SENT)))
    await road.read(road.records()[1:])
    assert [road.seen(slot).status for slot in (0, 1)] == ["sent", "cancelled"]
