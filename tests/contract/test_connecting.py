"""A token is the right to one call now: none is spent by who still waits for a connection, of whatever kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from consumers.providers.contract import Provider
from consumers.providers.http import HttpOptions, HttpProvider
from consumers.providers.http_pool import PoolOptions
from consumers.providers.smtp import SmtpOptions, SmtpProvider
from schemas.clock import SystemClock
from schemas.messages import Channel
from tests.doubles import deliveries
from tests.doubles.sender_bench import SenderBench

CONNECT_S = 0.2


class Doorstep:
    """A peer that takes connections and never says a word: no handshake, no banner."""

    def __init__(self) -> None:
        self.port = 0
        self.knocked = asyncio.Event()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.knocked.set()
        await reader.read()
        writer.close()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self.take, "127.0.0.1")
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()


def http(port: int) -> Provider:
    pool = PoolOptions(connect_timeout_s=CONNECT_S)
    return HttpProvider("gateway", HttpOptions(f"https://127.0.0.1:{port}/send", pool=pool), SystemClock())


def smtp(port: int) -> Provider:
    options = SmtpOptions(f"smtp://127.0.0.1:{port}", "Shop <news@example.org>", connect_timeout_s=CONNECT_S)
    return SmtpProvider("mail", options, SystemClock())


@pytest.mark.parametrize("kind", [http, smtp])
async def test_while_connections_stall_no_token_is_spent_so_that_none_are_called_at_once_afterwards(
    kind: object, tmp_path: Path
) -> None:
    bench, peer = SenderBench(tmp_path), Doorstep()
    async with peer.open():
        bench.provider = provider = kind(peer.port)  # type: ignore[operator]
        worker = bench.worker()
        await worker.handle([bench.record(deliveries.single(channel=Channel.EMAIL))], lambda record, answer: None)
        async with asyncio.timeout(5):
            await peer.knocked.wait()
            assert bench.tokens.spent == 0
            await worker.close()
        assert bench.breaker.noted == [("not_processed", False)]
        assert bench.tokens.spent == 1, "who finds nobody does not knock more often than the rate allows"
        await provider.close()
