"""What a caller may do with people, and what they get to see of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
from redis.asyncio import Redis

from schemas import keys, timeline
from schemas.records import Outgoing
from schemas.trips import Epoch
from tests.integration.people.api_client import TOPICS, Client, People
from tests.integration.people.commands import run

USER = "/v1/users/jane%20doe%2F1"
PROFILE = {"email": "Jane@Example.org", "phone": "+49 170 1234567", "locale": "de_at", "time_zone": "Europe/Vienna"}


@pytest.fixture
def people(redis: Redis, epoch: Epoch, tenant: str) -> People:
    return People(redis, epoch, tenant)


@pytest.fixture
async def client(people: People) -> AsyncIterator[Client]:
    async with people.serving() as serving:
        yield serving


async def call(client: Client, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    async with client.request(method, path, json=body) as response:
        return response.status, await response.json(content_type=None) if response.status != 204 else None


async def test_a_written_profile_is_read_back_in_normal_form_and_may_be_written_back_unchanged(client: Client) -> None:
    status, written = await call(client, "PUT", USER, PROFILE)
    assert (status, written) == (
        200,
        {
            "user_id": "jane doe/1",
            "email": "Jane@example.org",
            "phone": "+491701234567",
            "locale": "de-AT",
            "time_zone": "Europe/Vienna",
            "devices": [],
            "opt_outs": [],
        },
    )
    assert await call(client, "GET", USER) == (200, written)
    assert await call(client, "PUT", USER, written) == (200, written)


async def test_a_patch_changes_what_it_names_and_null_empties(client: Client) -> None:
    await call(client, "PUT", USER, PROFILE)
    _, user = await call(client, "PATCH", USER, {"locale": "en", "phone": None})
    assert (user["email"], user["locale"], user["phone"]) == ("Jane@example.org", "en", None)


async def test_two_changes_at_the_same_moment_are_both_kept(client: Client) -> None:
    await call(client, "PUT", USER, PROFILE)
    await asyncio.gather(*[call(client, "PATCH", USER, {name: None}) for name in ("phone", "locale", "time_zone")])
    _, user = await call(client, "GET", USER)
    assert (user["email"], user["phone"], user["locale"], user["time_zone"]) == ("Jane@example.org", None, None, None)


async def test_no_profile_write_undoes_an_opt_out_and_the_whole_list_does(client: Client) -> None:
    await call(client, "PUT", USER, PROFILE)
    opt_outs = [{"channel": "email", "kind": "news"}, {"channel": "*", "kind": "marketing"}]
    await call(client, "PUT", USER + "/preferences", {"opt_outs": opt_outs})
    for method in ("PUT", "PATCH"):
        _, user = await call(client, method, USER, {**PROFILE, "opt_outs": []})
        assert len(user["opt_outs"]) == 2
    _, user = await call(client, "PUT", USER + "/preferences", {"opt_outs": opt_outs[:1]})
    assert user["opt_outs"] == opt_outs[:1]


async def test_somebody_without_a_profile_can_opt_out(client: Client) -> None:
    status, user = await call(
        client, "PUT", "/v1/users/nobody/preferences", {"opt_outs": [{"channel": "*", "kind": "*"}]}
    )
    assert status == 200
    assert user["opt_outs"] == [{"channel": "*", "kind": "*"}]


async def test_devices_come_and_go_and_a_user_keeps_the_newest(client: Client, people: People) -> None:
    for number in range(people.parts.devices + 1):
        body = {"token": f"t{number}", "platform": "ios", "registered_at": f"2026-01-01T00:00:{number:02}Z"}
        await call(client, "PUT", f"{USER}/devices/d%2F{number}", body)
    _, user = await call(client, "GET", USER)
    assert [device["token"] for device in user["devices"]] == [f"t{n}" for n in range(people.parts.devices, 0, -1)]
    assert await call(client, "DELETE", f"{USER}/devices/d%2F7") == (204, None)
    _, user = await call(client, "GET", USER)
    assert "d/7" not in [device["id"] for device in user["devices"]]


@pytest.mark.parametrize(
    "registered_at",
    ["0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z", "2999-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00"],
)
async def test_a_device_registered_at_no_likely_time_is_refused_and_its_user_stays_readable(
    client: Client, registered_at: str
) -> None:
    """It would be the newest device for ever; and some such times can be stored, and never be shown again."""
    device = {"token": "t1", "platform": "ios", "registered_at": registered_at}
    status, told = await call(client, "PUT", f"{USER}/devices/d", device)
    assert (status, told["field"]) == (422, "registered_at")
    status, told = await call(client, "PUT", USER, PROFILE | {"devices": [device | {"registered_at": None}, device]})
    assert (status, told["field"]) == (422, "devices.1.registered_at")
    assert (await call(client, "PUT", USER, PROFILE))[0] == 200
    status, user = await call(client, "GET", USER)
    assert (status, user["devices"]) == (200, [])


async def test_a_written_list_of_devices_replaces_what_was_there(client: Client) -> None:
    await call(client, "PUT", f"{USER}/devices/old", {"token": "t1", "platform": "web"})
    _, user = await call(client, "PUT", USER, {"devices": [{"token": "t2", "platform": "android", "id": "new"}]})
    assert [device["id"] for device in user["devices"]] == ["new"]


async def test_an_erased_user_is_gone_at_once_and_leaves_no_address_in_the_log(client: Client, people: People) -> None:
    await call(client, "PUT", USER, PROFILE)
    await call(client, "PUT", f"{USER}/devices/phone", {"token": "t1", "platform": "ios"})
    for _ in range(2):
        assert (await call(client, "DELETE", USER))[0] == 202
        assert (await call(client, "GET", USER))[0] == 404
    assert (await people.profiles.load(people.tenant, "jane doe/1")).erased
    newest = {record.key: record.value for record in people.log.records(TOPICS.recipients)}
    assert not any(b"example.org" in (value or b"") or b"t1" in (value or b"") for value in newest.values())
    assert (await call(client, "PUT", f"{USER}/devices/phone", {"token": "t1", "platform": "ios"}))[0] == 404
    assert (await call(client, "PUT", USER, PROFILE))[0] == 200


async def test_all_facets_of_a_user_lie_in_one_partition(client: Client, people: People) -> None:
    await call(client, "PUT", USER, {**PROFILE, "opt_outs": [{"channel": "sms", "kind": "*"}]})
    for number in range(5):
        await call(client, "PUT", f"{USER}/devices/{number}", {"token": "t", "platform": "ios"})
    assert len({record.partition for record in people.log.records(TOPICS.recipients)}) == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("PUT", USER, {"email": "nope"}, "email"),
        ("PUT", USER, {"phone": "0170"}, "phone"),
        ("PUT", USER, {"time_zone": "Mars/Olympus"}, "time_zone"),
        ("PUT", USER, {"user_id": "somebody else"}, "user_id"),
        ("PUT", USER, {"nickname": "x"}, "nickname"),
        ("PUT", USER, {"devices": [{"token": "t", "platform": "fridge"}]}, "devices.0.platform"),
        ("PUT", USER, {"devices": [{"token": "t", "platform": "ios"}] * 21}, "devices"),
        ("PUT", "/v1/users/" + "x" * 129, {}, "id"),
        ("PUT", "/v1/users/a%0Ab", {}, "id"),
        ("PUT", USER + "/devices/d", {"token": "", "platform": "ios"}, "token"),
        ("PUT", USER + "/devices/d", {"token": "t", "platform": "ios", "id": "e"}, "id"),
        ("PUT", USER + "/preferences", {"opt_outs": [{"channel": "fax", "kind": "*"}]}, "opt_outs.0.channel"),
        ("PUT", USER + "/preferences", {"opt_outs": [{"channel": "email", "kind": ""}]}, "opt_outs.0.kind"),
        ("POST", USER + "/inbox/read", {}, "ids"),
        ("GET", "/v1/suppressions/push/x", None, "channel"),
        ("GET", "/v1/suppressions/email/x", None, "address"),
    ],
)
async def test_bad_input_is_refused_naming_the_field_and_nothing_is_written(
    client: Client, people: People, method: str, path: str, body: Any, field: str
) -> None:
    status, problem = await call(client, method, path, body)
    assert (status, problem["field"]) == (422, field)
    assert people.log.records(TOPICS.recipients) == []


async def test_an_unknown_user_is_a_404_to_read_and_to_change(client: Client) -> None:
    assert (await call(client, "GET", USER))[0] == 404
    assert (await call(client, "PATCH", USER, {"locale": "de"}))[0] == 404


async def test_a_write_that_the_log_did_not_take_is_a_503_and_changes_nothing(client: Client, people: People) -> None:
    await call(client, "PUT", USER, PROFILE)
    people.log.fail = True
    assert (await call(client, "PUT", USER, {}))[0] == 503
    assert (await call(client, "GET", USER))[1]["email"] == "Jane@example.org"


async def test_a_suppressed_address_is_shown_with_its_cause_and_can_be_lifted(client: Client, people: People) -> None:
    path = "/v1/suppressions/email/jane@example.org"
    assert (await call(client, "GET", path))[0] == 404
    hashed = keys.address_hash("email", "Jane@example.org")
    key = keys.suppression_key(people.tenant, "email", hashed).encode()
    [placed] = await people.log.publish([Outgoing(TOPICS.suppressions, key, b"complained")])
    await people.suppressions.apply(people.tenant, "email", hashed, placed.offset, "complained")
    status, shown = await call(client, "GET", path)
    assert (status, shown["cause"]) == (200, "complained")
    assert await call(client, "DELETE", path) == (204, None)
    assert (await call(client, "GET", path))[0] == 404
    lifted = people.log.records(TOPICS.suppressions)[-1]
    assert (lifted.key, lifted.value) == (key, None)


async def test_support_sees_the_newest_notifications_first_without_those_older_than_30_days(
    client: Client, people: People, redis: Redis
) -> None:
    now_ms = people.parts.clock.now_ms()
    for days in (31, 2, 1):
        at_ms = now_ms - days * 86_400_000
        entry = timeline.Entry(at_ms, f"n{days}", "push", "1a2b3c4d", "welcome", "suppressed", "opted_out")
        await run(redis, "LPUSH", keys.redis_timeline(people.tenant, "jane doe/1"), timeline.pack(entry))
    _, shown = await call(client, "GET", USER + "/notifications")
    assert [entry["notification_id"] for entry in shown["notifications"]] == ["n1", "n2"]
    assert shown["notifications"][0]["reason"] == "opted_out"


async def test_every_operation_is_described(client: Client) -> None:
    _, document = await call(client, "GET", "/openapi.json")
    assert {"put", "get", "patch", "delete"} == set(document["paths"]["/v1/users/{id}"])
    assert "/v1/users/{id}/inbox/stream" in document["paths"]


async def test_who_reads_a_users_list_is_told_where_reports_of_providers_stand(client: Client) -> None:
    _, document = await call(client, "GET", "/openapi.json")
    summary = document["paths"]["/v1/users/{id}/notifications"]["get"]["summary"]
    assert summary.endswith("what a provider reports later (delivered, bounced, ...) is told by /v1/notifications/{id}")


async def test_everybody_who_can_be_sent_to_can_be_read_changed_and_erased_whatever_the_id_holds(
    client: Client,
) -> None:
    path = "/v1/users/" + quote("a/b:{c}%?#{}", safe="")
    status, written = await call(client, "PUT", path, PROFILE)
    assert (status, written["user_id"]) == (200, "a/b:{c}%?#{}")
    assert (await call(client, "PUT", f"{path}/devices/{quote('{d}', safe='')}", {"token": "t", "platform": "ios"}))[
        0
    ] < 300
    assert (await call(client, "GET", f"{path}/notifications"))[0] == 200
    assert (await call(client, "GET", f"{path}/inbox"))[0] == 200
    assert (await call(client, "GET", "/v1/suppressions/email/" + quote("{x}@example.org", safe="")))[1]["detail"] != (
        "there is nothing at this address"
    )
    assert (await call(client, "DELETE", path))[0] == 202
