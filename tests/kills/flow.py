"""A small mixed flow, and what must be true of it in the end, wherever a process died or stood still in its middle.

Looked at in three places that know nothing of each other: the provider's ledger, the public states, the counts.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from schemas import codec
from schemas.messages import DeliveryState
from tests.acceptance import people
from tests.acceptance.world import PUSH, World
from tests.kills.traps import Trap, Traps

RECIPIENTS, SINGLES = 300, 20
BULK_SINGLES = 6
"""Of the singles, that many have no hurry: they come by `route bulk` and wait for their share of the pace."""
CALLERS = 4
ANSWER_MS = 20
READERS = (
    "route requests",
    "route bulk",
    "work push.transactional",
    "work push.bulk",
    "forward",
    "route callbacks",
    "status",
)
BEHIND = frozenset({"accepted", "scheduled", "queued", "held", "retrying"})


@dataclass(frozen=True, slots=True)
class Ended:
    """repeats: messages the provider took beside the first of each delivery. doubted: possible duplicates told.

    never_made: calls that are told and of which the provider knows nothing.
    """

    repeats: int
    doubted: int
    never_made: int


class Flow:
    """A campaign and single notifications, by push, for people of this test's own."""

    def __init__(self, world: World, recipients: int = RECIPIENTS, singles: int = SINGLES) -> None:
        self._world = world
        own = secrets.token_hex(2)
        self.readers = [world.name(f"reader{number}-{own}") for number in range(recipients)]
        self.users = [world.name(f"user{number}-{own}") for number in range(singles)]
        self._wanted = world.name(f"news-{own}")
        self.campaign = ""
        self.accepted: dict[str, str] = {}
        self._callers: list[asyncio.Task[None]] = []

    async def begin(self, **faults: Any) -> None:
        """All that is wished for is on its way to the API. faults: of the provider, beside its slowness."""
        await self._prepare(faults)
        waiting = iter(self.users)

        async def call() -> None:
            for user in waiting:
                await self._notify(user)

        self._callers = [asyncio.create_task(one) for one in (self._send(), *(call() for _ in range(CALLERS)))]

    async def begin_in_turn(self) -> None:
        """One caller wishes for one thing after the other: while the API is dead, nothing else is under way there."""
        await self._prepare({})

        async def call() -> None:
            await self._send()
            for user in self.users:
                await self._notify(user)

        self._callers = [asyncio.create_task(call())]

    async def ended(self) -> Ended:
        """Waits for its end: nobody is left out or gets it twice without a word, and the counts are exact."""
        world, everybody = self._world, len(self.readers)
        await asyncio.gather(*self._callers)
        for user in self.users:
            await world.until_status(self.accepted[user], "delivered")
        await world.until_finished(self.campaign)
        for role in READERS:
            await world.until_read(role)
        told = await world.until_told(self.campaign, lambda seen: seen["progress"]["delivered"] == everybody, "arrived")
        assert told["status"] == "processed" and told["outcomes"] == {"delivered": everybody} and told["reasons"] == {}
        assert set(told["progress"].values()) == {everybody}, "accepted, released, sent and delivered are all of them"

        book, states = await self._book(), await self._states()
        assert min(sends for _, sends in book.values()) >= 1, "somebody got nothing"
        doubted = {user: state.possible_duplicates for user, state in states.items()}
        assert {user: book[user] for user in book if book[user][1] - 1 > doubted[user]} == {}, "again, without a word"
        assert {user: book[user] for user in book if book[user][0] > states[user].calls} == {}, "calls nobody told of"
        counted = sum(doubted[user] for user in self.readers)
        await world.until_told(
            self.campaign, lambda seen: seen["possible_duplicates"] == counted, f"tells of {counted} in doubt"
        )
        repeats = sum(sends - 1 for _, sends in book.values())
        return Ended(repeats, sum(doubted.values()), sum(states[user].calls - book[user][0] for user in book))

    async def _prepare(self, faults: dict[str, Any]) -> None:
        await self._world.new_ledger()
        await self._world.faults(PUSH, **{"answer_ms": ANSWER_MS, **faults})

    async def _send(self) -> None:
        self.campaign = await self._world.campaign("news", people.readers(self.readers), campaign_id=self._wanted)

    async def _notify(self, user: str) -> None:
        template = "news" if user in self.users[:BULK_SINGLES] else "alert"
        wish = {"params": {"text": "x", "name": user}, "to": people.to_device(user)}
        self.accepted[user] = await self._world.notify(user, template, key=user, **wish)

    async def _book(self) -> dict[str, tuple[int, int]]:
        """User -> calls that the provider got for their one delivery, and messages that it took."""
        keys = [*map(people.push_key, self.users), *people.reader_keys(self.campaign, self.readers)]
        book = await self._world.calls(PUSH, keys)
        return {user: book[key] for user, key in zip((*self.users, *self.readers), keys, strict=True)}

    async def _states(self) -> dict[str, DeliveryState]:
        """User -> the state of their one delivery, as `notification.state` tells it."""
        everybody = {*self.users, *self.readers}
        written = await self._world.records(self._world.topics.state)
        states = [codec.decode(record.value, DeliveryState) for record in written if record.value]
        by_delivery: defaultdict[str, list[DeliveryState]] = defaultdict(list)
        for state in states:
            if state.user_id in everybody and state.reason != "duplicate_of":
                by_delivery[state.delivery_id].append(state)
        last = [_last(found) for found in by_delivery.values()]
        assert sorted(state.user_id for state in last) == sorted(everybody), "each person has one delivery"
        assert {state.state for state in last} == {"delivered"}
        return {state.user_id: state for state in last}


def _last(states: Sequence[DeliveryState]) -> DeliveryState:
    """The newest; none on the way to it goes back."""
    in_order = sorted(states, key=lambda state: state.version)
    for before, after in pairwise(in_order):
        assert before.state in BEHIND or after.state not in BEHIND, f"{before.state}, then {after.state}"
        assert before.state != "delivered" or after.state == "delivered", f"delivered, then {after.state}"
    return in_order[-1]


async def until_sprung(world: World, traps: Traps, role: str, within_s: float = 60.0) -> int:
    """The process that went into the trap."""

    async def look() -> int | None:
        return traps.sprung_by(role)

    pid = await world.until(look, lambda seen: seen is not None, f"a process of {role} goes into the trap", within_s)
    assert pid is not None
    return pid


async def caught(world: World, traps: Traps, role: str, trap: Trap, **faults: Any) -> tuple[Flow, int]:
    """A flow in whose middle a process of this role met its fate; also its id."""
    traps.set(role, trap)
    flow = Flow(world)
    await flow.begin(**faults)
    return flow, await until_sprung(world, traps, role)
