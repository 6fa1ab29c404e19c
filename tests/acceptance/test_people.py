"""People: one reads what one wrote; the inbox counts exactly, and tells news while one looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tests.acceptance import people
from tests.acceptance.world import World


async def test_one_reads_what_one_wrote_and_a_profile_never_undoes_an_opt_out(world: World) -> None:
    user = world.name("mia")
    path = f"/v1/users/{user}"
    await world.user(user, email="mia@example.org", locale="de-at", devices=people.devices(user))
    found = await world.must("GET", path)
    assert (found["email"], found["locale"], len(found["devices"])) == ("mia@example.org", "de-AT", 1)
    opt_outs = [{"channel": "email", "kind": "marketing"}]
    assert (await world.must("PUT", f"{path}/preferences", json={"opt_outs": opt_outs}))["opt_outs"] == opt_outs
    await world.user(user, email="new@example.org")
    found = await world.must("GET", path)
    assert (found["email"], found["opt_outs"]) == ("new@example.org", opt_outs)
    await world.must("DELETE", path)
    assert (await world.ask("GET", path)).status == 404


async def test_the_inbox_counts_exactly_and_tells_news_at_once(world: World) -> None:
    user = world.name("leo")
    async with world.events(f"/v1/users/{user}/inbox/stream") as events:
        assert await _next(events) == ("unread", {"unread": 0})
        sent = [await world.notify(user, "note", params={"text": f"number {number}"}) for number in range(3)]
        news = [await _next(events) for _ in sent]
        assert [(name, body["unread"]) for name, body in news] == [("message", 1), ("message", 2), ("message", 3)]
        inbox = await world.must("GET", f"/v1/users/{user}/inbox")
        assert inbox["unread"] == 3 and {one["notification_id"] for one in inbox["messages"]} == set(sent)

        left = await world.must("POST", f"/v1/users/{user}/inbox/read", json={"ids": [sent[0]]})
        assert left == {"unread": 2}
        assert await _next(events) == ("unread", {"unread": 2})
    assert (await world.must("POST", f"/v1/users/{user}/inbox/read", json={"all": True}))["unread"] == 0


async def test_support_sees_what_a_person_was_sent_and_what_not_and_why(world: World) -> None:
    user = world.name("support")
    await world.user(user, phone=people.phone(user), opt_outs=[{"channel": "push", "kind": "*"}])
    first = await world.notify(user, "code", params={"code": "1"})
    await world.until_status(first, "delivered")
    second = await world.notify(user, "alert", params={"text": "x"}, to=people.to_device(user))
    [delivery] = (await world.until_status(second, "suppressed"))["deliveries"]
    assert delivery["reason"] == "opted_out"
    shown = (await world.must("GET", f"/v1/users/{user}/notifications"))["notifications"]
    assert [(one["notification_id"], one["state"]) for one in shown] == [(first, "sent")]


async def _next(events: AsyncIterator[tuple[str, Any]]) -> tuple[str, Any]:
    return await asyncio.wait_for(anext(events), 60)
