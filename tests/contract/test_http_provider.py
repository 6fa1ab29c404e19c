"""What the sender learns of a request whose answer never came: whether it may have arrived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from consumers.providers.contract import Call
from consumers.providers.http import HttpOptions, HttpProvider
from deploy.local.places import free_port
from schemas.content import Content
from schemas.messages import Channel
from schemas.outcomes import Kind
from tests.doubles.manual_clock import ManualClock
from tests.doubles.one_call import OneCall

CALL = Call("default", "42", "key", "n1", "ref", Channel.SMS, "welcome", "+4930123456", Content(text="Hallo"), 0, "")


@asynccontextmanager
async def provider(port: int) -> AsyncIterator[OneCall]:
    options = HttpOptions(f"http://127.0.0.1:{port}/send", timeout_s=1)
    made = OneCall(HttpProvider("gateway", options, ManualClock()))
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def gateway(hangs: bool) -> AsyncIterator[int]:
    """Reads each request and never answers: it hangs, or closes the connection."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"Hallo")
        if hangs:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1")
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_request_that_left_without_an_answer_may_have_arrived(hangs: bool) -> None:
    async with gateway(hangs) as port, provider(port) as http:
        assert (await http.send(CALL)).kind is Kind.UNKNOWN


async def test_a_request_that_reached_nobody_was_not_sent() -> None:
    async with provider(free_port()) as http:
        assert (await http.send(CALL)).kind is Kind.NOT_PROCESSED
