"""The provider's webhooks: what became of a message, told later, signed by Standard Webhooks with code of its own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import heapq
import hmac
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import aiohttp
import orjson

from deploy.simulators.faults import Faults, chance
from deploy.simulators.ledger import Ledger

BATCH = 100
GATHER_S = 0.1
"""How long the first report of a list waits for others, as providers with much to tell do."""
POSTS_AT_ONCE = 4
TRIES = 6
RETRY_BASE_S = 0.25
POST_TIMEOUT_S = 10
PENDING_MAX = 2_000_000
_ALL_WELL = ["delivered"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where the callbacks of a service go. secret: `whsec_` and base64; "" = not signed."""

    url: str
    secret: str = ""


class _Event(NamedTuple):
    """Ordered by its time. order: of planning, unique, so that nothing behind it is ever compared."""

    due_s: float
    order: int
    service: str
    body: bytes


class Callbacks:
    """Holds events until they are due, then posts them in lists, a few posts at once."""

    def __init__(self, targets: Mapping[str, Target], ledger: Ledger) -> None:
        self._targets = dict(targets)
        self._ledger = ledger
        self._pending: list[_Event] = []
        self._order = itertools.count()
        self._wake = asyncio.Event()
        self._free = asyncio.Semaphore(POSTS_AT_ONCE)

    def schedule(self, service: str, faults: Faults, key: int, call: int, reference: str, message_id: str) -> None:
        """Plans the callbacks of one accepted message; nothing when nobody listens to this service."""
        if service not in self._targets or not reference or len(self._pending) >= PENDING_MAX:
            return
        due_s = time.monotonic() + faults.callback_ms / 1000
        if faults.silent and chance(faults.seed, key, call, 1) < faults.silent:
            self._ledger.callbacks["silent"] += 1
            return
        if faults.late and chance(faults.seed, key, call, 2) < faults.late:
            due_s += faults.late_ms / 1000
        for position, kind in enumerate(_types(faults, key, call)):
            body = orjson.dumps(
                {"type": kind, "reference": reference, "id": message_id, "at": time_text(time.time_ns() // 1_000_000)}
            )
            heapq.heappush(self._pending, _Event(due_s + position * 1e-4, next(self._order), service, body))
        self._wake.set()

    async def run(self) -> None:
        """Posts until cancelled."""
        timeout = aiohttp.ClientTimeout(total=POST_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as posts:
            was_full = False
            while True:
                await self._await_due()
                if not was_full:
                    await asyncio.sleep(GATHER_S)
                due = self._take_due()
                was_full = sum(map(len, due.values())) == BATCH
                for service, bodies in due.items():
                    await self._free.acquire()
                    posts.create_task(self._post(session, service, bodies))

    async def _await_due(self) -> None:
        self._wake.clear()
        left_s = self._pending[0].due_s - time.monotonic() if self._pending else None
        if left_s is None or left_s > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), left_s)

    def _take_due(self) -> dict[str, list[bytes]]:
        now_s = time.monotonic()
        due: dict[str, list[bytes]] = {}
        for _ in range(BATCH):
            if not self._pending or self._pending[0].due_s > now_s:
                break
            event = heapq.heappop(self._pending)
            due.setdefault(event.service, []).append(event.body)
        return due

    async def _post(self, session: aiohttp.ClientSession, service: str, bodies: list[bytes]) -> None:
        """Posts one list; tries again a few times, as providers do, then gives it up."""
        body = bodies[0] if len(bodies) == 1 else b"[%b]" % b",".join(bodies)
        target = self._targets[service]
        try:
            for attempt in range(TRIES):
                if await self._accepted(session, target, body):
                    self._ledger.callbacks["posted"] += len(bodies)
                    return
                self._ledger.callbacks["retried"] += len(bodies)
                await asyncio.sleep(RETRY_BASE_S * 2**attempt)
            self._ledger.callbacks["given_up"] += len(bodies)
        finally:
            self._free.release()

    async def _accepted(self, session: aiohttp.ClientSession, target: Target, body: bytes) -> bool:
        message_id = f"msg_{next(self._order)}_{time.time_ns():x}"
        headers = {"content-type": "application/json", **signature(target.secret, message_id, int(time.time()), body)}
        try:
            async with session.post(target.url, data=body, headers=headers) as answer:
                return answer.status < 300
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False


def signature(secret: str, message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The three Standard Webhooks headers; none without a secret."""
    if not secret:
        return {}
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    code = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    return {"webhook-id": message_id, "webhook-timestamp": str(timestamp_s), "webhook-signature": f"v1,{code}"}


def _types(faults: Faults, key: int, call: int) -> list[str]:
    """What is reported of one message, in the order of telling."""
    if not (faults.bounced or faults.undelivered or faults.complained or faults.twice or faults.out_of_order):
        return _ALL_WELL
    drawn = chance(faults.seed, key, call, 3)
    types = ["delivered"]
    if drawn < faults.bounced:
        types = ["bounced"]
    elif drawn < faults.bounced + faults.undelivered:
        types = ["undelivered"]
    elif drawn > 1 - faults.complained:
        types.append("complained")
    if faults.twice and chance(faults.seed, key, call, 4) < faults.twice:
        types += types
    if faults.out_of_order and chance(faults.seed, key, call, 5) < faults.out_of_order:
        types.reverse()
    return types


def final_type(faults: Faults, key: int, call: int) -> str:
    """What became of one message, a complaint aside."""
    return next(kind for kind in _types(faults, key, call) if kind != "complained")


def time_text(at_ms: int) -> str:
    return f"{_second_text(at_ms // 1000)}.{at_ms % 1000:03}Z"


@lru_cache(1)
def _second_text(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
