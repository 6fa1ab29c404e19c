"""A provider as a sender uses it: a way there, one call, and the way left again."""

from __future__ import annotations

from consumers.providers.contract import Call, Provider
from schemas.outcomes import Outcome


class OneCall:
    """Makes each call on a way of its own."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def send(self, call: Call) -> Outcome:
        way = await self._provider.reach()
        if isinstance(way, Outcome):
            return way
        try:
            return await way.send(call)
        finally:
            way.leave()

    async def close(self) -> None:
        await self._provider.close()
