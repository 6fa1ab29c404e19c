"""A small HTTP/1.1 client for providers: keep-alive connections to one origin, on asyncio and llhttp.

Exists because the client is the largest cost of a send (docs/decisions). It knows the one thing a sender
must know about a failure: whether the request may have reached the provider (NoAnswer) or cannot have (NotSent).
No redirects, no retries, no cookies, no proxies, no compression.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from consumers.providers.pool import NoAnswer, NotSent, Pool

MAX_HEADER_BYTES = 64 * 1024
MAX_BODY_BYTES = 256 * 1024
CONTINUE_CLASS = 1


class Answer(NamedTuple):
    """headers: names in lower case, the last value of each."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """idle_s: a connection unused for longer is not used again, as peers and proxies drop them silently."""

    max_connections: int = 256
    connect_timeout_s: float = 3.0
    idle_s: float = 30.0
    tls: ssl.SSLContext | None = None


class HttpPool:
    """Connections to the origin of one URL. Use from one event loop."""

    def __init__(self, url: str, options: PoolOptions) -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if secure else 80)
        self._tls = (options.tls or ssl.create_default_context()) if secure else None
        self._pool = Pool(self._connect, options.max_connections, options.connect_timeout_s, options.idle_s)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._head = f"POST {target} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n".encode()

    async def post(self, headers: bytes, body: bytes, timeout_s: float) -> Answer:
        """The provider's answer. `headers`: ready lines, each ending in CRLF; Host and Content-Length are added.

        Raises NotSent or NoAnswer. timeout_s covers everything, waiting for a connection included.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_s
        connection = await self._pool.acquire(give_up_at)
        request = b"%s%sContent-Length: %d\r\n\r\n%s" % (self._head, headers, len(body), body)
        try:
            return await connection.exchange(request, give_up_at)
        finally:
            self._pool.release(connection)

    @property
    def open_connections(self) -> int:
        """Connections that are established now, idle or busy."""
        return self._pool.open_connections

    async def close(self) -> None:
        """Closes every connection; exchanges under way end as NoAnswer."""
        await self._pool.close()

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: _Connection(self._pool.lost), self._host, self._port, ssl=self._tls
        )
        return connection


@dataclass(slots=True, eq=False)
class _Partial:
    """An answer in the making."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    header_bytes: int = 0
    framed: bool = False
    headers_complete: bool = False


class _Connection(asyncio.Protocol):
    """One keep-alive connection, one exchange at a time; also the callbacks of its llhttp parser."""

    def __init__(self, lost: Callable[[_Connection], None]) -> None:
        self.gone = asyncio.Event()
        self.idle_since = 0.0
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._pending: asyncio.Future[Answer] | None = None
        self._partial = _Partial()
        self._keep = True

    @property
    def usable(self) -> bool:
        """Whether another request may be written."""
        return self._keep and self._pending is None and self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes, give_up_at: float) -> Answer:
        """Writes one request and returns its answer; raises NoAnswer (or NotSent when the peer had gone before)."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise NotSent("the connection had been closed")
        loop = asyncio.get_running_loop()
        self._partial = _Partial()
        pending: asyncio.Future[Answer] = loop.create_future()
        self._pending = pending
        timer = loop.call_at(give_up_at, self.abandon, "time-out")
        try:
            transport.write(request)
            return await pending
        finally:
            timer.cancel()
            if not pending.done() or pending.cancelled():
                self.abandon("cancelled")
            self._pending = None

    def abandon(self, why: str) -> None:
        """Gives the connection up at once; an exchange under way ends as NoAnswer."""
        self._keep = False
        self._fail(why)
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, why: str) -> None:
        if self._pending is not None and not self._pending.done():
            self._pending.set_exception(NoAnswer(why))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class is no subclass

    def data_received(self, data: bytes) -> None:
        if self._pending is None or self._pending.done():
            self.abandon("bytes without a request")
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, _TooLarge) as error:
            self.abandon(f"unreadable answer: {type(error).__name__}")

    def connection_lost(self, error: Exception | None) -> None:
        self._keep = False
        partial = self._partial
        if partial.headers_complete and not partial.framed and error is None:
            self._finish()  # a body without length ends with the connection
        self._fail("connection lost")
        self.gone.set()
        self._lost(self)

    # llhttp

    def on_header(self, name: bytes, value: bytes) -> None:
        partial = self._partial
        partial.header_bytes += len(name) + len(value)
        if partial.header_bytes > MAX_HEADER_BYTES:
            raise _TooLarge
        key = name.decode("latin-1").lower()
        partial.headers[key] = value.decode("latin-1")
        if key in ("content-length", "transfer-encoding"):
            partial.framed = True

    def on_headers_complete(self) -> None:
        self._partial.headers_complete = self._parser.get_status_code() // 100 != CONTINUE_CLASS

    def on_body(self, chunk: bytes) -> None:
        self._partial.body += chunk
        if len(self._partial.body) > MAX_BODY_BYTES:
            raise _TooLarge

    def on_message_complete(self) -> None:
        if not self._partial.headers_complete:
            self._partial = _Partial()  # 1xx: the real answer follows
            return
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        self._keep = self._keep and not unsent and self._parser.should_keep_alive()
        self._finish()

    def _finish(self) -> None:
        partial = self._partial
        if self._pending is not None and not self._pending.done():
            answer = Answer(self._parser.get_status_code(), partial.headers, bytes(partial.body))
            self._pending.set_result(answer)


class _TooLarge(Exception):
    """The answer passes a limit."""
