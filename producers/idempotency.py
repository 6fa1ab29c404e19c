"""The caller's key: the same wish gets the same answer, and only one of its copies is written at a time.

A lock while the first copy runs, then its answer for a day. Redis only saves callers from doubles early:
two records with one intent key are told apart at the claim, so nothing here is needed for sending once,
and a request is accepted unchecked while Redis cannot be asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from schemas import keys
from schemas.clock import Clock
from schemas.errors import StoreDown
from schemas.shared_trips import SharedTrips
from schemas.trips import Epoch, Trips, script_beside

log = logging.getLogger(__name__)
SCRIPT = script_beside(__file__, "idempotency.lua")
ANSWER_S = 0.5
"""Bounds a round trip of this store: a caller is waiting."""


@dataclass(frozen=True, slots=True)
class Options:
    """lock_ms outlasts the log's delivery time-out, so that a lock outlives its request.

    After a failed round trip Redis is left alone for pause_s, so that callers need not each wait for it.
    """

    lock_ms: int = 35_000
    keep_ms: int = 86_400_000
    pause_s: float = 1.0


class Begun(StrEnum):
    """What the store knows of a key."""

    BEGUN = "begun"
    RUNNING = "running"
    ANSWERED = "answered"
    OTHER_BODY = "other_body"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request under a key. answer: the stored one; wait_ms: how long the running one may still take.

    token is "" when Redis never heard of the attempt: there is nothing to finish or release.
    """

    tenant: str
    event_id: str
    body_hash: str
    token: str
    begun: Begun
    answer: str = ""
    wait_ms: int = 0


class Store(Protocol):
    """The port; a memory body serves the handlers' tests."""

    async def begin(self, tenant: str, event_id: str, body_hash: str) -> Attempt:
        """Takes the key for one attempt, or says why not; UNCHECKED when Redis cannot be asked or trusted."""
        ...

    async def finish(self, attempt: Attempt, answer: str, starts_in_ms: int) -> None:
        """Keeps the answer of an accepted request, a day past its start. Never raises: the log has the request."""
        ...

    async def release(self, attempt: Attempt) -> None:
        """Gives the key back: nothing was accepted under it. Never raises."""
        ...


class Idempotency:
    """The Store on Redis. trips: bounded by ANSWER_S."""

    def __init__(
        self,
        trips: Trips,
        epoch: Epoch,
        clock: Clock,
        new_token: Callable[[], str],
        options: Options = Options(),
    ) -> None:
        self._trips = SharedTrips(trips, epoch)
        self._clock = clock
        self._new_token = new_token
        self._options = options
        self._left_alone_until_s = 0.0

    async def begin(self, tenant: str, event_id: str, body_hash: str) -> Attempt:
        attempt = Attempt(tenant, event_id, body_hash, self._new_token(), Begun.UNCHECKED)
        if self._clock.steady_s() < self._left_alone_until_s:
            return replace(attempt, token="")
        try:
            word, detail, trusted = await self._run(attempt, "begin", attempt.token, self._options.lock_ms)
        except StoreDown as error:
            self._leave_alone("begin", error)
            return replace(attempt, token="")
        if not trusted and word == Begun.BEGUN:
            return attempt
        wait_ms = max(0, int(detail)) if word == Begun.RUNNING else 0
        return replace(attempt, begun=Begun(word), answer=detail, wait_ms=wait_ms)

    async def finish(self, attempt: Attempt, answer: str, starts_in_ms: int) -> None:
        await self._quietly(attempt, "finish", answer, self._options.keep_ms + starts_in_ms)

    async def release(self, attempt: Attempt) -> None:
        await self._quietly(attempt, "release", attempt.token)

    async def _quietly(self, attempt: Attempt, step: str, *arguments: str | int) -> None:
        if not attempt.token:
            return
        try:
            await self._run(attempt, step, *arguments)
        except StoreDown as error:
            self._leave_alone(step, error)

    def _leave_alone(self, step: str, error: StoreDown) -> None:
        self._left_alone_until_s = self._clock.steady_s() + self._options.pause_s
        log.warning("idempotency.unavailable", extra={"step": step, "error": str(error)})

    async def _run(self, attempt: Attempt, step: str, *arguments: str | int) -> tuple[str, str, bool]:
        """One round trip: the script's word and detail, and whether Redis holds all it should."""
        key = keys.redis_idempotency(attempt.tenant, attempt.event_id)
        given = (step, attempt.body_hash, *arguments)
        (word, detail), trusted = await self._trips.go(lambda trip: trip.run(SCRIPT, (key,), *given))
        return word.decode(), detail.decode(), trusted
