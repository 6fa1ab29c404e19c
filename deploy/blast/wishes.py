"""Login codes at an even pace, each at its time whether or not those before are answered, by callers that ask again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from deploy.blast import audience
from deploy.blast.plan import CODES_PER_S
from deploy.demo.door import Door

ASKED_AT_ONCE = 16
ASKED_AGAIN, AGAIN_AFTER_S = 20, 2.0
REACHED = frozenset({"sent", "delivered"})


@dataclass(slots=True)
class Wishes:
    """asked: requests that were begun. ids: notifications that were answered 202, in the order of the answers."""

    asked: int = 0
    ids: list[str] = field(default_factory=list)

    async def offer(self, door: Door, over: asyncio.Event) -> None:
        """Until `over`, and then until each of them is answered."""
        begun_s = time.time()
        async with asyncio.TaskGroup() as group:
            while not over.is_set():
                due_s = begun_s + self.asked / CODES_PER_S
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, due_s - time.time())):
                        await over.wait()
                        return
                group.create_task(self._one(door, self.asked, due_s))
                self.asked += 1

    async def _one(self, door: Door, number: int, due_s: float) -> None:
        """Asked again with the same key and body, it is the same wish of the same time."""
        self.ids.append(await door.send(f"code-{number}", audience.wish(number, due_s)))


@dataclass(slots=True)
class Told:
    """What their statuses say. possible_duplicates: of those sent."""

    sent: int = 0
    possible_duplicates: int = 0
    not_sent: list[str] = field(default_factory=list)


async def told(door: Door, ids: list[str]) -> Told:
    """Asks for the status of every one; once more after a while for those that are on their way."""
    found = await _told_now(door, ids)
    for _ in range(ASKED_AGAIN):
        if not found.not_sent:
            break
        await asyncio.sleep(AGAIN_AFTER_S)
        later = await _told_now(door, found.not_sent)
        possible = found.possible_duplicates + later.possible_duplicates
        found = Told(found.sent + later.sent, possible, later.not_sent)
    return found


async def _told_now(door: Door, ids: list[str]) -> Told:
    found, waiting = Told(), iter(ids)

    async def work(waiting: Iterator[str]) -> None:
        for notification_id in waiting:
            deliveries = (await door.notification(notification_id))["deliveries"]
            if [one["state"] in REACHED for one in deliveries] == [True]:
                found.sent += 1
                found.possible_duplicates += bool(deliveries[0].get("possible_duplicate"))
            else:
                found.not_sent.append(notification_id)

    async with asyncio.TaskGroup() as group:
        for _ in range(ASKED_AT_ONCE):
            group.create_task(work(waiting))
    return found
