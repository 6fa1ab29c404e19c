"""What a provider's HTTP server may do to us, and what the sender must be told about it.

Each test is one behaviour of a peer, played by a scripted server on loopback.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trustme

from consumers.providers.http_pool import HttpPool, PoolOptions
from consumers.providers.pool import NoAnswer, NotSent

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """A scripted server: `script` plays one connection; `connections` counts them."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.connections = 0
        self.url = ""
        self._script = script
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Peer]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        port = server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if self._tls else ''}://127.0.0.1:{port}/send"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def until(holds: Callable[[], bool]) -> None:
    """Lets the loop turn until it holds; the test's own time-out is the bound."""
    while not holds():  # noqa: ASYNC110 - there is no event for a peer's socket state
        await asyncio.sleep(0)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One request's body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return await reader.readexactly(length)


def answering(*answers: bytes, close: bool = False) -> Script:
    """One answer per request, the last one again and again; then closes when told to."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn = 0
        while True:
            await read_request(reader)
            writer.write(answers[min(turn, len(answers) - 1)])
            turn += 1
            await writer.drain()
            if close and turn == len(answers):
                return

    return script


@asynccontextmanager
async def pool_to(peer: Peer, **options: object) -> AsyncIterator[HttpPool]:
    pool = HttpPool(peer.url, PoolOptions(**options))  # type: ignore[arg-type]
    try:
        yield pool
    finally:
        await pool.close()


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with Peer(answering(OK)).serving() as peer, pool_to(peer) as pool:
        for _ in range(3):
            assert (await pool.post(b"", b"{}", 5)).body == b"ok"
        assert peer.connections == 1


async def test_headers_and_body_arrive_as_given() -> None:
    seen = asyncio.get_running_loop().create_future()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.set_result(head + await reader.readexactly(7))
        writer.write(OK)
        await writer.drain()

    async with Peer(script).serving() as peer, pool_to(peer) as pool:
        await pool.post(b"Idempotency-Key: k\r\n", b'{"a":1}', 5)
        request = await seen
        assert request.startswith(b"POST /send HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"\r\nIdempotency-Key: k\r\n" in request
        assert request.endswith(b'\r\n\r\n{"a":1}')


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nCONTENT-LENGTH: 2\r\nRetry-After: 7\r\n\r\nok", b"ok"),
    ],
)
async def test_every_legal_form_of_an_answer_is_read_and_the_connection_kept(raw: bytes, body: bytes) -> None:
    async with Peer(answering(raw)).serving() as peer, pool_to(peer) as pool:
        for _ in range(2):
            assert (await pool.post(b"", b"{}", 5)).body == body
        assert peer.connections == 1


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"])
async def test_a_body_without_length_ends_with_the_connection(head: bytes) -> None:
    async with Peer(answering(head + b"ok", close=True)).serving() as peer, pool_to(peer) as pool:
        for _ in range(2):
            assert (await pool.post(b"", b"{}", 5)).body == b"ok"
        assert peer.connections == 2


async def test_an_answer_that_comes_byte_by_byte_is_read() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for byte in OK:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async with Peer(script).serving() as peer, pool_to(peer) as pool:
        assert (await pool.post(b"", b"{}", 5)).status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"a" * 300_000,
    ],
    ids=["nothing", "short body", "short chunk", "half a head", "not HTTP", "huge header", "huge body"],
)
async def test_a_broken_answer_is_an_unknown_outcome_and_the_connection_is_dropped(raw: bytes) -> None:
    async with Peer(answering(raw, close=True)).serving() as peer, pool_to(peer) as pool:
        for _ in range(2):
            with pytest.raises(NoAnswer):
                await pool.post(b"", b"{}", 5)
        assert peer.connections == 2


async def test_silence_is_an_unknown_outcome_at_the_time_out() -> None:
    async with Peer(answering(b"")).serving() as peer, pool_to(peer) as pool:
        with pytest.raises(NoAnswer, match="time-out"):
            await pool.post(b"", b"{}", 0.05)


async def test_a_refused_connection_was_never_sent() -> None:
    async with Peer(answering(OK)).serving() as peer:
        pass
    async with pool_to(peer) as pool:
        with pytest.raises(NotSent):
            await pool.post(b"", b"{}", 5)


async def test_a_peer_that_closes_idle_connections_costs_nothing() -> None:
    async with Peer(answering(OK, close=True)).serving() as peer, pool_to(peer) as pool:
        for turn in range(1, 4):
            assert (await pool.post(b"", b"{}", 5)).status == 200
            await until(lambda: not pool.open_connections)
            assert peer.connections == turn


async def test_a_connection_idle_for_too_long_is_not_used_again() -> None:
    async with Peer(answering(OK)).serving() as peer, pool_to(peer, idle_s=0.0) as pool:
        await pool.post(b"", b"{}", 5)
        await pool.post(b"", b"{}", 5)
        assert peer.connections == 2


async def test_bytes_after_an_answer_are_never_taken_for_the_next_one() -> None:
    stray = b"HTTP/1.1 500 Stray\r\nContent-Length: 0\r\n\r\n"
    async with Peer(answering(OK + stray, OK)).serving() as peer, pool_to(peer) as pool:
        assert (await pool.post(b"", b"{}", 5)).status == 200
        assert (await pool.post(b"", b"{}", 5)).status == 200


async def test_no_more_connections_than_allowed_and_the_rest_wait_their_turn() -> None:
    async with Peer(answering(OK)).serving() as peer, pool_to(peer, max_connections=3) as pool:
        answers = await asyncio.gather(*(pool.post(b"", b"{}", 5) for _ in range(50)))
        assert [answer.status for answer in answers] == [200] * 50
        assert peer.connections == 3


async def test_whoever_waits_too_long_for_a_connection_was_never_sent() -> None:
    async with Peer(answering(b"")).serving() as peer, pool_to(peer, max_connections=1) as pool:
        stuck = asyncio.ensure_future(pool.post(b"", b"{}", 0.2))
        await asyncio.sleep(0)
        with pytest.raises(NotSent):
            await pool.post(b"", b"{}", 0.05)
        with pytest.raises(NoAnswer):
            await stuck


async def test_a_cancelled_request_gives_its_place_to_the_next() -> None:
    async with Peer(answering(b"")).serving() as peer, pool_to(peer, max_connections=1) as pool:
        first = asyncio.ensure_future(pool.post(b"", b"{}", 5))
        await until(lambda: peer.connections == 1)
        second = asyncio.ensure_future(pool.post(b"", b"{}", 5))
        await asyncio.sleep(0)
        first.cancel()
        await until(lambda: peer.connections == 2)
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)


async def test_closing_ends_what_is_under_way_as_unknown() -> None:
    async with Peer(answering(b"")).serving() as peer, pool_to(peer) as pool:
        under_way = asyncio.ensure_future(pool.post(b"", b"{}", 5))
        await until(lambda: peer.connections == 1)
        await pool.close()
        with pytest.raises(NoAnswer):
            await under_way


async def test_tls_is_verified_and_an_untrusted_peer_gets_nothing() -> None:
    authority = trustme.CA()
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_side)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with Peer(answering(OK), tls=server_side).serving() as peer:
        async with pool_to(peer, tls=trusting) as pool:
            for _ in range(2):
                assert (await pool.post(b"", b"{}", 5)).status == 200
            assert peer.connections == 1
        async with pool_to(peer) as pool:
            with pytest.raises(NotSent):
                await pool.post(b"", b"{}", 5)
