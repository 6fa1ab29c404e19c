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

    async def marks(self, since_s: float = 0.0) -> dict[str, dict[str, Any]]:
        """What came by the name that its text begins with; sends a second and waits only from this time on."""
        found: dict[str, dict[str, Any]] = await self._get(f"/ledger/marks?since={since_s:.6f}")
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


async def open_calls(redis_url: str) -> dict[bytes, bytes]:
    """Claims without a verdict: claim -> its holder's token."""
    return {key: entry.token for key, entry in (await _claims(redis_url, None)).items() if entry.is_open()}


async def left_open(redis_url: str, open_before: dict[bytes, bytes]) -> int:
    """How many of these calls their holders never settled: still open, or taken over since.

    Asked a while after a kill, when every living worker has settled what it began before.
    """
    found = await _claims(redis_url, list(open_before))
    return sum(
        entry.takeovers > 0 or (entry.is_open() and entry.token == open_before[key]) for key, entry in found.items()
    )


async def _claims(redis_url: str, wanted: list[bytes] | None) -> dict[bytes, claims.Entry]:
    """These claims, or all there are."""
    redis = redis_client.connect(redis_url, Epoch())
    try:
        if wanted is None:
            wanted = [key async for key in redis.scan_iter(match=_CLAIMS, count=1000)]
        raws = await redis.mget(wanted) if wanted else []
        return {key: claims.unpacked_entry(raw) for key, raw in zip(wanted, raws, strict=True) if raw}
    finally:
        await redis.aclose()
