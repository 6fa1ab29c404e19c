"""Promise 9: replaying a topic sends nothing twice."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest

from schemas import codec, keys
from schemas.messages import Channel, Delivery, Priority
from tests.acceptance import people
from tests.acceptance.broker import ToWrite, Written
from tests.acceptance.world import MAIL, PUSH, SMS, World


def again(record: Written) -> ToWrite:
    """The record as it was, in its own partition: what a replay by hand does."""
    return ToWrite(record.value, record.key, record.headers, record.partition)


async def test_a_lane_replayed_in_front_of_two_workers_calls_nobody_again(world: World) -> None:
    users = [world.name(f"guest{number}") for number in range(60)]
    lines = [{"user_id": user, "params": {"name": user}, "to": people.to_phone(user)} for user in users]
    campaign = await world.campaign("offer", lines)
    told = await world.until_told(campaign, lambda seen: seen["outcomes"] == {"delivered": 60}, "is delivered")
    calls = (await world.ledger(SMS))["calls"]

    lane = world.topics.lane(Channel.SMS, Priority.BULK)
    await world.write(lane, *(again(record) for record in await world.records(lane)))
    await world.until_read("work sms.bulk")

    assert (await world.ledger(SMS))["calls"] == calls
    assert (await world.told(campaign))["outcomes"] == told["outcomes"]


async def test_records_that_two_workers_hold_at_once_are_sent_once(world: World) -> None:
    """N16: each is written into every other partition as well while it is being sent."""
    await world.faults(SMS, answer_ms=800)
    users = [world.name(f"guest{number}") for number in range(100)]
    lines = [{"user_id": user, "params": {"name": user}, "to": people.to_phone(user)} for user in users]
    lane = world.topics.lane(Channel.SMS, Priority.BULK)
    campaign = await world.campaign("offer", lines)
    records = await world.until(
        lambda: _of_campaign(world, lane, campaign), lambda seen: len(seen) == 100, "all lie in the lane"
    )
    copies = [replace(again(one), partition=(one.partition + step) % 4) for one in records for step in (1, 2, 3)]
    await world.write(lane, *copies)
    told = await world.until_told(campaign, lambda seen: seen["outcomes"] == {"delivered": 100}, "is delivered")
    await world.until_read("work sms.bulk")
    intents = [keys.recipient_intent(people.TENANT, campaign, user) for user in users]
    calls = await world.calls(SMS, [keys.delivery_key(intent, Channel.SMS) for intent in intents])
    assert list(calls.values()) == [(1, 1)] * 100
    assert told["possible_duplicates"] == 0


async def _of_campaign(world: World, lane: str, campaign: str) -> list[Written]:
    return [record for record in await world.records(lane) if campaign.encode() in (record.value or b"")]


async def test_a_redrive_sends_what_failed_and_not_what_was_sent(world: World) -> None:
    """N20: push went out and email is in its dead letter topic; both are sent again by hand, a generation later."""
    user, key = world.name("ann"), world.name("order")
    to = {"email": f"{user}@example.org", **people.to_device(user)}
    await world.faults(MAIL, errors={"554": 1})
    sent = await world.notify(user, "order", key=key, params={"order": "1"}, channels=["push", "email"], to=to)
    await _until_states(world, sent, push="delivered", email="failed")
    await world.all_is_well()

    for channel, topic in ((Channel.PUSH, world.topics.lane), (Channel.EMAIL, lambda name, _: world.topics.dlq(name))):
        records = await world.records(topic(channel, Priority.TRANSACTIONAL))
        [record] = [record for record in records if key.encode() in (record.value or b"")]
        assert record.value is not None
        delivery = codec.decode(record.value, Delivery)
        later = codec.encode(replace(delivery, generation=delivery.generation + 1))
        await world.write(world.topics.lane(channel, Priority.TRANSACTIONAL), ToWrite(later, record.key))
        await world.until_read(f"work {channel}.transactional")

    await _until_states(world, sent, push="delivered", email="sent")
    mail = keys.delivery_key(keys.single_intent(people.TENANT, key), Channel.EMAIL)
    assert await world.calls(MAIL, [mail]) == {mail: (2, 1)}
    assert await world.calls(PUSH, [people.push_key(key)]) == {people.push_key(key): (1, 1)}


async def _until_states(world: World, notification_id: str, **wanted: str) -> None:
    def holds(told: dict[str, Any]) -> bool:
        return {one["channel"]: one["state"] for one in told["deliveries"]} == wanted

    await world.until(lambda: world.status(notification_id), holds, f"{notification_id} is {wanted}")


async def test_an_entry_topic_replayed_tells_whose_repeat_each_request_is(world: World) -> None:
    key, user = world.name("paid"), world.name("ann")
    first = await world.notify(user, "alert", key=key, params={"text": "x"}, to=people.to_device(user))
    await world.until_status(first, "delivered")
    calls = (await world.ledger(PUSH))["calls"]

    entry = world.topics.requests(people.TENANT)
    await world.write(entry, *(again(record) for record in await world.records(entry)))
    await world.until_read("route requests")
    await world.until_read("work push.transactional")

    assert (await world.ledger(PUSH))["calls"] == calls
    assert (await world.status(first))["status"] == "delivered"


@pytest.mark.long
async def test_pages_released_again_reach_nobody_twice_and_count_nobody_twice(world: World) -> None:
    users = [world.name(f"reader{number}") for number in range(300)]
    campaign = await world.campaign("news", people.readers(users))
    told = await world.until_finished(campaign)

    pages = world.topics.pages
    await world.write(pages, *(again(record) for record in await world.records(pages)))
    await world.until_read("fan_out")
    await world.until_read("work push.bulk")

    calls = await world.calls(PUSH, people.reader_keys(campaign, users))
    assert set(calls.values()) == {(1, 1)}
    now = await world.told(campaign)
    assert (now["status"], sum(now["outcomes"].values())) == (told["status"], 300)


@pytest.mark.long
async def test_callbacks_and_status_replayed_change_no_count(world: World) -> None:
    users = [world.name(f"reader{number}") for number in range(40)]
    campaign = await world.campaign("news", people.readers(users))
    await world.until_told(campaign, lambda told: told["outcomes"].get("delivered") == 40, "is delivered")

    for topic, role in ((world.topics.callbacks, "route callbacks"), (world.topics.status, "status")):
        await world.write(topic, *(again(record) for record in await world.records(topic)))
        await world.until_read(role)
    for _ in itertools.repeat(None, 3):
        now = await world.told(campaign)
        assert now["outcomes"] == {"delivered": 40}
        await asyncio.sleep(0.5)  # a count that moved would be told within a second
