"""A provider that answers as told, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from consumers.providers.contract import Call, Way
from schemas.outcomes import Kind, Outcome


class ScriptedProvider:
    """Answers with the scripted outcomes in order, then with DONE. hang: never answers again.

    reaching: told who looks for a way to it. called: somebody has called. may_answer: until it is set, calls stay open.
    unreached: what comes of looking for a way. open_ways: those that nobody has left.
    """

    carries_reference = True

    def __init__(self, name: str = "gateway", script: Iterable[Outcome | Exception] = ()) -> None:
        self.name = name
        self.calls: list[Call] = []
        self.script = list(script)
        self.hang = False
        self.reaching: Callable[[], Awaitable[None]] | None = None
        self.unreached: Outcome | Exception | None = None
        self.open_ways = 0
        self.called = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def reach(self) -> Way | Outcome:
        if self.reaching is not None:
            await self.reaching()
        if isinstance(self.unreached, Exception):
            raise self.unreached
        if self.unreached is not None:
            return self.unreached
        self.open_ways += 1
        return self

    def leave(self) -> None:
        self.open_ways -= 1

    async def send(self, call: Call) -> Outcome:
        self.calls.append(call)
        self.called.set()
        await self.may_answer.wait()
        if self.hang:
            await asyncio.Event().wait()
        if not self.script:
            return Outcome(Kind.DONE, provider_id=f"m{len(self.calls)}")
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        return None
