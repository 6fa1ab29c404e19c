"""Bad input over HTTP: every refusal is a problem document that names the field, and nothing reaches the log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producers.api.bodies import instant
from tests.doubles.api import CODE, Api, key

Client = TestClient[Any, Any]
PATH = "/v1/notifications"


def device_of(registered_at: str | None) -> dict[str, Any]:
    return {"token": "t", "platform": "ios", "registered_at": registered_at}


async def refused(client: Client, body: Any, status: int = 422, **headers: str) -> dict[str, Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", "Idempotency-Key": "k1", **headers}
    answer = await client.post(PATH, data=raw, headers=sent)
    assert answer.content_type == "application/problem+json"
    told: dict[str, Any] = await answer.json()
    assert answer.status == told["status"] == status, told
    return told


@pytest.mark.parametrize("raw", [b"", b"{", b'{"user_id": "\\ud800"}', b'{"user_id": "\xff"}', b"[" * 5_000, b"\x00"])
async def test_what_is_no_json_is_refused_400(api: Api, client: Client, raw: bytes) -> None:
    await refused(client, raw, 400)
    assert not api.requested()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"user_id": ""}, "user_id"),
        ({"user_id": "x" * 129}, "user_id"),
        ({"user_id": "a\u0000b"}, "user_id"),
        ({"user_id": "a\nb"}, "user_id"),
        ({"user_id": True}, "user_id"),
        ({"user_id": 1.5}, "user_id"),
        ({"user_id": None}, "user_id"),
        ({"template": "nope"}, "template"),
        ({"template": 7.5}, "template"),
        ({"params": []}, "params"),
        ({"params": {"n": 2**64}}, "params"),
        ({"channels": ["fax"]}, "channels.0"),
        ({"channels": ["push"]}, "channels"),
        ({"priority": "urgent"}, "priority"),
        ({"template": "news", "priority": "transactional"}, "priority"),
        ({"force": "yes"}, "force"),
        ({"to": {"email": "nobody"}}, "to.email"),
        ({"to": {"email": "a@example.org\r\nBcc: b@example.org"}}, "to.email"),
        ({"to": {"phone": "0170 1234567"}}, "to.phone"),
        ({"to": {"phone": "+49"}}, "to.phone"),
        ({"to": {"time_zone": "Europe/Atlantis"}}, "to.time_zone"),
        ({"to": {"time_zone": "../../etc/passwd"}}, "to.time_zone"),
        ({"to": {"locale": "german"}}, "to.locale"),
        ({"to": {"devices": [{"token": "", "platform": "ios"}]}}, "to.devices.0.token"),
        ({"to": {"devices": [{"token": "t", "platform": "nokia"}]}}, "to.devices.0.platform"),
        ({"to": {"devices": [device_of("1969-12-31T23:59:59Z")]}}, "to.devices.0.registered_at"),
        ({"to": {"devices": [device_of(None), device_of("2999-01-01T00:00:00Z")]}}, "to.devices.1.registered_at"),
        ({"to": {"devices": [device_of("9999-12-31T23:59:59-14:00")]}}, "to.devices.0.registered_at"),
        ({"to": {"fax": "1"}}, "to.fax"),
        ({"send_at": "2026-12-01T08:00:00"}, "send_at"),
        ({"send_at": "tomorrow"}, "send_at"),
        ({"send_at": 1_800_000_000}, "send_at"),
        ({"send_at": "2020-01-01T08:00:00Z"}, "send_at"),
        ({"send_at": {"local": "08:00", "date": "9999-12-31"}}, "send_at"),
        ({"send_at": {"local": "08:00", "date": "31.12.2026"}}, "send_at"),
        ({"send_at": {"date": "2026-12-01"}}, "send_at"),
        ({"send_at": {"local": "25:00"}}, "send_at"),
        ({"send_at": {"local": "08:00", "date": "2020-01-01"}}, "send_at.date"),
        ({"send_at": {"at": "08:00"}}, "send_at"),
        ({"expires_at": "2026-12-01T08:00:00"}, "expires_at"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "2099-01-01T00:00:00Z"}, "expires_at"),
        ({"parms": {}}, "parms"),
    ],
)
async def test_a_wrong_field_is_refused_by_name(api: Api, client: Client, change: dict[str, Any], field: str) -> None:
    """N33 among them: a start that does not say by whose clock."""
    assert (await refused(client, CODE | change))["field"] == field
    assert not api.requested()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"parms": {}},
            "parms: unknown field; there are template, params, priority, channels, user_id, to, send_at, expires_at, "
            "force",
        ),
        ({"to": {"fax": "1"}}, "to.fax: unknown field; there are email, phone, devices, locale, time_zone"),
        (
            {"to": {"devices": [{"token": "t", "platform": "ios", "os": "9"}]}},
            "to.devices.0.os: unknown field; there are token, platform, id, app, environment, registered_at",
        ),
        ({"send_at": {"local": "08:00", "at": 1}}, "send_at: at: unknown field; there are local, date"),
        ({"template": "nope"}, "template: 'nope' is not known; there are code, news"),
    ],
)
async def test_a_name_that_there_is_not_is_answered_with_those_that_there_are(
    client: Client, change: dict[str, Any], said: str
) -> None:
    assert (await refused(client, CODE | change))["detail"].startswith(said)


@pytest.mark.parametrize("field", ["user_id", "template"])
async def test_a_missing_field_is_refused_by_name(client: Client, field: str) -> None:
    assert (await refused(client, {name: value for name, value in CODE.items() if name != field}))["field"] == field


async def test_infinity_is_no_number(api: Api, client: Client) -> None:
    for raw in (b'{"user_id":"u","template":"code","params":{"n":1e999}}', b'{"user_id":"u","params":{"n":NaN}}'):
        answer = await client.post(PATH, data=raw, headers=key() | {"Content-Type": "application/json"})
        assert answer.status in (400, 422)
    assert not api.requested()


@pytest.mark.parametrize("name", ["", "x" * 129, "a\tb"])
async def test_a_wrong_idempotency_key_is_refused_400(client: Client, name: str) -> None:
    assert (await refused(client, CODE, 400, **{"Idempotency-Key": name}))["field"] == "Idempotency-Key"


async def test_a_missing_idempotency_key_is_refused_400(client: Client) -> None:
    assert (await client.post(PATH, json=CODE)).status == 400


async def test_a_body_of_64_kb_passes_and_one_byte_more_is_refused_413(api: Api, client: Client) -> None:
    empty = len(json.dumps(CODE | {"params": {"x": ""}}))
    fits = CODE | {"params": {"x": "y" * (65_536 - empty)}}
    assert (await client.post(PATH, json=fits, headers=key())).status == 202
    await refused(client, fits | {"params": {"x": "y" * (65_537 - empty)}}, 413)
    raw = json.dumps(fits).encode() + b" "

    async def unannounced() -> Any:
        yield raw

    headers = key("k2") | {"Content-Type": "application/json"}
    assert (await client.post(PATH, data=unannounced(), headers=headers)).status == 413
    assert len(api.requested()) == 1


async def test_what_is_announced_as_no_json_is_refused_415(client: Client) -> None:
    await refused(client, CODE, 415, **{"Content-Type": "text/plain"})
    await refused(client, CODE, 415, **{"Content-Type": "application/x-www-form-urlencoded"})


async def test_an_integer_user_is_the_same_user_as_its_digits(api: Api, client: Client) -> None:
    for name, user in (("a", 42), ("b", "42")):
        assert (await client.post(PATH, json=CODE | {"user_id": user}, headers=key(name))).status == 202
    assert [request.user_id for request in api.requested()] == ["42", "42"]


async def test_addresses_are_brought_into_one_form(api: Api, client: Client) -> None:
    to = {"email": "Jo@EXAMPLE.org", "phone": "+49 (170) 123-4567", "time_zone": "Europe/Vienna", "locale": "de-at"}
    assert (await client.post(PATH, json=CODE | {"to": to}, headers=key())).status == 202
    [request] = api.requested()
    assert request.to is not None
    assert (request.to.email, request.to.phone) == ("Jo@example.org", "+491701234567")
    assert (request.to.time_zone, request.to.locale) == ("Europe/Vienna", "de-AT")


async def test_a_start_may_lie_at_most_14_days_ahead_and_never_behind_the_expiry(api: Api, client: Client) -> None:
    now_ms, day_ms = api.clock.now_ms(), 86_400_000
    later = {"send_at": instant(now_ms + 14 * day_ms)}
    assert (await client.post(PATH, json=CODE | later, headers=key("k0"))).status == 202
    assert api.idempotency.kept_past_start_ms["k0"] == 14 * day_ms
    assert (await refused(client, CODE | {"send_at": instant(now_ms + 14 * day_ms + 1)}))["field"] == "send_at"
    turned = {"send_at": instant(now_ms + day_ms), "expires_at": instant(now_ms + day_ms)}
    assert (await refused(client, CODE | turned))["field"] == "expires_at"


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_names = ["user_id", "template", "params", "priority", "channels", "to", "send_at", "expires_at", "force", "recipients"]
_bodies = st.dictionaries(st.sampled_from([*_names, "campaign_id", "weight"]), _json, max_size=8)
_likely = st.fixed_dictionaries(
    {"user_id": st.just("u"), "template": st.just("code")}, optional=dict.fromkeys(_names[2:], _json)
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=_bodies | _likely | _json, name=st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=140)
)
async def test_no_json_whatever_makes_the_door_fail(client: Client, body: Any, name: str) -> None:
    raw = json.dumps(body).encode()
    for path in (PATH, "/v1/campaigns"):
        answer = await client.post(
            path, data=raw, headers={"Content-Type": "application/json", "Idempotency-Key": name}
        )
        assert answer.status in (202, 400, 409, 413, 422), await answer.text()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=300))
async def test_no_bytes_whatever_make_an_upload_fail(client: Client, raw: bytes) -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="campaign"\r\n\r\n'
    head += b'{"campaign_id":"c","template":"news"}\r\n--b\r\n'
    part = b'Content-Disposition: form-data; name="recipients"\r\nContent-Type: text/csv\r\n\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    for body in (raw, head + raw, head + part + raw, head + part + raw + b"\r\n--b--\r\n"):
        answer = await client.post("/v1/campaigns", data=body, headers=headers)
        assert answer.status in (202, 400, 413, 422), await answer.text()
