"""Promise 10: bad input gets a clear refusal at the door, naming the field; nothing of it is sent."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

from tests.acceptance import people
from tests.acceptance.world import PUSH, World

GOOD: dict[str, Any] = {"user_id": "ann", "template": "alert", "params": {"text": "x"}, "to": people.to_device("ann")}


def _changed(**fields: Any) -> bytes:
    return json.dumps({**GOOD, **fields}).encode()


REFUSED: dict[str, tuple[bytes, int, str]] = {
    "broken JSON": (b'{"user_id": "ann", ', 400, ""),
    "no object": (b"[]", 422, ""),
    "an unknown template": (_changed(template="nothing"), 422, "template"),
    "an unknown field": (_changed(colour="red"), 422, "colour"),
    "no user": (_changed(user_id=""), 422, "user_id"),
    "a channel the template does not speak on": (_changed(channels=["email"]), 422, "channels"),
    "a raised priority": (_changed(template="news", priority="transactional"), 422, "priority"),
    "a phone number of no country": (_changed(to={"phone": "12345"}), 422, "to.phone"),
    "an address without a domain": (_changed(to={"email": "ann"}), 422, "to.email"),
    "an unknown time zone": (_changed(to={"time_zone": "Mars/Base"}), 422, "to.time_zone"),
    "a time without zone": (_changed(expires_at="2030-01-01T00:00:00"), 422, "expires_at"),
    "an expiry in the past": (_changed(expires_at="2020-01-01T00:00:00Z"), 422, "expires_at"),
    "a lone surrogate": (b'{"user_id": "\\ud800", "template": "alert"}', 400, ""),
    "64 KB and one byte": (_changed(params={"text": ""}).replace(b'""', b'"' + b"x" * 65_536 + b'"'), 413, ""),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_request_is_refused_naming_what_is_wrong(world: World, what: str) -> None:
    body, status, field = REFUSED[what]
    headers = {"Idempotency-Key": world.name("bad"), "Content-Type": "application/json"}
    answer = await world.ask("POST", "/v1/notifications", data=body, headers=headers)
    assert answer.status in (status, 422) and 400 <= answer.status < 500, answer
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert answer.body["detail"] and answer.body.get("field", "").startswith(field), answer.body


async def test_one_request_of_two_megabytes_is_refused_and_takes_none_of_those_beside_it_along(world: World) -> None:
    """K40."""
    users = [world.name(f"small{number}") for number in range(999)]
    large = _changed(params={"text": "x" * 2_000_000})
    at_once = asyncio.Semaphore(20)

    async def refused() -> int:
        headers = {"Idempotency-Key": world.name("large"), "Content-Type": "application/json"}
        return (await world.ask("POST", "/v1/notifications", data=io.BytesIO(large), headers=headers)).status

    async def accepted(user: str) -> None:
        async with at_once:
            await world.notify(user, "alert", key=user, params={"text": "x"}, to=people.to_device(user))

    half = len(users) // 2
    before = [asyncio.create_task(accepted(user)) for user in users[:half]]
    status = asyncio.create_task(refused())
    await asyncio.gather(*before, *map(accepted, users[half:]))
    assert await status == 413

    async def sends() -> set[tuple[int, int]]:
        return set((await world.calls(PUSH, map(people.push_key, users))).values())

    await world.until(sends, lambda seen: seen == {(1, 1)}, "all others are sent")


async def test_a_key_is_needed_and_belongs_to_one_body(world: World) -> None:
    key = world.name("key")

    async def post(headers: dict[str, str], **fields: Any) -> int:
        return (await world.ask("POST", "/v1/notifications", json={**GOOD, **fields}, headers=headers)).status

    assert await post({}) == 400
    assert await post({"Idempotency-Key": "x" * 129}) == 400
    assert await post({"Idempotency-Key": key}) == 202
    assert await post({"Idempotency-Key": key}, user_id="bob") == 422
    assert await post({"Idempotency-Key": key}) == 202


async def test_what_was_refused_leaves_nothing_under_its_key(world: World) -> None:
    key = world.name("mended")
    bad = {**GOOD, "template": "nothing"}
    answer = await world.ask("POST", "/v1/notifications", json=bad, headers={"Idempotency-Key": key})
    assert answer.status == 422
    await world.until_status(await world.notify("ann", "alert", key, params={"text": "x"}, to=GOOD["to"]), "delivered")
    assert await world.calls(PUSH, [people.push_key(key)]) == {people.push_key(key): (1, 1)}


async def test_a_campaign_is_refused_whole(world: World) -> None:
    for wrong, field in (
        ({"recipients": []}, "recipients"),
        ({"recipients": [{"user_id": "ann"}, {"user_id": ""}]}, "recipients"),
        ({"recipients": [{"user_id": "ann"}], "template": "nothing"}, "template"),
        ({"recipients": [{"user_id": "ann"}], "pace_per_s": 0}, "pace_per_s"),
    ):
        body = {"campaign_id": world.name("bad"), "template": "news", **wrong}
        answer = await world.ask("POST", "/v1/campaigns", json=body)
        assert answer.status == 422 and answer.body["field"].startswith(field), answer
    assert (await world.ask("GET", f"/v1/campaigns/{world.name('bad')}")).status == 404


async def test_ids_that_were_never_given_are_unknown(world: World) -> None:
    sent = await world.notify("ann", "alert", params={"text": "x"}, to=GOOD["to"])
    for wrong in (sent[:9] + ("a" if sent[9] != "a" else "b") + sent[10:], "n", "nonsense", sent + "a"):
        assert (await world.ask("GET", f"/v1/notifications/{wrong}")).status == 404, wrong
