"""A small HTTP/1.1 client for providers: keep-alive connections to one origin, on asyncio and llhttp.

Exists because the client is the largest cost of a send (docs/decisions). It knows the one thing a sender
must know about a failure: whether the request may have reached the provider (NoAnswer) or cannot have (NotSent).
No redirects, no retries, no cookies, no proxies, no compression.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from consumers.providers.pool import NoAnswer, NotSent, Pool

MAX_HEADER_BYTES = 64 * 1024
MAX_BODY_BYTES = 256 * 1024
CONTINUE_CLASS = 1
_FRAMING = frozenset({"content-length", "transfer-encoding"})


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
        self._watch = _Watch()
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._target = target.encode()
        self._host_line = f"Host: {parts.netloc.rpartition('@')[2]}\r\n".encode()
        self._head = b"POST %b HTTP/1.1\r\n%b" % (self._target, self._host_line)

    async def acquire(self, timeout_s: float) -> HttpConnection:
        """A connection for one `post`, to be released by whoever got it. Raises NotSent."""
        return await self._pool.acquire(asyncio.get_running_loop().time() + timeout_s)

    def release(self, connection: HttpConnection) -> None:
        """Used or not."""
        self._pool.release(connection)

    async def post(
        self, headers: bytes, body: bytes, timeout_s: float, connection: HttpConnection | None = None
    ) -> Answer:
        """The provider's answer. `headers`: ready lines, each ending in CRLF; Host and Content-Length are added.

        connection: one that was acquired; without it timeout_s covers the waiting for one, too. Raises NotSent or
        NoAnswer.
        """
        request = b"%s%sContent-Length: %d\r\n\r\n%s" % (self._head, headers, len(body), body)
        if connection is None:
            return await self._exchange(request, timeout_s)
        return await connection.exchange(request, asyncio.get_running_loop().time() + timeout_s)

    async def get(self, more: bytes, headers: bytes, timeout_s: float) -> Answer:
        """Likewise. more: what is put behind the URL, e.g. a query."""
        head = b"GET %b%b HTTP/1.1\r\n%b" % (self._target, more, self._host_line)
        return await self._exchange(b"%b%b\r\n" % (head, headers), timeout_s)

    async def _exchange(self, request: bytes, timeout_s: float) -> Answer:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_s
        connection = await self._pool.acquire(give_up_at)
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

    async def _connect(self) -> HttpConnection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: HttpConnection(self._pool.lost, self._watch), self._host, self._port, ssl=self._tls
        )
        return connection


class _Watch:
    """Gives up exchanges whose time is over: one timer for all, as hardly any of them ever needs it."""

    def __init__(self) -> None:
        self._busy: dict[HttpConnection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = 0.0

    def begin(self, connection: HttpConnection, give_up_at: float, loop: asyncio.AbstractEventLoop) -> None:
        self._busy[connection] = give_up_at
        if self._timer is None or give_up_at < self._looks_at:
            self._look_at(give_up_at, loop)

    def end(self, connection: HttpConnection) -> None:
        self._busy.pop(connection, None)

    def _look_at(self, when: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = when
        self._timer = loop.call_at(when, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for connection in [busy for busy, give_up_at in self._busy.items() if give_up_at <= now]:
            self.end(connection)
            connection.abandon("time-out")
        if self._busy:
            self._look_at(min(self._busy.values()), loop)


class HttpConnection(asyncio.Protocol):
    """One keep-alive connection, one exchange at a time; also the callbacks of its llhttp parser."""

    def __init__(self, lost: Callable[[HttpConnection], None], watch: _Watch) -> None:
        self.gone = asyncio.Event()
        self.idle_since = 0.0
        self._lost = lost
        self._watch = watch
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._pending: asyncio.Future[Answer] | None = None
        self._keep = True
        self._expect()

    def _expect(self) -> None:
        """Nothing has come of the next answer yet."""
        self._headers: dict[str, str] = {}
        self._header_bytes = 0
        self._body = b""
        self._rest = bytearray()
        self._framed = False
        self._headers_complete = False

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
        self._expect()
        pending: asyncio.Future[Answer] = loop.create_future()
        self._pending = pending
        self._watch.begin(self, give_up_at, loop)
        try:
            transport.write(request)
            return await pending
        finally:
            self._watch.end(self)
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
        if self._headers_complete and not self._framed and error is None:
            self._finish()  # a body without length ends with the connection
        self._fail("connection lost")
        self.gone.set()
        self._lost(self)

    # llhttp

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_BYTES:
            raise _TooLarge
        key = _header_name(name)
        self._headers[key] = value.decode("latin-1")
        if key in _FRAMING:
            self._framed = True

    def on_headers_complete(self) -> None:
        self._headers_complete = self._parser.get_status_code() // 100 != CONTINUE_CLASS

    def on_body(self, chunk: bytes) -> None:
        if not self._body:
            self._body = chunk  # nearly every answer is one piece
        else:
            self._rest += chunk
        if len(self._body) + len(self._rest) > MAX_BODY_BYTES:
            raise _TooLarge

    def on_message_complete(self) -> None:
        if not self._headers_complete:
            self._expect()  # 1xx: the real answer follows
            return
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        self._keep = self._keep and not unsent and self._parser.should_keep_alive()
        self._finish()

    def _finish(self) -> None:
        if self._pending is not None and not self._pending.done():
            body = self._body + self._rest if self._rest else self._body
            self._pending.set_result(Answer(self._parser.get_status_code(), self._headers, body))


@lru_cache(1_000)
def _header_name(name: bytes) -> str:
    """In lower case. A provider sends the same few with every answer."""
    return name.decode("latin-1").lower()


class _TooLarge(Exception):
    """The answer passes a limit."""
