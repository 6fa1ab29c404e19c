"""What the door accepts, what it refuses, and that it says which field is wrong."""

from __future__ import annotations

import json

import pytest

from producers import fields
from schemas.errors import Refused


class Person(fields.Body):
    user_id: fields.Identifier | None = None
    email: fields.Email | None = None
    phone: fields.Phone | None = None
    time_zone: fields.TimeZone | None = None
    locale: fields.Locale | None = None
    token: fields.Token | None = None
    name: fields.ShortText | None = None
    at: fields.InstantMs | None = None


def read(**body: object) -> Person:
    return fields.read(Person, json.dumps(body).encode())


def test_an_integer_and_its_text_are_the_same_user() -> None:
    assert read(user_id=42).user_id == read(user_id="42").user_id == "42"


def test_a_phone_number_is_kept_in_one_form_however_it_is_written() -> None:
    assert read(phone="+49 (170) 1234-567").phone == read(phone="+491701234567").phone == "+491701234567"


def test_the_domain_of_an_address_is_lower_case_and_its_local_part_is_left_alone() -> None:
    assert read(email="Jane.Doe@Example.ORG").email == "Jane.Doe@example.org"


@pytest.mark.parametrize(
    ("written", "kept"), [("DE-at", "de-AT"), ("de_DE", "de-DE"), ("zh-hant-tw", "zh-Hant-TW"), ("EN", "en")]
)
def test_a_locale_is_kept_in_canonical_case(written: str, kept: str) -> None:
    assert read(locale=written).locale == kept


def test_a_time_with_an_offset_becomes_milliseconds() -> None:
    assert read(at="2026-11-29T08:00:00.250+01:00").at == 1795935600250


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user_id", ""),
        ("user_id", "x" * 129),
        ("user_id", "a\nb"),
        ("user_id", True),
        ("user_id", 1.5),
        ("email", "no-at-sign"),
        ("email", "jane@gmail"),
        ("email", "a@b.org\r\nBcc: c@d.org"),
        ("email", "x" * 400 + "@b.org"),
        ("phone", "01701234567"),
        ("phone", "+49"),
        ("phone", "+4917012345678901234"),
        ("phone", "call me"),
        ("time_zone", "Mars/Olympus"),
        ("time_zone", "../../etc/passwd"),
        ("time_zone", "/etc/localtime"),
        ("time_zone", ""),
        ("locale", "german"),
        ("locale", "d"),
        ("locale", "de-"),
        ("token", ""),
        ("token", "a\x00b"),
        ("token", "x" * 4097),
        ("name", "a\x1bb"),
        ("name", "x" * 257),
        ("at", "2026-11-01T08:00"),
        ("at", 1764403200),
        ("at", "tomorrow"),
        ("at", "0001-01-01T00:00:00+14:00"),
        ("at", "9999-12-31T23:59:59-14:00"),
    ],
)
def test_bad_input_is_refused_naming_its_field(field: str, value: object) -> None:
    with pytest.raises(Refused) as refused:
        read(**{field: value})
    assert refused.value.field == field
    assert refused.value.status == 422


@pytest.mark.parametrize("field", ["user_id", "email", "token", "name", "locale", "time_zone", "phone", "at"])
def test_a_lone_surrogate_is_refused_in_every_field(field: str) -> None:
    with pytest.raises(Refused):
        fields.read(Person, b'{"' + field.encode() + b'": "a\\ud800b"}')


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(Refused) as refused:
        read(e_mail="a@b.org")
    assert refused.value.field == "e_mail"


def test_broken_json_is_a_400_and_does_not_repeat_the_input() -> None:
    with pytest.raises(Refused) as refused:
        fields.read(Person, b'{"email": "secret@b.org"')
    assert refused.value.status == 400
    assert "secret" not in str(refused.value)


def test_a_device_without_an_id_is_named_after_its_token() -> None:
    body = fields.read(fields.DeviceBody, b'{"token": "t1", "platform": "ios"}')
    assert body.device(5) == body.device(5)
    assert body.device(5).id
    assert body.device(5).registered_at_ms == 0
    assert body.device(5, "phone").id == "phone"
