"""The demo looking at the outside world: the simulators' ledger, and the calls a dead worker left open."""

from __future__ import annotations

from typing import Any

import aiohttp

from consumers import claims
from deploy import redis_client
from schemas.trips import Epoch

PUSH, SMS, MAIL = "/send", "/sms", "smtp"
_CLAIMS = "c:{*"


class Outside:
    """Reads the ledger; knows nothing of Tidings."""

    def __init__(self, client: aiohttp.ClientSession, base: str) -> None:
        self._client = client
        self._base = base

    async def ledger(self) -> dict[str, Any]:
        found: dict[str, Any] = await self._get("/ledger")
        return found

    async def texts(self) -> list[dict[str, Any]]:
        """The newest SMS: when each arrived, and what it says."""
        found: list[dict[str, Any]] = await self._get(f"/messages?service={SMS}")
        return found

    async def _get(self, path: str) -> Any:
        async with self._client.get(self._base + path) as answer:
            return await answer.json()


def of(ledger: dict[str, Any], service: str) -> dict[str, int]:
    """The book of one service; zeros before its first call."""
    found: dict[str, int] = ledger["services"].get(service, {})
    return {"sends": 0, "repeats": 0, "distinct_keys": 0, "distinct_recipients": 0, **found}


async def calls_left_open(redis_url: str, taken_before_ms: int) -> int:
    """Claims without a verdict whose lease ended or ends before this time: the calls a dead worker had in flight.

    Asked a while after the kill, when every living worker has settled what it began before.
    """
    redis = redis_client.connect(redis_url, Epoch())
    try:
        count = 0
        async for key in redis.scan_iter(match=_CLAIMS, count=1000):
            raw = await redis.get(key)
            entry = claims.unpacked_entry(raw) if raw else None
            count += entry is not None and entry.is_open() and entry.lease_end_ms <= taken_before_ms
        return count
    finally:
        await redis.aclose()
