"""Promise 3: who opted out, was suppressed, erased, cancelled or is late is not written to, wherever the message is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from schemas import keys
from schemas.messages import Channel
from tests.acceptance import people, webhooks
from tests.acceptance.world import MAIL, PUSH, SMS, World

WHY = {
    "opted_out": ("suppressed", "opted_out"),
    "bounced": ("suppressed", "suppressed_address"),
    "erased": ("suppressed", "erased"),
    "cancelled": ("cancelled", "cancelled_by_caller"),
    "late": ("expired", "expired"),
}
"""Who -> (state, reason) in which their message must end."""
WORKER = "work-sms.transactional"


async def test_whoever_may_not_be_written_to_any_more_is_not_although_the_message_is_in_the_lane(world: World) -> None:
    users = {who: world.name(who) for who in (*WHY, "free")}
    reference = await _introduce(world, users)
    async with world.stopped(WORKER):
        late = datetime.now(UTC) + timedelta(seconds=4)
        times = {"late": {"expires_at": late.isoformat()}}
        sent = {who: await _send(world, user, **times.get(who, {})) for who, user in users.items()}
        for one in sent.values():
            await world.until_status(one, "queued")
        await _forbid(world, users, sent, reference)
        await asyncio.sleep(max(0.0, (late - datetime.now(UTC)).total_seconds()))
    await world.until_status(sent["free"], "delivered")
    await _check_ends(world, sent)
    calls = await world.calls(SMS, [people.sms_key(user) for user in users.values()])
    assert list(calls.values()) == [(0, 0)] * len(WHY) + [(1, 1)]


async def test_nor_although_the_message_waits_for_its_next_try(world: World) -> None:
    who = [one for one in WHY if one != "late"]
    users = {one: world.name(one) for one in who}
    reference = await _introduce(world, users)
    await world.faults(SMS, errors={"503": 1}, retry_after_s=4)
    sent = {one: await _send(world, user) for one, user in users.items()}
    for one in sent.values():
        await world.until_status(one, "retrying")
    await world.all_is_well()
    await _forbid(world, users, sent, reference)
    await _check_ends(world, sent)
    calls = await world.calls(SMS, [people.sms_key(user) for user in users.values()])
    assert list(calls.values()) == [(1, 0)] * len(who), "the refused first call only"


async def test_an_opt_out_after_fan_out_is_seen_before_each_call_of_a_campaign(world: World) -> None:
    """N36"""
    users = [world.name(f"guest{number}") for number in range(20)]
    lines = [{"user_id": user, "to": people.to_phone(user)} for user in users]
    async with world.stopped("work-sms.bulk", "work-sms.bulk-2"):
        campaign = await world.campaign("offer", lines)
        await world.until(lambda: world.recipients(campaign), lambda seen: len(seen) == 20, "all are fanned out")
        opt_outs = {"opt_outs": [{"channel": "sms", "kind": "marketing"}]}
        for user in users[::2]:
            await world.must("PUT", f"/v1/users/{user}/preferences", json=opt_outs)
    told = await world.until_told(
        campaign, lambda seen: seen["outcomes"] == {"delivered": 10, "suppressed": 10}, "is reported"
    )
    assert told["reasons"] == {"opted_out": 10}
    keys_ = [keys.delivery_key(keys.recipient_intent(people.TENANT, campaign, user), Channel.SMS) for user in users]
    assert list((await world.calls(SMS, keys_)).values()) == [(0, 0), (1, 1)] * 10


async def test_who_opted_out_of_both_channels_of_a_message_gets_neither(world: World) -> None:
    """N37"""
    user, key = world.name("both"), world.name("order")
    await world.user(user, email=f"{user}@example.org", devices=people.devices(user))
    opt_outs = {"opt_outs": [{"channel": "email", "kind": "*"}, {"channel": "push", "kind": "*"}]}
    await world.must("PUT", f"/v1/users/{user}/preferences", json=opt_outs)
    sent = await world.notify(user, "order", key=key, params={"order": "1"}, channels=["email", "push"])
    told = await world.until_status(sent, "suppressed")
    ends = [(one["channel"], one["reason"], one["calls"]) for one in told["deliveries"]]
    assert sorted(ends) == [("email", "opted_out", 0), ("push", "opted_out", 0)]
    mail_key = keys.delivery_key(keys.single_intent(people.TENANT, key), Channel.EMAIL)
    assert await world.calls(MAIL, [mail_key]) == {mail_key: (0, 0)}
    assert await world.calls(PUSH, [people.push_key(key)]) == {people.push_key(key): (0, 0)}


async def _introduce(world: World, users: Mapping[str, str]) -> str:
    """Profiles for all, and a first message to the one whose number will bounce; its reference."""
    for user in users.values():
        await world.user(user, phone=people.phone(user))
    first = await world.notify(users["bounced"], "code", params={"code": "1"})
    await world.until_status(first, "delivered")
    return await webhooks.reference(world, people.phone(users["bounced"]))


async def _send(world: World, user: str, **more: str) -> str:
    return await world.notify(user, "code", key=user, params={"code": "2"}, **more)


async def _forbid(world: World, users: Mapping[str, str], sent: Mapping[str, str], reference: str) -> None:
    """Each by their own way; all are answered before the message may go on."""
    opt_outs = {"opt_outs": [{"channel": "sms", "kind": "*"}]}
    await world.must("PUT", f"/v1/users/{users['opted_out']}/preferences", json=opt_outs)
    await world.must("DELETE", f"/v1/users/{users['erased']}")
    told = await world.must("DELETE", f"/v1/notifications/{sent['cancelled']}")
    assert told["status"] == "cancelled" and told["cancelled"] == [{"channel": "sms"}]
    await _bounce(world, people.phone(users["bounced"]), reference)


async def _bounce(world: World, phone: str, reference: str) -> None:
    report = {"type": "bounced", "reference": reference}
    assert (await webhooks.post(world, webhooks.TEXTER, report)).status == 204

    async def look() -> int:
        return (await world.ask("GET", f"/v1/suppressions/sms/{phone}")).status

    await world.until(look, lambda seen: seen == 200, f"{phone} is suppressed")


async def _check_ends(world: World, sent: Mapping[str, str]) -> None:
    for who, (state, reason) in WHY.items():
        if who in sent:
            [delivery] = (await world.until_status(sent[who], state))["deliveries"]
            assert delivery["reason"] == reason, who
