"""POST, GET and DELETE of single notifications over HTTP, on doubles that their own suites certify."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from schemas import codec, keys, messages
from schemas.stores import DeliveryView, SlotView
from tests.doubles.api import CODE, Api, key

Client = TestClient[Any, Any]
PATH = "/v1/notifications"


async def test_a_request_is_answered_202_once_the_log_has_it(api: Api, client: Client) -> None:
    answer = await client.post(PATH, json=CODE, headers=key())
    body = await answer.json()
    assert answer.status == 202
    assert body["status"] == "accepted"
    assert answer.headers["Location"] == f"{PATH}/{body['notification_id']}"
    [request] = api.requested()
    assert (request.user_id, request.template, request.params) == ("u1", "code", '{"code":"123456"}')
    assert request.event_id == "k1"
    assert request.accepted_at_ms == api.clock.now_ms()
    assert request.expires_at_ms == api.clock.now_ms() + 20 * 3_600_000


async def test_the_id_names_the_place_of_the_accepted_record(api: Api, client: Client) -> None:
    answer = await client.post(PATH, json=CODE, headers=key())
    address = api.address((await answer.json())["notification_id"])
    [record] = api.log.records(api.topics.requests("default"))
    epoch, partition, offset = keys.single_place(address)
    assert (partition, offset) == (record.partition, record.offset)
    assert epoch == api.parts.entries.epoch(record.topic)
    assert record.key == b"default/u1"


async def test_transactional_and_bulk_enter_by_their_own_topics(api: Api, client: Client) -> None:
    for name, change in (("a", {}), ("b", {"priority": "bulk"}), ("c", {"template": "news", "params": {}})):
        answer = await client.post(PATH, json=CODE | change, headers=key(name))
        assert answer.status == 202
    assert len(api.log.records(api.topics.requests("default"))) == 1
    assert len(api.log.records(api.topics.requests_bulk("default"))) == 2


async def test_the_trace_of_the_caller_travels_on_the_record(api: Api, client: Client) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
    answer = await client.post(PATH, json=CODE, headers=key() | {"traceparent": trace, "X-Request-Id": "r-7"})
    [record] = api.log.records(api.topics.requests("default"))
    carried = (record.header("traceparent") or b"").decode()
    assert carried.split("-")[1] == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert carried.split("-")[2] != "00f067aa0ba902b7"
    assert answer.headers["X-Request-Id"] == "r-7"


async def test_a_request_without_a_trace_gets_one(api: Api, client: Client) -> None:
    await client.post(PATH, json=CODE, headers=key() | {"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-00"})
    [record] = api.log.records(api.topics.requests("default"))
    assert (record.header("traceparent") or b"").split(b"-")[1] != b"0" * 32


async def test_the_same_key_and_body_get_the_same_answer(api: Api, client: Client) -> None:
    first = await client.post(PATH, json=CODE, headers=key())
    second = await client.post(PATH, json=dict(reversed(CODE.items())), headers=key())
    assert second.status == 202
    assert await second.json() == await first.json()
    assert second.headers["Idempotent-Replayed"] == "true"
    assert len(api.requested()) == 1


async def test_a_repeat_is_answered_even_when_its_times_have_passed(api: Api, client: Client) -> None:
    body = CODE | {"expires_at": "2030-01-01T00:00:00Z"}
    api.clock.jump(1_893_455_999_000 - api.clock.now_ms())  # one second before
    first = await client.post(PATH, json=body, headers=key())
    api.clock.advance(60_000)
    second = await client.post(PATH, json=body, headers=key())
    assert (first.status, second.status) == (202, 202)
    assert second.headers["Idempotent-Replayed"] == "true"


async def test_the_same_key_with_another_body_is_refused(api: Api, client: Client) -> None:
    await client.post(PATH, json=CODE, headers=key())
    other = await client.post(PATH, json=CODE | {"user_id": "u2"}, headers=key())
    assert other.status == 422
    assert (await other.json())["field"] == "Idempotency-Key"
    assert len(api.requested()) == 1


async def test_sixty_four_copies_at_once_write_one_record(api: Api, client: Client) -> None:
    answers = await asyncio.gather(*(client.post(PATH, json=CODE, headers=key()) for _ in range(64)))
    assert len(api.requested()) == 1
    assert {answer.status for answer in answers} <= {202, 409}
    assert all(answer.headers["Retry-After"] for answer in answers if answer.status == 409)
    ids = {(await answer.json())["notification_id"] for answer in answers if answer.status == 202}
    assert len(ids) == 1


async def test_an_unavailable_log_is_answered_503_and_nothing_is_kept_under_the_key(api: Api, client: Client) -> None:
    api.log.fail = True
    refused = await client.post(PATH, json=CODE, headers=key())
    assert refused.status == 503
    assert refused.headers["Retry-After"]
    api.log.fail = False
    accepted = await client.post(PATH, json=CODE, headers=key())
    assert accepted.status == 202
    assert "Idempotent-Replayed" not in accepted.headers


async def test_a_refused_body_leaves_nothing_under_its_key(api: Api, client: Client) -> None:
    refused = await client.post(PATH, json=CODE | {"template": "nope"}, headers=key())
    assert (refused.status, (await refused.json())["field"]) == (422, "template")
    assert (await client.post(PATH, json=CODE, headers=key())).status == 202


async def test_without_redis_a_request_is_accepted_and_says_it_was_not_checked(api: Api, client: Client) -> None:
    api.idempotency.is_away = True
    for _ in range(2):
        answer = await client.post(PATH, json=CODE, headers=key())
        assert answer.status == 202
        assert answer.headers["Idempotency-Checked"] == "false"
    assert {request.event_id for request in api.requested()} == {"k1"}


async def test_a_crash_between_log_and_redis_leaves_two_records_of_one_intent(api: Api, client: Client) -> None:
    api.idempotency.loses_finishes = True
    first = await client.post(PATH, json=CODE, headers=key())
    assert (await client.post(PATH, json=CODE, headers=key())).status == 409
    api.idempotency.let_locks_run_out()
    second = await client.post(PATH, json=CODE, headers=key())
    assert (first.status, second.status) == (202, 202)
    requests = api.requested()
    assert len({keys.single_intent(request.tenant, request.event_id) for request in requests}) == 1
    assert len(requests) == 2


async def test_right_after_the_202_a_notification_is_accepted(api: Api, client: Client) -> None:
    answer = await client.post(PATH, json=CODE, headers=key())
    found = await client.get(answer.headers["Location"])
    assert found.status == 200
    assert (await found.json())["status"] == "accepted"


async def test_an_id_beyond_the_log_or_after_retention_is_unknown(api: Api, client: Client) -> None:
    location = (await client.post(PATH, json=CODE, headers=key())).headers["Location"]
    address = api.address(location.rpartition("/")[2])
    beyond = keys.Address(address.row, address.slot + 1)
    answer = await client.get(f"{PATH}/{api.ids.notification_id('default', beyond)}")
    assert answer.status == 404
    _, partition, offset = keys.single_place(address)
    api.log.expire(api.topics.requests("default"), partition, offset + 1)
    assert (await client.get(location)).status == 404


async def test_a_guessed_id_or_one_of_another_tenant_is_unknown(api: Api, client: Client) -> None:
    location = (await client.post(PATH, json=CODE, headers=key())).headers["Location"]
    address = api.address(location.rpartition("/")[2])
    for wrong in (api.ids.notification_id("other", address), "n", "x" * 30, location[-20:-1], "%00", "%C4%B1"):
        assert (await client.get(f"{PATH}/{wrong}")).status == 404


async def test_while_the_owner_recovers_a_read_says_try_again(api: Api, client: Client) -> None:
    location = (await client.post(PATH, json=CODE, headers=key())).headers["Location"]
    api.reads.is_recovering = True
    answer = await client.get(location)
    assert answer.status == 503
    assert answer.headers["Retry-After"]


def delivery(state: str, **other: Any) -> DeliveryView:
    empty = DeliveryView("sms", "", state, "", "", "", 0, 0, 0, 0)
    return DeliveryView(**{name: other.get(name, getattr(empty, name)) for name in DeliveryView.__slots__})


def slot(status: str, *deliveries: DeliveryView, reason: str = "", detail: str = "") -> SlotView:
    return SlotView(status, reason, detail, "u1", "code", 1, deliveries)


async def test_a_read_tells_each_delivery_and_leaves_out_what_is_not_there(api: Api, client: Client) -> None:
    location = (await client.post(PATH, json=CODE, headers=key())).headers["Location"]
    sent = delivery("sent", provider="texter", calls=2, sent_at_ms=1_800_000_000_123, possible_duplicates=1)
    held = delivery("held", channel="push", device="1a2b3c4d", reason="quiet_hours", waits_until_ms=1_800_000_000_000)
    api.reads.put("default", api.address(location.rpartition("/")[2]), slot("sent", sent, held))
    body = await (await client.get(location)).json()
    assert body["status"] == "sent"
    assert body["deliveries"] == [
        {
            "channel": "sms",
            "state": "sent",
            "provider": "texter",
            "calls": 2,
            "sent_at": "2027-01-15T08:00:00.123Z",
            "possible_duplicate": True,
        },
        {
            "channel": "push",
            "device": "1a2b3c4d",
            "state": "held",
            "calls": 0,
            "waits_for": "quiet_hours",
            "waits_until": "2027-01-15T08:00:00.000Z",
        },
    ]


async def test_a_read_of_somebody_who_waits_without_any_delivery_says_for_what_and_until_when(
    api: Api, client: Client
) -> None:
    location = (await client.post(PATH, json=CODE, headers=key())).headers["Location"]
    waiting = replace(slot("scheduled", reason="unknown_zone"), waits_until_ms=1_800_000_000_000)
    api.reads.put("default", api.address(location.rpartition("/")[2]), waiting)
    body = await (await client.get(location)).json()
    del body["notification_id"]
    assert body == {
        "status": "scheduled",
        "waits_for": "unknown_zone",
        "waits_until": "2027-01-15T08:00:00.000Z",
        "deliveries": [],
    }


async def test_a_read_of_a_duplicate_follows_to_the_first(api: Api, client: Client) -> None:
    first = (await client.post(PATH, json=CODE, headers=key())).headers["Location"].rpartition("/")[2]
    again = (await client.post(PATH, json=CODE, headers=key("k2"))).headers["Location"].rpartition("/")[2]
    api.reads.put("default", api.address(first), slot("delivered", delivery("delivered", calls=1)))
    ended = delivery("suppressed", reason="duplicate_of", detail=first)
    api.reads.put("default", api.address(again), slot("suppressed", ended))
    body = await (await client.get(f"{PATH}/{again}")).json()
    assert (body["status"], body["duplicate_of"]) == ("delivered", first)
    assert body["notification_id"] == again


async def test_a_cancel_before_any_plan_stops_all_of_it(api: Api, client: Client) -> None:
    location = (await client.post(PATH, json=CODE, headers=key())).headers["Location"]
    answer = await client.delete(location)
    assert answer.status == 202
    assert (await answer.json())["status"] == "cancelled"
    [order] = api.log.records(api.topics.control)
    cancelled = codec.decode(order.value, messages.NotificationCancelled)
    intent = keys.single_intent("default", "k1")
    assert (cancelled.intent, cancelled.user_id) == (intent, "u1")
    assert ("default", "u1", intent) in api.cancellations.flags
    [told] = api.log.records(api.topics.status)
    [event] = codec.decode(told.value, messages.StatusBatch).events
    assert (event.kind, event.delivery, event.reason) == ("cancelled", "", "cancelled_by_caller")


@pytest.mark.parametrize("written", ["", "another"])
async def test_a_cancel_of_an_event_published_directly_stops_it_whatever_tenant_it_names(
    api: Api, client: Client, written: str
) -> None:
    event = messages.NotificationRequested(written, "e1", "u1", "code", '{"code": "1"}')
    published = api.ids.notification_id("default", await api.publish_event(event))
    intent = keys.single_intent("default", "e1")
    api.cancellations.plans[intent] = [("sms", "waiting")]
    body = await (await client.delete(f"{PATH}/{published}")).json()
    assert (body["status"], body["cancelled"]) == ("cancelled", [{"channel": "sms"}])
    assert api.cancellations.flags == {("default", "u1", intent)}, "the flag that every claim of it meets"
    [order] = api.log.records(api.topics.control)
    assert codec.decode(order.value, messages.NotificationCancelled).intent == intent


async def test_a_cancel_names_what_is_sent_or_sending_and_stops_the_rest(api: Api, client: Client) -> None:
    location = (await client.post(PATH, json=CODE, headers=key())).headers["Location"]
    intent = keys.single_intent("default", "k1")
    api.cancellations.plans[intent] = [("push/1a2b3c4d", "sent"), ("email", "sending"), ("sms", "waiting")]
    body = await (await client.delete(location)).json()
    assert body["sent"] == [{"channel": "push", "device": "1a2b3c4d"}]
    assert body["sending"] == [{"channel": "email"}]
    assert body["cancelled"] == [{"channel": "sms"}]
    assert body["status"] == "partly_cancelled"
    [told] = api.log.records(api.topics.status)
    assert [event.delivery for event in codec.decode(told.value, messages.StatusBatch).events] == ["sms"]


async def test_a_late_cancel_tells_what_the_row_knows(api: Api, client: Client) -> None:
    location = (await client.post(PATH, json=CODE, headers=key())).headers["Location"]
    views = (delivery("delivered", calls=1), delivery("suppressed", channel="email", reason="no_address"))
    held = delivery("held", channel="push", device="1a2b3c4d")
    api.reads.put("default", api.address(location.rpartition("/")[2]), slot("delivered", *views, held))
    body = await (await client.delete(location)).json()
    assert (body["sent"], body["status"]) == ([{"channel": "sms"}], "partly_cancelled")
    assert body["cancelled"] == [{"channel": "push", "device": "1a2b3c4d"}]


async def test_a_cancel_that_redis_has_not_heard_of_is_not_confirmed(api: Api, client: Client) -> None:
    location = (await client.post(PATH, json=CODE, headers=key())).headers["Location"]
    api.cancellations.is_away = True
    assert (await client.delete(location)).status == 503
    assert not api.log.records(api.topics.status)


async def test_a_cancel_of_what_the_log_no_longer_has_is_unknown(api: Api, client: Client) -> None:
    location = (await client.post(PATH, json=CODE, headers=key())).headers["Location"]
    _, partition, offset = keys.single_place(api.address(location.rpartition("/")[2]))
    api.log.expire(api.topics.requests("default"), partition, offset + 1)
    assert (await client.delete(location)).status == 404
