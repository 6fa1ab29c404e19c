"""`tidings explain` on the real thing: what support reads of a message, asked for as they do."""

from __future__ import annotations

import json

from schemas import codec, messages
from tests.acceptance import people
from tests.acceptance.broker import ToWrite
from tests.acceptance.world import SMS, World

WAITS_S = 25
"""Long enough for the command to be run on a slow machine while the message still waits."""


async def test_support_reads_why_a_message_waits_what_is_next_and_how_it_ended(world: World) -> None:
    user = world.name("mia")
    await world.user(user, phone=people.phone(user), time_zone="Asia/Tokyo")
    await world.faults(SMS, errors={"503": 1}, retry_after_s=WAITS_S)
    sent = await world.notify(user, "code", params={"code": "135790"})
    await world.until_status(sent, "retrying")
    story = await world.explained(sent)
    assert "Template code (transactional), for user " + user in story
    assert "call 1 to texter: the provider had an error (status 503), again at" in story
    assert "Next: it is tried again by texter at" in story and "in Asia/Tokyo)" in story
    assert "135790" not in story and people.phone(user) not in story

    await world.faults(SMS, errors={"503": 1}, calls=1)
    other = await world.notify(user, "code", params={"code": "135791"})
    await world.until_status(other, "delivered")
    told = json.loads(await world.explained(f"{other}.sms", "--json"))
    assert (told["status"], told["missing"]) == ("delivered", [])
    [lines] = [section["lines"] for section in told["story"] if section["title"] == "SMS"]
    assert any("call 2 to texter: accepted" in line for line in lines)
    await world.must("DELETE", f"/v1/notifications/{sent}")


async def test_what_was_asked_for_by_an_event_on_the_log_is_told_as_such(world: World) -> None:
    user = world.name("leo")
    await world.user(user, phone=people.phone(user))
    event = messages.NotificationRequested(people.TENANT, world.name("e"), user, "code", '{"code": "1"}')
    record = ToWrite(codec.encode(event), f"{people.TENANT}/{user}".encode())
    await world.write(world.topics.requests(people.TENANT), record)

    async def shown() -> list[dict[str, str]]:
        found: list[dict[str, str]] = (await world.must("GET", f"/v1/users/{user}/notifications"))["notifications"]
        return found

    [first] = await world.until(shown, bool, "the code was sent")
    story = await world.explained(first["notification_id"])
    assert "Asked for by an event published on the log at" in story
