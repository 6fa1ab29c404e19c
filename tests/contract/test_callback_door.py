"""Whoever knows the address may post anything to the door of callbacks: all of it is a refusal, none of it an error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from deploy import serving
from producers.callbacks.server import REFUSED, CallbackParts, build_app
from producers.callbacks.signatures import StandardWebhooks
from schemas.topics import Topics
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_log import MemoryLog

TOPICS = Topics()


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(1)


@pytest.fixture
async def port(log: MemoryLog) -> AsyncIterator[int]:
    webhooks = StandardWebhooks("gateway", ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
    app = build_app(CallbackParts(log, log, TOPICS, {"gateway": webhooks}, ManualClock()))
    with serving.bound("127.0.0.1:0", "[callbacks] listen") as door:
        async with serving.serving(app, door):
            yield door.getsockname()[1]


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
        b"Content-Encoding: deflate\r\nContent-Length: 5\r\n\r\nhello",
        b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"Content-Length: 0\r\n\r\n",
    ],
)
async def test_a_body_that_is_not_what_its_headers_say_is_refused_like_any_unsigned_one(
    port: int, log: MemoryLog, caplog: pytest.LogCaptureFixture, rest: bytes
) -> None:
    with caplog.at_level(logging.WARNING):
        answer = await said_to(port, rest)
    assert answer.startswith(b"HTTP/1.1 401") and REFUSED.encode() in answer
    assert not caplog.messages
    assert not log.records(TOPICS.callbacks)


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Encoding: br\r\nContent-Length: 5\r\n\r\nhello",
        b"Transfer-Encoding: chunked\r\n\r\nfive\r\nhello\r\n0\r\n\r\n",
        b"Content-Length: five\r\n\r\nhello",
    ],
)
async def test_what_is_no_http_is_a_400_and_fills_nobodys_log(
    port: int, caplog: pytest.LogCaptureFixture, rest: bytes
) -> None:
    with caplog.at_level(logging.WARNING):
        assert b" 400 " in (await said_to(port, rest)).partition(b"\r\n")[0]
    assert not caplog.messages


async def test_a_bug_of_ours_is_still_told(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(request: web.Request) -> web.Response:
        raise ZeroDivisionError

    app = web.Application()
    app.router.add_post("/v1/callbacks/gateway", fail)
    with serving.bound("127.0.0.1:0", "[callbacks] listen") as door:
        async with serving.serving(app, door):
            assert b" 500 " in await said_to(door.getsockname()[1], b"Content-Length: 0\r\n\r\n")
    assert "Error handling request from 127.0.0.1" in caplog.messages


async def test_a_body_that_breaks_off_leaves_no_trace_of_an_error(
    port: int, log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert await said_to(port, b"Content-Length: 50\r\n\r\nhello", and_hang_up=True) == b""
    assert not caplog.messages
    assert not log.records(TOPICS.callbacks)


async def said_to(port: int, rest: bytes, *, and_hang_up: bool = False) -> bytes:
    """What the server answers to a post with these last headers and this body."""
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/callbacks/gateway HTTP/1.1\r\nHost: here\r\nConnection: close\r\n" + rest)
        await writer.drain()
        if and_hang_up:
            writer.write_eof()
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer
