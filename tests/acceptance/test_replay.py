"""Promise 9: replaying a topic sends nothing twice."""

from __future__ import annotations

import asyncio
import itertools

from schemas.messages import Channel, Priority
from tests.acceptance import people
from tests.acceptance.broker import ToWrite, Written
from tests.acceptance.world import PUSH, SMS, World


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
