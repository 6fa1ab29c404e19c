"""A provider that answers as told, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from consumers.providers.contract import Call
from schemas.outcomes import Kind, Outcome


class ScriptedProvider:
    """Answers with the scripted outcomes in order, then with DONE. hang: never answers again.

    called: somebody has called. may_answer: until it is set, calls stay open.
    """

    carries_reference = True

    def __init__(self, name: str = "gateway", script: Iterable[Outcome | Exception] = ()) -> None:
        self.name = name
        self.calls: list[Call] = []
        self.script = list(script)
        self.hang = False
        self.called = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

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
