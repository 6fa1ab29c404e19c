"""What `reconcile` learns of a gateway's status API, however it answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from consumers.providers.http import HttpOptions
from consumers.providers.http_pool import Answer
from consumers.providers.http_status import HttpStatus, read_status
from deploy.local.places import free_port
from deploy.simulators import faults, run
from schemas.messages import EventKind
from schemas.reports import Report, Silence
from tests.doubles.manual_clock import START_MS, ManualClock

MESSAGE = {"delivery_key": "k", "reference": "ref", "channel": "sms", "to": "+4930123456", "text": "Hallo"}


@asynccontextmanager
async def asking(url: str) -> AsyncIterator[HttpStatus]:
    made = HttpStatus(HttpOptions(url, timeout_s=1), ManualClock(START_MS))
    try:
        yield made
    finally:
        await made.close()


@pytest.mark.parametrize("end", ["delivered", "undelivered", "bounced"])
async def test_a_gateway_tells_what_became_of_a_message_it_never_reported(end: str) -> None:
    fate = faults.parse({"silent": 1, "callback_ms": 0, **({} if end == "delivered" else {end: 1})})
    async with run.running(run.Options(http_port=0, smtp_port=0, faults=fate)) as outside:
        base = f"http://127.0.0.1:{outside.http_port}/send"
        async with aiohttp.ClientSession() as client, client.post(base, json=MESSAGE) as answer:
            message_id = (await answer.json())["id"]
        async with asking(base + "/status") as api, asking(base + "/status?account=7") as other:
            told = await api.ask(message_id)
            assert isinstance(told, Report)
            assert (told.kind.value, told.reference, told.message_id) == (end, "ref", message_id)
            assert told.suppress is (end == "bounced")
            assert isinstance(await other.ask(message_id), Report)
            assert await api.ask("no such & message") is Silence.UNKNOWN


async def test_a_gateway_that_is_away_or_hangs_says_nothing() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1")
    for port in (free_port(), server.sockets[0].getsockname()[1]):
        async with asking(f"http://127.0.0.1:{port}/status") as api:
            assert await api.ask("m") is Silence.NO_ANSWER
    server.close()


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, b'{"type": "pending"}', Silence.PENDING),
        (200, b'{"type": "unknown"}', Silence.UNKNOWN),
        (404, b"", Silence.UNKNOWN),
        (200, b'{"type": "teleported"}', Silence.NO_ANSWER),
        (200, b'["delivered"]', Silence.NO_ANSWER),
        (200, b"\xff{", Silence.NO_ANSWER),
        (500, b'{"type": "delivered"}', Silence.NO_ANSWER),
        (302, b'{"type": "delivered"}', Silence.NO_ANSWER),
    ],
)
def test_only_what_can_be_read_counts_as_a_word(status: int, body: bytes, told: Silence) -> None:
    assert read_status(Answer(status, {}, body), "m", START_MS) is told


@pytest.mark.parametrize(
    ("at", "at_ms"),
    [
        ("2026-11-01T00:00:00Z", 1_793_491_200_000),
        ("2999-01-01T00:00:00Z", START_MS),
        ("2026-11-01T00:00:00", START_MS),
        ("yesterday", START_MS),
        (7, START_MS),
    ],
)
def test_a_time_that_cannot_be_is_taken_for_now(at: object, at_ms: int) -> None:
    text = f'"{at}"' if isinstance(at, str) else at
    told = read_status(Answer(200, {}, b'{"type": "delivered", "at": %b}' % str(text).encode()), "m", START_MS)
    assert told == Report(EventKind.DELIVERED, "", "m", at_ms)
