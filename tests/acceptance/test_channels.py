"""What comes out on each channel: in the lane of its class, and with a name as its owner writes it."""

from __future__ import annotations

import email
import email.policy

import pytest

from schemas import codec
from schemas.messages import Channel, Delivery, Priority
from tests.acceptance import people
from tests.acceptance.world import World

NAME = "O'Neil & Söns <b>"
ESCAPED = "O&#39;Neil &amp; Söns &lt;b&gt;"


@pytest.mark.long
async def test_a_campaign_of_a_transactional_template_goes_into_the_transactional_lanes(world: World) -> None:
    """N26: on each of its channels, and into no lane of bulk."""
    users = [world.name(f"guest{number}") for number in range(5)]
    to = {user: {"email": f"{user}@example.org", **people.to_phone(user)} for user in users}
    lines = [{"user_id": user, "params": {"order": "1"}, "to": to[user]} for user in users]
    campaign = await world.campaign("order", lines, channels=["email", "sms"])
    told = await world.until_finished(campaign)
    assert told["status"] == "processed"
    for channel in (Channel.EMAIL, Channel.SMS):
        assert await _lying(world, campaign, channel, Priority.TRANSACTIONAL) == sorted(users)
        assert await _lying(world, campaign, channel, Priority.BULK) == []


async def _lying(world: World, campaign: str, channel: Channel, priority: Priority) -> list[str]:
    """Whose deliveries of this campaign are in the lane."""
    records = await world.records(world.topics.lane(channel, priority))
    mine = [record.value for record in records if record.value and campaign.encode() in record.value]
    return sorted(codec.decode(value, Delivery).user_id for value in mine)


async def test_a_name_is_plain_in_subject_text_sms_and_push_and_escaped_in_html_only(world: World) -> None:
    """N54"""
    user = world.name("oneil")
    address = f"{user}@example.org"
    to = {"email": address, **people.to_phone(user), **people.to_device(user)}
    sent = await world.notify(user, "greeting", params={"name": NAME}, to=to)
    await world.until_status(sent, "sent", "delivered")

    [push] = await world.messages(f"token-{user}")
    assert (push["title"], push["text"]) == (f"For {NAME}", f"Hello {NAME}")
    [sms] = await world.messages(people.phone(user))
    assert sms["text"] == f"Hello {NAME}"
    [mail] = await world.messages(address)
    read = email.message_from_string(mail["content"], policy=email.policy.default)
    plain, html = (part.get_content().strip() for part in read.iter_parts())
    assert (read["subject"], plain, html) == (f"For {NAME}", f"Hello {NAME}", f"<p>Hello {ESCAPED}</p>")
