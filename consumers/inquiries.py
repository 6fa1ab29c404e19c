"""Questions to a provider's status API: at a pace of their own over all processes, and with patience.

Asking must never harm sending: it has its own small rate, and rests while nothing answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from consumers.limits import Tokens
from schemas import metrics
from schemas.clock import Clock
from schemas.reports import Report, Silence, StatusApi


@dataclass(frozen=True, slots=True)
class InquiryOptions:
    """tries, pause_s: of a question without an answer. wait_s: for the pace. rest_s: after so many failures in a row
    nobody is asked for a while.
    """

    tries: int = 3
    pause_s: float = 2.0
    wait_s: float = 30.0
    failures: int = 5
    rest_s: float = 30.0


class Inquiries:
    """StatusApi port in front of another one."""

    def __init__(
        self,
        provider: str,
        api: StatusApi,
        tokens: Tokens,
        clock: Clock,
        options: InquiryOptions | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._provider = provider
        self._api = api
        self._tokens = tokens
        self._clock = clock
        self._options = options or InquiryOptions()
        self._sleep = sleep
        self._failures = 0
        self._rests_until_s = 0.0

    async def ask(self, message_id: str) -> Report | Silence:
        """Raises StoreDown while the pace is not known."""
        told = await self._patiently(message_id)
        answer = told.kind.value if isinstance(told, Report) else told.value
        metrics.ASKED.labels(self._provider, answer).inc()
        return told

    async def _patiently(self, message_id: str) -> Report | Silence:
        told: Report | Silence = Silence.UNASKED
        for number in range(self._options.tries):
            if number:
                await self._sleep(self._options.pause_s)
            if not await self._may_ask():
                break
            told = await self._api.ask(message_id)
            if told is not Silence.NO_ANSWER:
                self._failures = 0
                break
            self._failed()
        return told

    async def _may_ask(self) -> bool:
        if self._clock.steady_s() < self._rests_until_s:
            return False
        tokens = await self._tokens.take(1, self._options.wait_s)
        return bool(tokens) and self._tokens.spend(tokens[0])

    def _failed(self) -> None:
        self._failures += 1
        if self._failures >= self._options.failures:
            self._failures = 0
            self._rests_until_s = self._clock.steady_s() + self._options.rest_s
