"""Messages that wait for each other: one message for the user, and each of them says in which it was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schemas import codec
from schemas.messages import NotificationRequested
from tests.acceptance import people
from tests.acceptance.world import World


async def test_five_events_of_the_same_second_are_one_message_with_five_items_in_their_order(world: World) -> None:
    """N47. For three users at once, so that both workers of the lane have some; one of theirs thinks better of it."""
    users = [world.name(name) for name in ("ada", "bea", "cleo")]
    async with world.stopped("route-bulk"):
        sent = {user: await asyncio.gather(*[comment(world, user, number) for number in range(5)]) for user in users}
    gone = sent[users[2]][3]
    [waits] = (await world.until_status(gone, "held"))["deliveries"]
    assert (waits["waits_for"], waits["calls"], "waits_until" in waits) == ("digest", 0, True)
    await world.must("DELETE", f"/v1/notifications/{gone}")
    await world.until_status(gone, "cancelled")

    wanted = await in_the_order_of_acceptance(world)
    wanted[users[2]].remove("friend3")
    for user in users:
        ids = [one for one in sent[user] if one != gone]
        told = [await world.until_status(one, "suppressed") for one in ids]
        [(reason, detail)] = {(one["deliveries"][0]["reason"], one["deliveries"][0]["detail"]) for one in told}
        digest = await world.until_status(detail.removeprefix("in digest "), "delivered")
        assert (reason, len(digest["deliveries"])) == ("in_digest", 1)
        [message] = await world.messages(f"token-{user}")
        assert message["text"].split() == wanted[user]
        assert message["title"] == f"{wanted[user][0]} and {len(ids) - 1} others"


@pytest.mark.long
async def test_a_campaigns_recipients_are_counted_where_they_went(world: World) -> None:
    """Each of 40 gets the campaign's message; ten of them get a single message within its window as well."""
    users = [world.name(f"reader{number}") for number in range(40)]
    async with world.stopped("route-bulk"):
        singles = [await comment(world, user, 1) for user in users[:10]]
        lines = [{"user_id": one, "params": {"by": "all"}, "to": people.to_device(one)} for one in users]
        campaign = await world.campaign("comments", lines)
        await world.until_told(campaign, lambda told: told["progress"]["released"] == 40, "is let go")
    told = await world.until_finished(campaign)
    outcomes = told["outcomes"]
    reached = outcomes.get("sent", 0) + outcomes.get("delivered", 0)
    assert (outcomes["suppressed"], reached, sum(outcomes.values())) == (10, 30, 40)
    assert told["reasons"] == {"in_digest": 10}
    for one in singles:
        await world.until_status(one, "suppressed")
    for user in users:
        [message] = await written_to(world, user)
        assert set(message["text"].split()) == ({"friend1", "all"} if user in users[:10] else {"all"})


async def comment(world: World, user: str, number: int) -> str:
    who: dict[str, Any] = {"params": {"by": f"friend{number}"}, "to": people.to_device(user)}
    return await world.notify(user, "comments", key=f"{user}-{number}", **who)


async def written_to(world: World, user: str) -> list[dict[str, Any]]:
    return await world.until(lambda: world.messages(f"token-{user}"), bool, f"{user} is written to")


async def in_the_order_of_acceptance(world: World) -> dict[str, list[str]]:
    """User -> who commented, by what lies in the entry topic: a user's events are all in one partition."""
    found: dict[str, list[tuple[int, int, str]]] = {}
    for record in await world.records(world.topics.requests_bulk(people.TENANT)):
        if world.token.encode() not in (record.key or b""):
            continue
        event = codec.decode(record.value, NotificationRequested)
        if not event.digest_of:
            by = event.params.split('"')[3]
            found.setdefault(event.user_id, []).append((event.accepted_at_ms, record.offset, by))
    return {user: [by for _, _, by in sorted(events)] for user, events in found.items()}
