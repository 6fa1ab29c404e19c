"""Promise 10: a poison record is parked byte for byte, and what lies behind it keeps moving."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable

import pytest

from schemas import codec, keys, messages
from schemas.messages import Channel, Priority
from schemas.topics import MAX_MESSAGE_BYTES, Topics
from tests.acceptance import people
from tests.acceptance.broker import ToWrite, Written
from tests.acceptance.world import PUSH, World, upload

SOMEBODY_ELSES = codec.encode(messages.LeaderRecord("somebody", 1))
"""Well-formed, of a schema that belongs nowhere else."""
POISON = (b"", b"garbage", b"\x00\x00\x00\x00\x65", b"\x00\xff\xff\xff\xffxx", SOMEBODY_ELSES, SOMEBODY_ELSES + b"abc")
READERS: dict[str, tuple[str, Callable[[Topics], str]]] = {
    "entry": ("route requests", lambda topics: topics.requests(people.TENANT)),
    "bulk entry": ("route bulk", lambda topics: topics.requests_bulk(people.TENANT)),
    "lane": ("work push.transactional", lambda topics: topics.lane(Channel.PUSH, Priority.TRANSACTIONAL)),
    "bulk lane": ("work push.bulk", lambda topics: topics.lane(Channel.PUSH, Priority.BULK)),
    "pages": ("fan_out", lambda topics: topics.pages),
    "status": ("status", lambda topics: topics.status),
    "callbacks": ("route callbacks", lambda topics: topics.callbacks),
    "recipients": ("route recipients", lambda topics: topics.recipients),
    "suppressions": ("route recipients", lambda topics: topics.suppressions),
    "control": ("route recipients", lambda topics: topics.control),
    "inbox": ("route recipients", lambda topics: topics.inbox),
}


@pytest.mark.parametrize("place", READERS)
async def test_unreadable_records_are_parked_as_they_are_and_the_topic_moves_on(world: World, place: str) -> None:
    role, name = READERS[place]
    topic = name(world.topics)
    key = world.name("poison").encode()
    await world.write(topic, *(ToWrite(value, key) for value in POISON))
    await world.until_read(role)
    letters = [letter for letter in await parked(world, topic) if letter.key == key]
    assert sorted(letter.value or b"" for letter in letters) == sorted(POISON)
    for letter in letters:
        assert letter.header("tid-error-class") in ("undecodable", "unknown_schema")
        assert letter.header("tid-first-topic") == topic

    await world.user(world.name("ann"), locale="en")
    sent = await world.notify(world.name("ann"), "alert", params={"text": "x"}, to=people.to_device("ann"))
    await world.until_status(sent, "sent", "delivered")


async def test_what_is_cut_off_too_long_or_nearly_too_large_is_parked_and_its_whole_twin_is_sent(world: World) -> None:
    """K45: also what was written without the five bytes in front that name its schema."""
    event_id, user = world.name("whole"), world.name("ann")
    to = messages.Contact(devices=(messages.Device(people.DEVICE, f"token-{user}", "ios"),))
    whole = codec.encode(messages.NotificationRequested("", event_id, user, "alert", '{"text": "x"}', to=to))
    unframed = whole[codec.PREFIX_BYTES :]
    poison = [whole[:-1], whole[:40], whole + b"xyz", unframed, b"\0" * (MAX_MESSAGE_BYTES - 200)]
    entry = world.topics.requests(people.TENANT)
    key = user.encode()
    await world.write(entry, *(ToWrite(value, key) for value in (*poison, whole)))
    sent = await world.notify(user, "alert", key=event_id, params={"text": "x"}, to=people.to_device(user))
    await world.until_status(sent, "delivered")
    letters = [letter.value or b"" for letter in await parked(world, entry) if letter.key == key]
    assert sorted(letters) == sorted(poison)
    assert await world.calls(PUSH, [people.push_key(event_id)]) == {people.push_key(event_id): (1, 1)}


async def test_poison_in_a_waiting_room_goes_back_to_its_lane_and_is_parked_there(world: World) -> None:
    key = world.name("poison").encode()
    room = world.topics.tier(Channel.SMS, Priority.TRANSACTIONAL, "10s")
    await world.write(room, *(ToWrite(value, key, [("tid-not-before", b"0")]) for value in POISON))
    await world.until_read("forward")
    await world.until_read("work sms.transactional")
    letters = [letter.value or b"" for letter in await parked(world, room) if letter.key == key]
    assert sorted(letters) == sorted(POISON)


async def test_garbage_between_the_records_of_campaigns_stops_no_campaign(world: World) -> None:
    topics = world.topics
    key = world.name("poison").encode()
    for topic in (topics.audience, topics.campaign_requests, topics.campaign_control, topics.cursor, topics.progress):
        places = [ToWrite(value, key, partition=number) for number in range(4) for value in POISON[1:]]
        await world.write(topic, *places)
    users = [world.name(f"reader{number}") for number in range(300)]
    told = await world.until_finished(await world.campaign("news", people.readers(users)))
    assert told["status"] == "processed" and sum(told["outcomes"].values()) == 300


async def parked(world: World, topic: str) -> list[Written]:
    return await world.records(Topics(world.topics.prefix).dlq_for(topic))


async def test_a_template_that_fails_for_one_person_fails_for_nobody_else(world: World) -> None:
    """N22: no call and no further try for them, one dead letter; the lane moves on."""
    users = [world.name(f"reader{number}") for number in range(20)]
    lines = people.readers(users)
    lines[7]["params"] = {}
    campaign = await world.campaign("news", lines)
    told = await world.until_finished(campaign)
    assert told["status"] == "partially_processed"
    assert told["reasons"] == {"template_error": 1}
    [failed] = await world.recipients(campaign, "failed")
    assert (failed["user_id"], [one["calls"] for one in failed["deliveries"]]) == (users[7], [0])
    calls = await world.calls(PUSH, people.reader_keys(campaign, users))
    assert sorted(calls.values()) == [(0, 0)] + [(1, 1)] * 19
    letters = await parked(world, world.topics.lane(Channel.PUSH, Priority.BULK))
    mine = [letter for letter in letters if letter.key == keys.user_key(people.TENANT, users[7]).encode()]
    assert [letter.header("tid-error-class") for letter in mine] == ["template_error"]


async def test_a_wrong_line_far_into_a_stream_refuses_it_whole_and_names_the_line(world: World) -> None:
    campaign = world.name("news")

    async def lines() -> AsyncIterator[bytes]:
        for number in range(1, 70_000, 1_000):
            block = range(number, min(number + 1_000, 70_000))
            yield b"".join(
                json.dumps({"user_id": f"u{one}", "to": people.to_device("x")}).encode() + b"\n" for one in block
            )
        yield b"this is no JSON\n" + b'{"user_id": "late"}\n' * 10

    calls = (await world.ledger(PUSH))["calls"]
    answer = await world.ask(
        "POST", "/v1/campaigns", data=upload({"campaign_id": campaign, "template": "news"}, lines())
    )
    assert answer.status == 422
    assert "70000" in json.dumps(answer.body).replace(",", "")
    assert (await world.ask("GET", f"/v1/campaigns/{campaign}")).status == 404
    assert (await world.ledger(PUSH))["calls"] == calls


BREAKING_THE_RULES = {
    "no id": messages.NotificationRequested("", "", "ann", "alert"),
    "unknown template": messages.NotificationRequested("", "event", "ann", "nothing"),
    "lone surrogate": messages.NotificationRequested("", "event", "ann", "alert", r'{"text": "\ud800"}'),
}


@pytest.mark.parametrize("fault", BREAKING_THE_RULES)
async def test_a_published_event_that_breaks_the_rules_is_parked_with_its_reason(world: World, fault: str) -> None:
    wrong = BREAKING_THE_RULES[fault]
    entry = world.topics.requests(people.TENANT)
    await world.write(entry, ToWrite(codec.encode(wrong), world.name("wrong").encode()))
    await world.until_read("route requests")
    letters = [letter for letter in await parked(world, entry) if letter.key == world.name("wrong").encode()]
    assert [letter.value for letter in letters] == [codec.encode(wrong)]
    assert letters[0].header("tid-error-class") in ("no_key", "unknown_template", "bad_request")


async def test_an_event_published_directly_is_sent_and_is_the_same_as_its_request(world: World) -> None:
    key, user = world.name("event"), world.name("ann")
    to = messages.Contact(devices=(messages.Device(people.DEVICE, f"token-{user}", "ios"),))
    event = messages.NotificationRequested("", key, user, "alert", '{"text": "x"}', to=to)
    entry = world.topics.requests(people.TENANT)
    await world.write(entry, ToWrite(codec.encode(event), user.encode()))
    await world.until(
        lambda: world.calls(PUSH, [people.push_key(key)]), lambda seen: set(seen.values()) == {(1, 1)}, "it is sent"
    )
    asked = await world.notify(user, "alert", key=key, params={"text": "x"}, to=people.to_device(user))
    told = await world.until_status(asked, "sent", "delivered", "suppressed")
    assert "duplicate_of" in told or told["status"] in ("sent", "delivered")
    assert set((await world.calls(PUSH, [people.push_key(key)])).values()) == {(1, 1)}
