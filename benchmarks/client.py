"""Tidings' callers: campaigns by the hundred thousand, single requests at an even pace whatever the answers take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp
import orjson

from benchmarks import load
from benchmarks.programs import NotMeasured
from benchmarks.site import CODE, Site
from consumers.providers.http_pool import HttpPool, PoolOptions
from consumers.providers.pool import NoAnswer, NotSent

LONGEST_S = 600
TIMEOUT_S = 30.0
CONNECTIONS = 128
LOOK_S = 0.2
FINISHED = frozenset({"processed", "partially_processed", "expired", "cancelled"})
ACCEPTED = 202


class Answered(NamedTuple):
    """status 0: no answer came. wait_ms: since the time at which the request was meant to go."""

    status: int
    wait_ms: float


async def start_campaign(here: Site, campaign_id: str, count: int, stored: int, template: str = load.TEMPLATE) -> None:
    """POST with the audience as a stream; returns after the 202."""
    parts = aiohttp.MultipartWriter("form-data")
    definition = {"campaign_id": campaign_id, "template": template, "channels": ["push"]}
    parts.append_json(definition).set_content_disposition("form-data", name="campaign")
    lines: AsyncIterator[bytes] = load.chunks(load.audience(count, stored))
    audience = parts.append(lines, {"Content-Type": "application/x-ndjson"})
    audience.set_content_disposition("form-data", name="recipients", filename="audience.ndjson")
    async with _session() as session, session.post(f"{here.api}/v1/campaigns", data=parts) as answer:
        if answer.status != ACCEPTED:
            raise NotMeasured(f"the campaign was answered {answer.status}: {await answer.text()}")


async def campaign(here: Site, campaign_id: str) -> dict[str, Any]:
    """What its GET tells; asked again while a 503 says so."""
    async with _session() as session:
        while True:
            async with session.get(f"{here.api}/v1/campaigns/{campaign_id}") as answer:
                if answer.status == 200:
                    found: dict[str, Any] = await answer.json()
                    return found
            await asyncio.sleep(LOOK_S)


async def until_finished(here: Site, campaign_id: str, within_s: float = LONGEST_S) -> dict[str, Any]:
    """What GET tells once every recipient has an outcome."""
    deadline_s = time.monotonic() + within_s
    while (told := await campaign(here, campaign_id))["status"] not in FINISHED:
        if time.monotonic() > deadline_s:
            raise NotMeasured(f"the campaign is not finished within {within_s:g} s: {told}")
        await asyncio.sleep(LOOK_S)
    return told


async def offer(here: Site, name: str, per_s: float, seconds: float) -> list[Answered]:
    """Login codes at an even pace, each at its time, whether or not those before are answered. All answers."""
    pool = HttpPool(f"{here.api}/v1/notifications", PoolOptions(max_connections=CONNECTIONS))
    begins_s = time.time() + 0.1
    tasks = []
    try:
        for number in range(round(per_s * seconds)):
            due_s = begins_s + number / per_s
            if (wait_s := due_s - time.time()) > 0:
                await asyncio.sleep(wait_s)
            tasks.append(asyncio.ensure_future(_wish(pool, f"{name}-{number}", number, due_s)))
        return list(await asyncio.gather(*tasks))
    finally:
        await pool.close()


async def _wish(pool: HttpPool, key: str, number: int, due_s: float) -> Answered:
    user_id = load.user(number % load.PEOPLE)
    device = {"id": load.DEVICE, "token": f"token-{number:032}", "platform": "android"}
    body = {
        "user_id": user_id,
        "template": CODE,
        "params": {"at": f"{due_s:.6f}", "code": f"{number:06}"},
        "to": {"devices": [device]},
    }
    headers = f"Content-Type: application/json\r\nIdempotency-Key: {key}\r\n".encode()
    try:
        status = (await pool.post(headers, orjson.dumps(body), TIMEOUT_S)).status
    except (NoAnswer, NotSent):
        status = 0
    return Answered(status, (time.time() - due_s) * 1000)


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LONGEST_S))
