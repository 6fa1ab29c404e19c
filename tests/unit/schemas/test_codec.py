"""Goal: what one process writes, every other reads exactly, in every release; what is damaged is refused."""

from __future__ import annotations

import io
import typing
from dataclasses import fields, replace
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import codec, messages, schema_files
from schemas.errors import Poison, Refused
from schemas.messages import Channel, Contact, Delivery, DeliveryState, NotificationRequested
from tests.unit.schemas.samples import CLASSES, messages_of, sample

SCHEMAS = schema_files.load()


def avro_schema(message: type) -> Any:
    return fastavro.parse_schema(codec.plain(SCHEMAS.current(message.__name__).document))


def read_or_refused(raw: bytes, message: type) -> Any:
    """The message, or the reason of its refusal; anything else that is raised fails the test."""
    try:
        return codec.decode(raw, message)
    except Poison as refusal:
        return refusal.reason


@pytest.mark.parametrize("message", CLASSES)
def test_every_message_survives_encoding_and_decoding(message: type) -> None:
    @settings(max_examples=60)
    @given(messages_of(message))
    def survives(original: Any) -> None:
        assert codec.decode(codec.encode(original), message) == original

    survives()


@pytest.mark.parametrize("message", CLASSES)
def test_a_foreign_avro_library_reads_and_writes_the_same_bytes(message: type) -> None:
    schema = avro_schema(message)

    @settings(max_examples=60)
    @given(messages_of(message))
    def agrees(original: Any) -> None:
        raw = codec.encode(original)
        body, again = io.BytesIO(raw[5:]), io.BytesIO()
        value = fastavro.schemaless_reader(body, schema, None)
        fastavro.schemaless_writer(again, schema, value)
        assert body.read() == b""
        assert again.getvalue() == raw[5:]

    agrees()


def test_a_foreign_library_sees_the_values_that_we_meant() -> None:
    original = sample(DeliveryState)
    value = fastavro.schemaless_reader(io.BytesIO(codec.encode(original)[5:]), avro_schema(DeliveryState), None)
    assert value == {f.name: getattr(original, f.name) for f in fields(DeliveryState)}


@pytest.mark.parametrize("message", CLASSES)
def test_a_record_cut_off_anywhere_is_refused(message: type) -> None:
    raw = codec.encode(sample(message))
    for length in range(len(raw)):
        with pytest.raises(Poison) as refusal:
            codec.decode(raw[:length], message)
        assert refusal.value.reason == "undecodable"


@settings(max_examples=60)
@given(st.lists(messages_of(Delivery), min_size=2, max_size=4), st.data())
def test_a_record_is_read_as_it_is_whatever_was_read_before_it(made: list[Delivery], data: st.DataObject) -> None:
    """The reader compares a delivery with the one before: alike in some fields, alike in all, or that one cut off."""
    names = [field.name for field in fields(Delivery)]
    before = made[0]
    for following in made[1:]:
        copied = data.draw(st.sets(st.sampled_from(names)))
        delivery = replace(following, **{name: getattr(before, name) for name in copied})
        raw = codec.encode(delivery)
        read_or_refused(raw[: data.draw(st.integers(0, len(raw) - 1))], Delivery)
        assert codec.decode(raw, Delivery) == delivery
        before = delivery


@pytest.mark.parametrize("message", CLASSES)
@pytest.mark.parametrize("extra", [b"\0", b"\2", b"abc"])
def test_bytes_behind_the_record_are_refused(message: type, extra: bytes) -> None:
    with pytest.raises(Poison, match="too many"):
        codec.decode(codec.encode(sample(message)) + extra, message)


@given(st.sampled_from(CLASSES), st.binary(max_size=60))
def test_random_bytes_are_refused_and_never_crash_the_reader(message: type, noise: bytes) -> None:
    prefix = codec.encode(sample(message))[:5]
    found = read_or_refused(prefix + noise, message)
    assert isinstance(found, message) or found == "undecodable"


@given(st.sampled_from(CLASSES), st.data())
def test_a_flipped_byte_is_refused_or_read_as_some_message(message: type, data: st.DataObject) -> None:
    raw = bytearray(codec.encode(sample(message)))
    raw[data.draw(st.integers(5, len(raw) - 1))] = data.draw(st.integers(0, 255))
    found = read_or_refused(bytes(raw), message)
    assert isinstance(found, message) or found == "undecodable"


@pytest.mark.parametrize("raw", [None, b"", b"\0", b'{"user_id": 1}', b"\1\0\0\0\x6b"])
def test_what_is_not_framed_is_refused(raw: bytes | None) -> None:
    with pytest.raises(Poison) as refusal:
        codec.decode(raw, Delivery)
    assert refusal.value.reason == "undecodable"


def test_an_unknown_schema_id_is_named_in_the_refusal() -> None:
    with pytest.raises(Poison, match="99999") as refusal:
        codec.decode(b"\0" + (99_999).to_bytes(4, "big") + b"abc", Delivery)
    assert refusal.value.reason == "unknown_schema"


def test_a_record_of_another_message_is_refused() -> None:
    with pytest.raises(Poison) as refusal:
        codec.decode(codec.encode(sample(messages.StatusBatch)), Delivery)
    assert refusal.value.reason == "unknown_schema"


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (replace(sample(Delivery), params='{"name": "\ud83d"}'), "params"),
        (replace(sample(NotificationRequested), to=Contact(email="a\udc00@example.org")), "to.email"),
        (replace(sample(messages.CampaignState), outcomes={"sent\udfff": 1}), "outcomes.0"),
        (replace(sample(messages.AudiencePage), recipients=(messages.Recipient("\ud800"),)), "recipients.0.user_id"),
    ],
)
def test_a_lone_surrogate_is_refused_naming_the_field(message: messages.Message, field: str) -> None:
    with pytest.raises(Refused, match="lone surrogate") as refusal:
        codec.encode(message)
    assert refusal.value.field == field


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_never_cut(number: int) -> None:
    with pytest.raises(OverflowError):
        codec.encode(replace(sample(Delivery), expires_at_ms=number))


def test_a_collection_written_in_blocks_with_sizes_is_read() -> None:
    """Other Avro libraries may write a list as several blocks, each with a negative count and its size in bytes."""
    original = replace(sample(Delivery), siblings=("ab", "cd", "ef"))
    one_block = b"\x06" + b"\x04ab\x04cd\x04ef" + b"\0"
    blocks = b"\x03\x0c" + b"\x04ab\x04cd" + b"\x02" + b"\x04ef" + b"\0"
    raw = codec.encode(original)
    assert raw.count(one_block) == 1
    assert codec.decode(raw.replace(one_block, blocks), Delivery) == original


def damaged(message: Any, good: bytes, bad: bytes) -> bytes:
    raw = codec.encode(message)
    assert raw.endswith(good)
    return raw.removesuffix(good) + bad


@pytest.mark.parametrize(
    "number",
    [b"\xff" * 9 + b"\x03", b"\x80" * 1_000_000 + b"\x01", b"\xff"],
    ids=["65 bits", "a run of continuation bytes", "cut off"],
)
def test_a_number_that_no_writer_writes_is_refused(number: bytes) -> None:
    message = replace(sample(messages.LeaderRecord), at_ms=0)
    with pytest.raises(Poison):
        codec.decode(damaged(message, b"\0", number), messages.LeaderRecord)


@pytest.mark.parametrize("length", [b"\x01", b"\x81\x01"])
def test_a_text_of_negative_length_is_refused(length: bytes) -> None:
    raw = codec.encode(messages.LeaderRecord("", 0))
    with pytest.raises(Poison, match=r"negative length|KeyError"):
        codec.decode(raw[:5] + length + raw[6:] + b"x" * 64, messages.LeaderRecord)


@pytest.mark.parametrize("branch", [b"\x01", b"\x04", b"\x80"])
def test_a_union_branch_that_does_not_exist_is_refused(branch: bytes) -> None:
    minimal = codec.encode(NotificationRequested("", "e", "u", "t"))
    with pytest.raises(Poison):
        codec.decode(minimal[:5] + branch + b"\0" + minimal[6:], NotificationRequested)


@pytest.mark.parametrize("flag", [2, 255])
def test_a_flag_that_is_neither_yes_nor_no_is_refused(flag: int) -> None:
    message = replace(sample(Delivery), force=True)
    with pytest.raises(Poison):
        codec.decode(damaged(message, b"\x01", bytes([flag])), Delivery)


def test_a_foreign_publisher_needs_four_fields_only() -> None:
    body = io.BytesIO()
    request = {"event_id": "order-7", "user_id": "42", "template": "receipt", "params": '{"total": "9.99"}'}
    fastavro.schemaless_writer(body, SCHEMAS.current("NotificationRequested").document, request)
    raw = b"\0" + SCHEMAS.current("NotificationRequested").id.to_bytes(4, "big") + body.getvalue()
    expected = NotificationRequested("", "order-7", "42", "receipt", '{"total": "9.99"}')
    assert codec.decode(raw, NotificationRequested) == expected


def test_a_foreign_publisher_may_give_contact_and_channels() -> None:
    body = io.BytesIO()
    request = {"event_id": "e", "user_id": "u", "template": "t", "channels": ["sms"], "to": {"phone": "+4930123456"}}
    fastavro.schemaless_writer(body, SCHEMAS.current("NotificationRequested").document, request)
    raw = b"\0" + SCHEMAS.current("NotificationRequested").id.to_bytes(4, "big") + body.getvalue()
    found = codec.decode(raw, NotificationRequested)
    assert found.channels == (Channel.SMS,)
    assert found.to == Contact(phone="+4930123456")


def test_an_unknown_channel_is_refused() -> None:
    raw = codec.encode(replace(sample(NotificationRequested), channels=(Channel.PUSH,)))
    with pytest.raises(Poison):
        codec.decode(raw.replace(b"\x08push", b"\x08fax!"), NotificationRequested)


@pytest.mark.parametrize("message", CLASSES)
def test_the_schema_lists_the_fields_of_the_class_in_their_order(message: type) -> None:
    schema = SCHEMAS.current(message.__name__).document
    assert [f["name"] for f in schema["fields"]] == [f.name for f in fields(message)]
    assert schema["namespace"] == "tidings"
    assert schema["doc"]


@pytest.mark.parametrize("message", [NotificationRequested, DeliveryState, messages.CampaignState])
def test_every_field_of_a_public_contract_is_explained(message: type) -> None:
    unexplained = [f["name"] for f in SCHEMAS.current(message.__name__).document["fields"] if not f.get("doc")]
    assert unexplained == []


def test_every_message_has_an_id_and_no_other_schema_does() -> None:
    assert set(SCHEMAS.versions) == {message.__name__ for message in typing.get_args(messages.Message)}
