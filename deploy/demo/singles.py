"""Single notifications on four channels, each followed from its 202 to its end, and login codes during the rush."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deploy.demo import people
from deploy.demo.door import Door, must
from deploy.demo.outside import Outside

ENDS = frozenset({"sent", "delivered"})
ON_THE_WAY = frozenset({"accepted", "queued", "retrying", "sent", "delivered"})
TIMEOUT_S = 60
RECHECK_S = 0.2
RUSH_EVERY_S = 0.25


@dataclass(slots=True)
class Singles:
    """What was sent one by one. codes: login code -> when it was asked for; deliveries: how many there must be."""

    ids: list[str] = field(default_factory=list)
    codes: dict[str, float] = field(default_factory=dict)
    rush: dict[str, float] = field(default_factory=dict)
    possible_duplicates: int = 0
    deliveries: int = 0


async def send_all(door: Door, sent: Singles) -> None:
    """A login code and a shipped order for every customer; each GET right after the 202 must already be true."""
    for number in range(people.CUSTOMERS):
        customer = people.customer(number)
        notification_id = await _login_code(door, sent.codes, number, f"{number:06}")
        sent.ids.append(notification_id)
        sent.deliveries += 1
        order = {"order": f"A-{1000 + number}", "arrives": "2 December", "name": f"Customer {number}"}
        wish = {"user_id": customer["user_id"], "template": "order-shipped", "params": order}
        sent.ids.append(await door.send(f"order-{number}", wish))
        sent.deliveries += 3
        must(await door.send(f"order-{number}", wish) == sent.ids[-1], "a repeated request got another notification")
        for told_id in sent.ids[-2:]:
            told = await door.notification(told_id)
            must(told["status"] in ON_THE_WAY, f"right after its 202 a notification is {told['status']!r}")


async def _login_code(door: Door, codes: dict[str, float], number: int, code: str) -> str:
    codes[code] = time.time()
    customer = people.customer(number)
    wish = {"user_id": customer["user_id"], "template": "login-code", "params": {"code": code}}
    return await door.send(f"login-{code}", wish)


async def rush(door: Door, sent: Singles, over: asyncio.Event) -> None:
    """Login codes all through the campaign, to those with a phone: they must not wait behind it."""
    number = 0
    while not over.is_set():
        number += 1
        if number % people.WITHOUT_PHONE == 0:
            continue
        sent.ids.append(await _login_code(door, sent.rush, number % people.CUSTOMERS, f"{500_000 + number}"))
        sent.deliveries += 1
        try:
            await asyncio.wait_for(over.wait(), RUSH_EVERY_S)
        except TimeoutError:
            continue


async def await_ends(door: Door, sent: Singles) -> None:
    """Until every one is sent or delivered on each of its channels. Raises Untrue for any other end."""
    async with asyncio.timeout(TIMEOUT_S):
        answers = [await _until_ended(door, notification_id) for notification_id in sent.ids]
    deliveries = [delivery for answer in answers for delivery in answer["deliveries"]]
    reached = [delivery for delivery in deliveries if delivery["state"] in ENDS]
    must(len(reached) == sent.deliveries, f"{len(reached)} of {sent.deliveries} single deliveries were sent")
    sent.possible_duplicates = sum(1 for delivery in deliveries if delivery.get("possible_duplicate"))


async def _until_ended(door: Door, notification_id: str) -> dict[str, Any]:
    while True:
        told = await door.notification(notification_id)
        states = [delivery["state"] for delivery in told["deliveries"]]
        wrong = [d for d in told["deliveries"] if d["state"] in ("failed", "expired", "cancelled", "bounced")]
        must(not wrong, f"a delivery ended as {wrong}")
        if states and any(state in ENDS for state in states) and all(_ended(state) for state in states):
            return told
        await asyncio.sleep(RECHECK_S)


def _ended(state: str) -> bool:
    """A channel without an address ends suppressed when the next one takes over."""
    return state in ENDS or state == "suppressed"


async def check_inboxes(door: Door) -> None:
    """Every customer has one unread message in the app: that of the order."""
    for number in range(people.CUSTOMERS):
        found = await door.inbox(people.customer(number)["user_id"])
        must(found["unread"] == 1, f"an inbox counts {found['unread']} unread messages instead of 1")


async def latencies_s(outside: Outside, codes: dict[str, float]) -> Sequence[float]:
    """From the request to the provider, of those login codes the ledger still has in full."""
    found = []
    for message in await outside.texts():
        code = str(message["message"].get("text", ""))[:6]
        if code in codes:
            found.append(message["at"] - codes[code])
    return found
