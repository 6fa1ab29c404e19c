"""Dead letters: the record as it was, and headers that say what happened and where it came from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry_topics import dead_letters
from retry_topics.dead_letters import DeadLetters
from schemas import codec, metrics
from schemas.messages import EventKind
from schemas.reasons import ParkReason, Reason
from schemas.records import Record
from schemas.topics import HEADERS_MAX_BYTES, Topics
from tests.doubles.deliveries import single
from tests.doubles.manual_clock import START_MS, ManualClock

LETTERS = DeadLetters(Topics(), ManualClock())
RECORD = Record("push.bulk", 3, 41, b"\xffkey", b"\x00\x01 torn", (("traceparent", b"00-1"),), START_MS)

ours = st.sampled_from(["tid-first-topic", "tid-first-offset", "tid-error-text"])


def test_a_parked_record_keeps_its_bytes_and_says_why_and_from_where() -> None:
    letter = LETTERS.letter(RECORD, ParkReason.UNDECODABLE, "cut off")
    assert (letter.topic, letter.key, letter.value) == ("push.dlq", RECORD.key, RECORD.value)
    assert dict(letter.headers) == {
        "traceparent": b"00-1",
        "tid-error-class": b"undecodable",
        "tid-error-text": b"cut off",
        "tid-error-at": str(START_MS).encode(),
        "tid-first-topic": b"push.bulk",
        "tid-first-partition": b"3",
        "tid-first-offset": b"41",
    }


@pytest.mark.parametrize(
    ("topic", "letter_topic"),
    [
        ("notification.requests", "requests.dlq"),
        ("sms.retry.1m", "sms.dlq"),
        ("provider.callbacks", "internal.dlq"),
        ("recipients", "internal.dlq"),
    ],
)
def test_each_topic_has_its_place_for_poison(topic: str, letter_topic: str) -> None:
    record = Record(topic, 0, 0, None, b"", (), START_MS)
    assert LETTERS.letter(record, ParkReason.UNDECODABLE, "").topic == letter_topic


def test_a_record_parked_again_keeps_its_first_place_and_tells_its_last_error() -> None:
    first = LETTERS.letter(RECORD, ParkReason.TRIES_USED_UP, "once")
    again = Record("push.retry.1m", 0, 5, first.key, first.value, first.headers, START_MS)
    headers = LETTERS.letter(again, ParkReason.TEMPLATE_ERROR, "twice").headers
    assert len({name for name, _ in headers}) == len(headers)
    assert dict(headers)["tid-first-topic"] == b"push.bulk"
    assert (dict(headers)["tid-error-class"], dict(headers)["tid-error-text"]) == (b"template_error", b"twice")


@given(
    st.lists(st.tuples(st.text("abcdef-", min_size=1) | ours, st.binary(max_size=3_000)), max_size=20),
    st.text(max_size=10_000),
)
def test_headers_never_outgrow_four_kilobytes(headers: list[tuple[str, bytes]], text: str) -> None:
    record = Record("push.bulk", 0, 0, None, None, tuple(headers), START_MS)
    for _ in range(3):
        letter = LETTERS.letter(record, ParkReason.INTERNAL_ERROR, text)
        record = Record("push.dlq", 0, 0, letter.key, letter.value, letter.headers, START_MS)
    size = sum(len(name) + len(value) + dead_letters.HEADER_OVERHEAD_BYTES for name, value in letter.headers)
    assert size <= HEADERS_MAX_BYTES
    assert len({name for name, _ in letter.headers}) == len(letter.headers)
    written = dict(letter.headers)["tid-error-text"]
    assert len(written) <= dead_letters.ERROR_TEXT_BYTES
    assert text.startswith(written.decode())


def test_only_what_points_at_ourselves_counts_towards_stopping() -> None:
    assert LETTERS.parked(RECORD, ParkReason.UNDECODABLE, "").parked
    assert LETTERS.parked(RECORD, ParkReason.INTERNAL_ERROR, "").parked
    assert not LETTERS.parked(RECORD, ParkReason.TEMPLATE_ERROR, "").parked


def test_a_record_too_large_for_any_letter_leaves_a_note_of_its_place() -> None:
    note = dead_letters.stub(LETTERS.letter(RECORD, ParkReason.UNDECODABLE, "x"))
    assert note.value is None
    assert dict(note.headers)["tid-first-offset"] == b"41"
    assert b"too large" in dict(note.headers)["tid-error-text"]


def test_a_letter_is_counted_once_whoever_parks_the_record() -> None:
    counted = metrics.DEAD_LETTERS.labels("push.dlq", ParkReason.UNKNOWN_SCHEMA)
    before = counted._value.get()
    LETTERS.letter(RECORD, ParkReason.UNKNOWN_SCHEMA, "x")
    LETTERS.parked(RECORD, ParkReason.UNKNOWN_SCHEMA, "x")
    assert counted._value.get() == before + 2


def test_a_parked_delivery_ends_as_failed_so_that_its_campaign_can_end() -> None:
    delivery = single(campaign_id="spring", row="c.spring.3", slot=7)
    record = Record("sms.bulk", 0, 5, b"k", codec.encode(delivery), (), 0)
    done = LETTERS.parked_delivery(record, ParkReason.CRASHES_WORKER, "it ended its process")
    (told,) = done.events
    assert (told.row, told.event.slot, told.event.kind) == ("c.spring.3", 7, EventKind.FAILED)
    assert (told.event.delivery, told.event.reason) == ("sms", Reason.CRASHES_WORKER)
    assert done.publish[0].value == record.value


def test_an_unreadable_lane_record_is_parked_without_a_status() -> None:
    record = Record("sms.bulk", 0, 5, b"k", b"garbage", (), 0)
    done = LETTERS.parked_delivery(record, ParkReason.UNDECODABLE, "no Avro")
    assert done.events == ()
    assert done.publish[0].value == b"garbage"
