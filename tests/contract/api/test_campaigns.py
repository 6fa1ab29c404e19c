"""POST of campaigns, inline and streamed, and their reads, over HTTP on doubles."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient

from schemas import codec, keys, messages
from schemas.messages import CampaignStatus
from schemas.records import Outgoing
from schemas.standstill import WaitsFor
from schemas.topics import HEADERS_MAX_BYTES
from streams.page_records import MOST_BYTES
from tests.doubles.api import Api

Client = TestClient[Any, Any]
PATH = "/v1/campaigns"
NEWS: dict[str, Any] = {"campaign_id": "spring", "template": "news", "params": {"sale": "spring"}}
THREE = [
    {"user_id": "u1"},
    {"user_id": 2, "params": {"name": "Bo"}},
    {"user_id": "u3", "to": {"email": "c@example.org"}},
]
TOO_LONG = {"x": "y" * 65_529}
"""65,537 bytes of JSON text."""


def multipart(campaign: object, recipients: Any, kind: str = "application/x-ndjson") -> aiohttp.MultipartWriter:
    writer = aiohttp.MultipartWriter("form-data")
    writer.append_json(campaign).set_content_disposition("form-data", name="campaign")
    held = io.BytesIO(recipients) if isinstance(recipients, bytes) else recipients
    part = writer.append(held, {"Content-Type": kind})
    part.set_content_disposition("form-data", name="recipients")
    return writer


async def test_inline_recipients_become_pages_and_then_a_request(api: Api, client: Client) -> None:
    answer = await client.post(PATH, json=NEWS | {"recipients": THREE})
    assert answer.status == 202
    assert await answer.json() == {"campaign_id": "spring", "status": "accepted", "expected": 3}
    [page], [asked] = api.pages(), api.campaigns()
    assert [recipient.user_id for recipient in page.recipients] == ["u1", "2", "u3"]
    assert page.upload_id == asked.upload_id
    assert (asked.pages, asked.recipients, asked.first_offset, asked.last_offset) == (1, 3, 0, 0)
    assert asked.expires_at_ms == api.clock.now_ms() + 72 * 3_600_000


async def test_right_after_the_202_a_campaign_tells_the_truth(api: Api, client: Client) -> None:
    location = (await client.post(PATH, json=NEWS | {"recipients": THREE})).headers["Location"]
    body = await (await client.get(location)).json()
    assert body == {
        "campaign_id": "spring",
        "status": "running",
        "expected": 3,
        "progress": {"accepted": 3, "released": 0, "sent": 0, "delivered": 0},
        "outcomes": {},
        "reasons": {},
        "possible_duplicates": 0,
        "pace": 0.0,
        "pace_per_s": None,
        "weight": 1,
        "ends_about": None,
        "finished_at": None,
        "waits_for": None,
        "stalled_since": None,
    }


async def test_the_same_campaign_inline_as_lines_and_as_csv_is_one_campaign(api: Api, client: Client) -> None:
    recipients = [{"user_id": "u1", "params": {"name": "Al"}}, {"user_id": "2", "params": {"name": 'B "Bo", \nC'}}]
    lines = "\n".join(json.dumps(one) for one in recipients).encode()
    table = b'\xef\xbb\xbfuser_id,to.email,name\r\nu1,,Al\r\n2,,"B ""Bo"", \nC"\r\n'
    first = await client.post(PATH, json=NEWS | {"recipients": recipients})
    for body in (multipart(NEWS, lines), multipart(NEWS, table, "text/csv; charset=utf-8")):
        again = await client.post(PATH, data=body)
        assert (again.status, await again.json()) == (202, await first.json())
        assert again.headers["Idempotent-Replayed"] == "true"
    assert len(api.campaigns()) == len(api.pages()) == 1


async def test_a_table_may_show_the_address_that_it_also_sends_to(api: Api, client: Client) -> None:
    table = b"user_id,to.email,email,device\nu1,u1@x.example,u1 at x,a phone\n"
    assert (await client.post(PATH, data=multipart(NEWS, table, "text/csv"))).status == 202
    [page] = api.pages()
    [recipient] = page.recipients
    assert recipient.to is not None and recipient.to.email == "u1@x.example"
    assert json.loads(recipient.params) == {"email": "u1 at x", "device": "a phone"}


@pytest.mark.parametrize(
    "change",
    [
        {"template": "code"},
        {"params": {}},
        {"expires_at": "2026-12-05T00:00:00Z"},
        {"weight": 2},
        {"recipients": THREE[:2]},
    ],
)
async def test_the_same_id_with_other_content_is_refused(api: Api, client: Client, change: dict[str, Any]) -> None:
    await client.post(PATH, json=NEWS | {"recipients": THREE})
    other = await client.post(PATH, json=NEWS | {"recipients": THREE} | change)
    assert (other.status, (await other.json())["field"]) == (422, "campaign_id")
    assert len(api.campaigns()) == 1


async def test_an_odd_number_under_a_known_id_is_refused_like_any_other(api: Api, client: Client) -> None:
    await client.post(PATH, json=NEWS | {"recipients": THREE})
    other = await client.post(PATH, json=NEWS | {"recipients": THREE, "params": {"n": 2**64}})
    assert (other.status, (await other.json())["field"]) == (422, "params")


async def test_of_two_that_race_for_an_id_the_first_in_the_log_is_the_campaign(api: Api, client: Client) -> None:
    bodies = [NEWS | {"recipients": [{"user_id": f"u{number % 2}"}]} for number in range(8)]
    answers = await asyncio.gather(*(client.post(PATH, json=body) for body in bodies))
    winner = api.campaigns()[0]
    [page] = [page for page in api.pages() if page.upload_id == winner.upload_id]
    for body, answer in zip(bodies, answers, strict=True):
        same = body["recipients"][0]["user_id"] == page.recipients[0].user_id
        assert answer.status == (202 if same else 422)


async def test_an_idempotency_key_may_stand_for_the_id(api: Api, client: Client) -> None:
    body = {"template": "news", "recipients": THREE}
    first = await client.post(PATH, json=body, headers={"Idempotency-Key": "a b"})
    again = await client.post(PATH, json=body, headers={"Idempotency-Key": "a b"})
    assert first.status == again.status == 202
    assert (await first.json())["campaign_id"] == (await again.json())["campaign_id"]
    assert len(api.campaigns()) == 1
    assert (await client.post(PATH, json=body)).status == 400


async def test_a_long_stream_is_cut_into_pages_in_order(api: Api, client: Client) -> None:
    lines = b"".join(b'{"user_id":"u%d"}\n' % number for number in range(10_000))
    answer = await client.post(PATH, data=multipart(NEWS, lines))
    assert (await answer.json())["expected"] == 10_000
    pages, [asked] = api.pages(), api.campaigns()
    assert [page.page for page in pages] == list(range(40))
    assert all(len(page.recipients) == 250 for page in pages)
    assert (asked.pages, asked.last_offset - asked.first_offset) == (40, 39)
    assert pages[39].recipients[249].user_id == "u9999"


async def test_a_wrong_line_far_into_the_stream_refuses_all_of_it(api: Api, client: Client) -> None:
    lines = [b'{"user_id":"u%d"}' % number for number in range(80_000)]
    lines[69_999] = b'{"user_id":'
    answer = await client.post(PATH, data=multipart(NEWS, b"\n".join(lines)))
    body = await answer.json()
    assert (answer.status, body["field"]) == (422, "recipients")
    assert "line 70000:" in body["detail"]
    assert not api.campaigns()
    assert (await client.get(f"{PATH}/spring")).status == 404
    whole = await client.post(PATH, data=multipart(NEWS, b"\n".join(lines[:69_999])))
    assert whole.status == 202


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (b"user_id,name\nu1\n", "line 2: has 1 cells"),
        (b"user,name\nu1,x\n", "line 1:"),
        (b"user_id,user_id\nu1,u2\n", "line 1:"),
        (
            b"user_id,email,name\nu1,u1@x.example,Ann\n",
            "line 1: the column email would only be a value",
        ),
        (b"user_id,phone\nu1,+4915112345678\n", "; write to.phone (as well, if the template shows it)"),
        (b"user_id,to.email,locale\nu1,u1@x.example,de\n", "line 1: the column locale would only be"),
        (b"user_id,device.token\nu1,abc\n", "line 1: the column device.token cannot stand in a table"),
        (
            b"user_id,params.name\nu1,Ann\n",
            "is named without params.: name",
        ),
        (b'user_id,name\nu1,"x\ny"\nu2,"open\n', "a quoted cell does not end"),
        (b"user_id,to.email\nu1,nobody\n", "line 2: to.email"),
        (b"user_id,to.fax\nu1,1\n", "line 2: to.fax"),
        (b"user_id\n\xff\n", "line 2: is not UTF-8"),
        (b"", "line 1:"),
        (b"user_id\n", "is empty"),
    ],
)
async def test_a_wrong_table_is_refused_naming_the_line(api: Api, client: Client, table: bytes, words: str) -> None:
    answer = await client.post(PATH, data=multipart(NEWS, table, "text/csv"))
    assert answer.status == 422
    assert words in (await answer.json())["detail"]
    assert not api.campaigns()


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"recipients": []}, 422, "recipients"),
        ({}, 422, "recipients"),
        ({"recipients": [{"user_id": "a"}] * 10_001}, 422, "recipients"),
        ({"recipients": [{"user_id": True}]}, 422, "recipients.0.user_id"),
        ({"recipients": [{"user_id": 1}, {"user_id": 2, "params": {"n": 2**64}}]}, 422, "recipients.1.params"),
        ({"params": {"n": 2**64}, "recipients": THREE}, 422, "params"),
        pytest.param({"params": TOO_LONG, "recipients": THREE}, 422, "params", id="values_too_long"),
        ({"recipients": [*THREE, {"user_id": "u4", "params": TOO_LONG}]}, 422, "recipients.3.params"),
        ({"campaign_id": "a/b", "recipients": THREE}, 422, "campaign_id"),
        ({"template": "nope", "recipients": THREE}, 422, "template"),
        ({"weight": 0, "recipients": THREE}, 422, "weight"),
        ({"pace_per_s": 1.5, "recipients": THREE}, 422, "pace_per_s"),
        ({"expires_at": "2099-01-01T00:00:00Z", "recipients": THREE}, 422, "expires_at"),
        ({"speed": 1, "recipients": THREE}, 422, "speed"),
    ],
)
async def test_a_wrong_definition_is_refused_naming_the_field(
    api: Api, client: Client, change: dict[str, Any], status: int, field: str
) -> None:
    answer = await client.post(PATH, json=NEWS | change)
    assert (answer.status, (await answer.json())["field"]) == (status, field)
    assert not api.log.records(api.topics.campaign_requests, api.topics.audience)


async def test_the_longest_values_that_are_let_in_fit_into_what_dispatch_lets_go(api: Api, client: Client) -> None:
    """65,536 bytes of JSON text for the campaign, and pages as full as an upload makes them."""
    longest = {"x": "y" * 65_528}
    recipients = [{"user_id": f"u{n}", "params": longest} for n in range(40)]
    raw = json.dumps(NEWS | {"params": longest, "recipients": recipients}).encode()
    answer = await client.post(PATH, data=io.BytesIO(raw), headers={"Content-Type": "application/json"})
    assert answer.status == 202
    [asked], pages = api.campaigns(), api.pages()
    assert sum(len(page.recipients) for page in pages) == 40
    assert len(asked.params) == 65_536
    assert max(len(codec.encode(page)) for page in pages) + len(asked.params) + HEADERS_MAX_BYTES < MOST_BYTES


async def test_a_number_that_json_cannot_keep_is_refused_by_its_line(api: Api, client: Client) -> None:
    for number in (b"1e999", b"NaN", b"18446744073709551616"):
        lines = b'{"user_id":1}\n{"user_id":2,"params":{"n":' + number + b"}}"
        answer = await client.post(PATH, data=multipart(NEWS, lines))
        assert answer.status == 422
        assert "line 2" in (await answer.json())["detail"]
    assert not api.campaigns()


async def test_parts_in_the_wrong_order_or_too_many_are_refused(api: Api, client: Client) -> None:
    turned = aiohttp.MultipartWriter("form-data")
    turned.append("{}").set_content_disposition("form-data", name="recipients")
    turned.append_json(NEWS).set_content_disposition("form-data", name="campaign")
    more = multipart(NEWS, b'{"user_id":1}')
    more.append("x").set_content_disposition("form-data", name="more")
    only = aiohttp.MultipartWriter("form-data")
    only.append_json(NEWS).set_content_disposition("form-data", name="campaign")
    for body in (turned, more, only):
        assert (await client.post(PATH, data=body)).status == 400
    assert not api.campaigns()


async def test_a_stream_cut_off_before_its_end_sends_nothing(api: Api, client: Client) -> None:
    whole = b'--x\r\nContent-Disposition: form-data; name="campaign"\r\n\r\n' + json.dumps(NEWS).encode()
    whole += b'\r\n--x\r\nContent-Disposition: form-data; name="recipients"\r\n\r\n{"user_id":1}\n{"user_id":2}\n'
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    for end in (b"", b"\r\n--x"):
        answer = await client.post(PATH, data=whole + end, headers=headers)
        assert answer.status == 400
    assert not api.campaigns()
    assert (await client.post(PATH, data=whole + b"\r\n--x--\r\n", headers=headers)).status == 202


async def test_a_log_that_fails_in_the_middle_of_a_stream_sends_nothing(api: Api, client: Client) -> None:
    async def lines() -> AsyncIterator[bytes]:
        for number in range(20_000):
            api.log.fail = number > 15_000
            yield b'{"user_id":%d}\n' % number

    answer = await client.post(PATH, data=multipart(NEWS, lines()))
    assert answer.status == 503
    api.log.fail = False
    assert not api.campaigns()


def progress(partition: int, version: int, finished: int, **outcomes: int) -> messages.CampaignProgress:
    sent = outcomes.get("sent", 0) + outcomes.get("delivered", 0)
    delivered = outcomes.get("delivered", 0)
    reasons = {"opted_out": outcomes["suppressed"]} if "suppressed" in outcomes else {}
    return messages.CampaignProgress(
        "default", "spring", partition, version, 9, finished, sent, delivered, outcomes, reasons, 1
    )


def state(status: CampaignStatus, version: int, **more: Any) -> messages.CampaignState:
    base = messages.CampaignState(
        "default", "spring", "news", status, 3, 3, 0, 0, 0, {}, {}, 0, 1, version, 1, None, 1,
    )  # fmt: skip
    return replace(base, **more)


async def write(api: Api, topic: str, *values: messages.Message) -> None:
    await api.log.publish([Outgoing(topic, b"default/spring", codec.encode(value)) for value in values])


async def test_counts_are_the_sums_of_the_newest_vectors(api: Api, client: Client) -> None:
    await client.post(PATH, json=NEWS | {"recipients": THREE})
    newest = progress(0, 7, 2, delivered=1, suppressed=1)
    await write(api, api.topics.progress, newest, progress(1, 3, 1, sent=1), progress(0, 6, 1, sent=1))
    await write(api, api.topics.cursor, messages.CampaignCursor("default", "spring", 1, 1, 1, 3, 0))
    body = await (await client.get(f"{PATH}/spring")).json()
    assert body["progress"] == {"accepted": 3, "released": 3, "sent": 2, "delivered": 1}
    assert body["outcomes"] == {"delivered": 1, "suppressed": 1, "sent": 1}
    assert body["reasons"] == {"opted_out": 1}
    assert body["possible_duplicates"] == 2


@pytest.mark.parametrize("away", [WaitsFor.LOG, WaitsFor.REDIS])
async def test_what_is_away_is_what_every_campaign_waits_for_that_should_move(
    api: Api, client: Client, away: WaitsFor
) -> None:
    """Whatever dispatch last wrote: it cannot write while the log is away."""

    async def waits_for(campaign: str = "spring") -> str | None:
        body: dict[str, str | None] = await (await client.get(f"{PATH}/{campaign}")).json()
        return body["waits_for"]

    for name in ("spring", "paused"):
        await client.post(PATH, json=NEWS | {"campaign_id": name, "recipients": THREE})
    await client.post(f"{PATH}/paused/pause")
    api.away = away
    assert await waits_for() == away
    assert await waits_for("paused") == WaitsFor.RESUME
    await write(api, api.topics.campaign_state, state(CampaignStatus.RUNNING, 1, waits_for=WaitsFor.HOLD))
    assert await waits_for() == WaitsFor.HOLD
    await write(api, api.topics.campaign_state, state(CampaignStatus.RUNNING, 2, waits_for=WaitsFor.SENDERS))
    assert await waits_for() == away
    api.away = None
    assert await waits_for() == WaitsFor.SENDERS
    api.away = away
    await write(api, api.topics.campaign_state, state(CampaignStatus.PROCESSED, 3, finished_at=2))
    assert await waits_for() is None


async def test_the_end_is_told_from_the_pace(api: Api, client: Client) -> None:
    await client.post(PATH, json=NEWS | {"recipients": [{"user_id": number} for number in range(1_000)]})
    for second in range(5):
        await write(api, api.topics.progress, progress(0, second, 100 * second, sent=100 * second))
        api.clock.advance(1_000)
    body = await (await client.get(f"{PATH}/spring")).json()
    assert body["pace"] == 100.0
    assert body["ends_about"] is not None
    api.clock.advance(60_000)
    body = await (await client.get(f"{PATH}/spring")).json()
    assert (body["pace"], body["ends_about"]) == (0.0, None)


async def test_the_list_shows_the_newest_first_and_only_the_own_tenants(api: Api, client: Client) -> None:
    for name in ("a", "b", "c"):
        await client.post(PATH, json=NEWS | {"campaign_id": name, "recipients": THREE})
        api.clock.advance(1_000)
    body = await (await client.get(f"{PATH}?limit=2")).json()
    assert [campaign["campaign_id"] for campaign in body["campaigns"]] == ["c", "b"]
    assert (await client.get(f"{PATH}?limit=0")).status == 422


async def test_a_recipient_is_accepted_until_its_row_speaks_and_can_be_cancelled(api: Api, client: Client) -> None:
    await client.post(PATH, json=NEWS | {"recipients": THREE})
    notification_id = api.ids.notification_id("default", keys.recipient_address("spring", 0, 1))
    body = await (await client.get(f"/v1/notifications/{notification_id}")).json()
    assert body["status"] == "accepted"
    assert (await client.delete(f"/v1/notifications/{notification_id}")).status == 202
    assert ("default", "2", keys.recipient_intent("default", "spring", "2")) in api.cancellations.flags
    unknown = api.ids.notification_id("default", keys.recipient_address("spring", 1, 0))
    assert (await client.get(f"/v1/notifications/{unknown}")).status == 404


async def test_a_finished_campaign_shows_its_public_state(api: Api, client: Client) -> None:
    await client.post(PATH, json=NEWS | {"recipients": THREE})
    now_ms = api.clock.now_ms()
    state = messages.CampaignState(
        "default", "spring", "news", CampaignStatus.PARTIALLY_PROCESSED, 3, 3, 3, 2, 1,
        {"delivered": 1, "sent": 1, "failed": 1}, {"template_error": 1}, 0, 1, 9, now_ms, now_ms, now_ms,
    )  # fmt: skip
    await write(api, api.topics.campaign_state, state)
    body = await (await client.get(f"{PATH}/spring")).json()
    assert body["status"] == "partially_processed"
    assert body["outcomes"] == {"delivered": 1, "sent": 1, "failed": 1}
    assert body["ends_about"] is None
