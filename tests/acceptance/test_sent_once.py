"""Promise 2: a delivery is sent once; a repeat is possible only in named cases, detected and counted."""

from __future__ import annotations

import asyncio

from tests.acceptance import deployment, open_calls, people
from tests.acceptance.world import PUSH, World

ANSWER_MS = 50


async def test_a_killed_worker_leaves_nobody_out_and_repeats_at_most_its_calls_in_flight(world: World) -> None:
    size = 1_500
    await world.new_ledger()
    await world.faults(PUSH, answer_ms=ANSWER_MS)
    users = [world.name(f"reader{number}") for number in range(size)]
    campaign = await world.campaign("news", people.readers(users))
    await world.until(lambda: world.ledger(PUSH), lambda seen: seen["sends"] > size * 0.3, "a third is sent")
    world.kill("work-push.bulk")
    in_flight = len(await open_calls.after_kill(world, campaign, users, deployment.LEASE_S))

    told = await world.until_finished(campaign)
    assert told["status"] == "processed"
    await world.until_read("work push.bulk")
    await world.until_read("status")
    await world.until_told(campaign, lambda seen: seen["progress"]["delivered"] == size, "is delivered")
    sends = [sends for _, sends in (await world.calls(PUSH, people.reader_keys(campaign, users))).values()]
    assert min(sends) == 1, "somebody got nothing"
    await world.until_repeats_are_told(campaign, sum(sends) - size)
    assert (await world.told(campaign))["possible_duplicates"] <= in_flight


async def test_a_lost_answer_is_tried_again_under_the_same_key_and_told_as_a_possible_duplicate(world: World) -> None:
    key, user = world.name("lost"), world.name("ann")
    await world.faults(PUSH, drop_reply=1, silent=1, calls=1)
    sent = await world.notify(user, "alert", key=key, params={"text": "x"}, to=people.to_device(user))
    [delivery] = (await world.until_status(sent, "sent", "delivered"))["deliveries"]
    assert delivery["calls"] == 2 and delivery["possible_duplicate"]
    said = [message["delivery_key"] for message in await world.messages(f"token-{user}")]
    assert said == [people.push_key(key)] * 2


async def test_where_a_repeat_is_worse_than_a_loss_a_lost_answer_ends_unconfirmed(world: World) -> None:
    key, user = world.name("once"), world.name("ann")
    await world.faults(PUSH, drop_reply=1, silent=1, calls=1)
    sent = await world.notify(user, "once", key=key, params={"text": "x"}, to=people.to_device(user))
    [delivery] = (await world.until_status(sent, "unconfirmed"))["deliveries"]
    assert delivery["calls"] == 1
    await world.until_read("work push.transactional")
    assert await world.calls(PUSH, [people.push_key(key)]) == {people.push_key(key): (1, 1)}


async def test_a_request_asked_many_times_at_once_is_one_notification(world: World) -> None:
    key, user = world.name("again"), world.name("ann")

    async def ask() -> str:
        return await world.notify(user, "alert", key=key, params={"text": "x"}, to=people.to_device(user))

    assert len({await first for first in asyncio.as_completed([ask() for _ in range(8)])}) == 1
    await world.until_status(await ask(), "delivered")
    assert await world.calls(PUSH, [people.push_key(key)]) == {people.push_key(key): (1, 1)}
