"""The story of one message over HTTP: from every source that answers, naming those that do not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from producers.api import explanations
from producers.api.app import build_app
from producers.api.explanations import ExplainParts
from producers.explaining.history import History
from schemas import codec, keys, messages
from schemas.backstage import ClaimState, ClaimView
from schemas.keys import Address
from schemas.messages import Channel, EventKind, StatusEvent
from schemas.records import Outgoing
from schemas.standstill import WaitsFor
from schemas.stores import DeliveryView, SlotView
from tests.doubles.api import CODE, Api, key
from tests.doubles.backstage import MemoryBackstage

Client = TestClient[Any, Any]
PATH = "/v1/notifications"
NEWS: dict[str, Any] = {"campaign_id": "spring", "template": "news", "params": {}}


@pytest.fixture
def backstage() -> MemoryBackstage:
    return MemoryBackstage()


@pytest.fixture
async def client(api: Api, backstage: MemoryBackstage) -> AsyncIterator[Client]:
    counts = {api.topics.status: api.log.partition_count}
    history = History(api.log, api.log, api.topics.status, counts, api.clock)
    serves = {Channel.SMS: ("texter",), Channel.EMAIL: ("mail",)}
    app = build_app(api.parts)
    explanations.register(app, ExplainParts(backstage, backstage, history, {"default": "Europe/Berlin"}, serves, 8))
    await api.parts.campaigns.open(api.log)
    async with TestClient(TestServer(app)) as client:
        yield client


async def accepted(client: Client) -> str:
    answer = await client.post(PATH, json=CODE, headers=key())
    return str((await answer.json())["notification_id"])


async def told(client: Client, path: str) -> tuple[dict[str, Any], str]:
    """The answer, and all of its sentences."""
    answer = await client.get(path)
    assert answer.status == 200, await answer.text()
    body: dict[str, Any] = await answer.json()
    lines = [body["in_short"], *(line for section in body["story"] for line in section["lines"]), *body["missing"]]
    return body, "\n".join(lines)


async def write(api: Api, address: Address, *events: StatusEvent) -> None:
    batch = messages.StatusBatch("default", address.row, events)
    key_ = keys.row_key("default", address.row).encode()
    await api.log.publish([Outgoing(api.topics.status, key_, codec.encode(batch))])


def view(state: str, **more: Any) -> SlotView:
    given: dict[str, Any] = {"reason": "", "provider": "", "calls": 0, "until_ms": 0} | more
    one = DeliveryView(
        "sms", "", state, given["reason"], "", given["provider"], given["calls"], 0, given["until_ms"], 0
    )
    return SlotView(state, given["reason"], "", "u1", "code", 1, (one,))


async def test_the_request_the_row_the_claim_and_the_log_are_told_as_one_story(
    api: Api, client: Client, backstage: MemoryBackstage
) -> None:
    notification_id = await accepted(client)
    address, now_ms = api.address(notification_id), api.clock.now_ms()
    api.reads.put("default", address, view("retrying", reason="provider_error", calls=1, until_ms=now_ms + 5_000))
    backstage.claimed[keys.single_intent("default", "k1"), "sms"] = ClaimView(ClaimState.WAITING, 1, 0, tries=1)
    failure = StatusEvent(
        address.slot, EventKind.RETRYING, now_ms, "sms", call=1, provider="texter", reason="provider_error"
    )
    await write(api, address, failure)
    other = keys.Address(address.row, address.slot + 1)
    await write(api, other, StatusEvent(other.slot, EventKind.SENT, now_ms, "sms", call=1, provider="else"))

    body, text = await told(client, f"{PATH}/{notification_id}/explain")
    assert body["status"] == "retrying"
    assert "Template code (transactional), for user u1." in text
    assert "in Asia/Tokyo)" in text
    assert "call 1 to texter: the provider had an error" in text
    assert "Next: it is tried again by texter at" in text
    assert "1 of 8 tries are used up." in text
    assert "If it fails for good: email." in text
    assert "else" not in text
    assert "123456" not in text
    assert body["missing"] == []


async def test_what_senders_know_of_an_event_published_directly_is_told(
    api: Api, client: Client, backstage: MemoryBackstage
) -> None:
    event = messages.NotificationRequested("", "e1", "u1", "code", '{"code": "1"}')
    address, now_ms = await api.publish_event(event), api.clock.now_ms()
    retrying = view("retrying", reason="provider_error", calls=1, until_ms=now_ms + 5_000)
    api.reads.put("default", address, retrying)
    backstage.claimed[keys.single_intent("default", "e1"), "sms"] = ClaimView(ClaimState.WAITING, 1, 0, tries=1)
    _, text = await told(client, f"{PATH}/{api.ids.notification_id('default', address)}/explain")
    assert "Asked for by an event published on the log at" in text
    assert "1 of 8 tries are used up." in text


@pytest.mark.parametrize(
    ("reason", "detail", "shown"),
    [
        ("suppressed_address", "mailbox of anna@example.org is gone", "mailbox of (hidden) is gone"),
        ("in_digest", "in digest n22345672345674444", "in digest n22345672345674444"),
    ],
)
async def test_programs_are_told_no_more_of_a_providers_words_than_people(
    api: Api, client: Client, reason: str, detail: str, shown: str
) -> None:
    notification_id = await accepted(client)
    ended = view("suppressed", reason=reason)
    [delivery] = ended.deliveries
    ended = replace(ended, deliveries=(replace(delivery, detail=detail),))
    api.reads.put("default", api.address(notification_id), ended)
    body, text = await told(client, f"{PATH}/{notification_id}/explain")
    assert [one["detail"] for one in body["deliveries"]] == [shown]
    assert f"Details: {shown}." in text


async def test_with_redis_and_the_rows_away_the_log_alone_tells_how_it_stands(
    api: Api, client: Client, backstage: MemoryBackstage
) -> None:
    notification_id = await accepted(client)
    address, now_ms = api.address(notification_id), api.clock.now_ms()
    plan = StatusEvent(address.slot, EventKind.PLANNED, now_ms, plan=("sms",), source_offset=0, user_id="u1")
    await write(api, address, plan, StatusEvent(address.slot, EventKind.SENT, now_ms, "sms", call=1, provider="texter"))
    backstage.is_away = api.reads.is_recovering = True
    body, text = await told(client, f"{PATH}/{notification_id}/explain")
    assert body["status"] == "sent"
    assert "call 1 to texter: accepted" in text
    assert "Redis could not be read: Redis does not answer." in text
    assert "The status row could not be read: the owner of this row is still recovering." in text
    assert "in Europe/Berlin)" in text


@pytest.mark.parametrize("has_row", [True, False])
async def test_while_the_log_is_away_it_says_that_this_is_what_it_waits_for(
    api: Api, client: Client, backstage: MemoryBackstage, has_row: bool
) -> None:
    notification_id = await accepted(client)
    if has_row:
        api.reads.put("default", api.address(notification_id), view("retrying", reason="provider_error", calls=1))
    else:
        api.reads.is_recovering = True
    api.away = WaitsFor.LOG
    backstage.is_away = True
    body, text = await told(client, f"{PATH}/{notification_id}/explain")
    assert body["status"] == ("retrying" if has_row else "accepted")
    assert text.count("Nothing new is sent while the log (Kafka) does not answer") == 1
    assert "The log could not be read: it does not answer." in body["missing"]
    assert "while Redis cannot be used" not in text, "it is not what is next"


async def test_one_delivery_is_asked_about_by_its_own_id(api: Api, client: Client) -> None:
    notification_id = await accepted(client)
    two = (*view("sent").deliveries, DeliveryView("push", "1a2b3c4d", "failed", "too_old", "", "", 0, 0, 0, 0))
    slot = SlotView("sent", "", "", "u1", "code", 1, two)
    api.reads.put("default", api.address(notification_id), slot)
    body, _ = await told(client, f"{PATH}/{notification_id}.push.1a2b3c4d/explain")
    assert body["status"] == "failed"
    assert [one["channel"] for one in body["deliveries"]] == ["push"]


async def test_a_recipient_is_found_by_campaign_and_user(api: Api, client: Client) -> None:
    recipients = [{"user_id": f"u{number}"} for number in range(600)]
    await client.post("/v1/campaigns", json=NEWS | {"recipients": recipients})
    body, text = await told(client, "/v1/campaigns/spring/recipients/u555/explain")
    assert api.address(body["notification_id"]) == keys.recipient_address("spring", 2, 55)
    assert "Asked for as part of the campaign spring" in text and "for user u555." in text
    for path, why in (
        ("spring/recipients/nobody", "user: 'nobody' is not in the campaign spring"),
        ("autumn/recipients/u1", "no such campaign: 'autumn'"),
    ):
        answer = await client.get(f"/v1/campaigns/{path}/explain")
        assert answer.status == 404 and (await answer.json())["detail"].startswith(why)


async def test_what_was_never_accepted_has_no_story(api: Api, client: Client) -> None:
    address = api.address(await accepted(client))
    beyond = api.ids.notification_id("default", keys.Address(address.row, address.slot + 1))
    assert (await client.get(f"{PATH}/{beyond}/explain")).status == 404
    unknown = await client.get(f"{PATH}/nonsense/explain")
    assert unknown.status == 404 and "no such notification: 'nonsense'" in (await unknown.json())["detail"]
