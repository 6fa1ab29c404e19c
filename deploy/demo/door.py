"""An upstream team: it talks to the HTTP API only, and waits when it is asked to."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote

import aiohttp

from schemas.errors import Transient

PATIENCE = 60
"""Times an answer 503, or 409 for a request that still runs, is believed; each names how long to wait."""
LOADERS = 16
UPLOAD_WITHIN_S = 3600
LINES_A_CHUNK = 500
AGAIN_AFTER_S = 0.5
RECHECK_S, OWNED_UP_WITHIN_S = 0.2, 5.0


class Untrue(Exception):
    """The API said something about a message that is not so."""


def must(holds: bool, what: str) -> None:
    """Raises Untrue with these words unless it holds."""
    if not holds:
        raise Untrue(what)


class Door:
    """A client of the API. forgives: asks again also where the connection was lost."""

    def __init__(self, client: aiohttp.ClientSession, base: str, forgives: bool = False) -> None:
        self._client = client
        self._base = base
        self._forgiven: tuple[type[Exception], ...] = (aiohttp.ClientError, TimeoutError) if forgives else ()

    async def load(self, profiles: Iterable[dict[str, Any]]) -> int:
        """Stores profiles, some at a time; how many."""
        waiting, stored = iter(profiles), 0

        async def work() -> None:
            nonlocal stored
            for profile in waiting:
                body = {name: value for name, value in profile.items() if name != "user_id"}
                await self._ask("PUT", f"/v1/users/{quote(profile['user_id'])}", json=body)
                stored += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(LOADERS):
                group.create_task(work())
        return stored

    async def send(self, key: str, wish: dict[str, Any]) -> str:
        """POST of one notification; its id."""
        answer = await self._ask("POST", "/v1/notifications", json=wish, headers={"Idempotency-Key": key})
        must(answer["status"] == "accepted", f"a 202 said {answer['status']!r}")
        return str(answer["notification_id"])

    async def notification(self, notification_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._ask("GET", f"/v1/notifications/{notification_id}")
        return found

    async def inbox(self, user_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._ask("GET", f"/v1/users/{quote(user_id)}/inbox")
        return found

    async def start_campaign(self, campaign: dict[str, Any], lines: Callable[[], Iterator[bytes]]) -> dict[str, Any]:
        """Streams the audience as a file would be; never held in memory as a whole. lines: begins anew each time."""
        patient = aiohttp.ClientTimeout(total=UPLOAD_WITHIN_S)
        answer: dict[str, Any] = await self._ask(
            "POST", "/v1/campaigns", body=lambda: _upload(campaign, lines()), timeout=patient
        )
        return answer

    async def campaign(self, campaign_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._ask("GET", f"/v1/campaigns/{campaign_id}")
        return found

    async def owned_up(self, campaign_id: str, repeats: int, within_s: float = OWNED_UP_WITHIN_S) -> dict[str, Any]:
        """The campaign once it owns up to so many repeats; after `within_s` as it is, which the verdict has to tell.

        A provider has a message a moment before its answer is counted.
        """
        deadline_s = time.monotonic() + within_s
        while (told := await self.campaign(campaign_id))["possible_duplicates"] < repeats:
            if time.monotonic() > deadline_s:
                break
            await asyncio.sleep(RECHECK_S)
        return told

    async def recipients(self, campaign_id: str, outcome: str) -> list[dict[str, Any]]:
        text = await self._text(f"/v1/campaigns/{campaign_id}/recipients?outcome={outcome}")
        return [json.loads(line) for line in text.splitlines()]

    async def _ask(self, method: str, path: str, body: Callable[[], Any] | None = None, **options: Any) -> Any:
        """The answer. body: makes what is sent, anew for each try.

        Raises Untrue for a 4xx, since nothing wrong is asked for; Transient when 503 never ends.
        """
        for _ in range(PATIENCE):
            sent = {"data": body()} if body is not None else {}
            try:
                async with self._client.request(method, self._base + path, **sent, **options) as answer:
                    if not _asks_to_wait(answer):
                        must(answer.status < 400, f"{method} {path}: {answer.status} {await answer.text()}")
                        return await answer.json()
                    again_s = float(answer.headers.get("Retry-After", "1"))
            except self._forgiven:
                again_s = AGAIN_AFTER_S
            await asyncio.sleep(again_s)
        raise Transient(f"{method} {path}: no answer after {PATIENCE} tries")

    async def _text(self, path: str) -> str:
        async with self._client.get(self._base + path) as answer:
            must(answer.status == 200, f"GET {path} was answered {answer.status}")
            return await answer.text()


def _asks_to_wait(answer: aiohttp.ClientResponse) -> bool:
    return answer.status == 503 or (answer.status == 409 and "Retry-After" in answer.headers)


def _upload(campaign: dict[str, Any], audience: Iterator[bytes]) -> aiohttp.MultipartWriter:
    parts = aiohttp.MultipartWriter("form-data")
    definition = parts.append_json(campaign)
    definition.set_content_disposition("form-data", name="campaign")
    lines = parts.append(_chunks(audience), {"Content-Type": "application/x-ndjson"})
    lines.set_content_disposition("form-data", name="recipients", filename="audience.ndjson")
    return parts


async def _chunks(lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    while part := list(islice(lines, LINES_A_CHUNK)):
        yield b"".join(part)
