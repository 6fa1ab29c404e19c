"""Provider kind `smtp`: email over reused, pipelined connections."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from consumers.providers import mime, smtp_replies
from consumers.providers.contract import Call, Way
from consumers.providers.pool import NoAnswer, NotSent, Pool, PooledWay
from consumers.providers.smtp_connection import Envelope, Server, SmtpConnection, Unwelcome
from schemas.clock import Clock
from schemas.outcomes import Kind, Outcome

DEFAULT_PORTS = {"smtp": 25, "smtps": 465}


@dataclass(frozen=True, slots=True)
class SmtpOptions:
    """url: smtp:// (STARTTLS when offered) or smtps://, with user and password; source: `Shop <news@example.org>`."""

    url: str
    source: str
    timeout_s: float = 5.0
    max_connections: int = 20
    connect_timeout_s: float = 5.0
    idle_s: float = 30.0
    require_tls: bool = False
    tls: ssl.SSLContext | None = None
    own_name: str = "localhost"


class SmtpProvider:
    """An account at a mail server."""

    carries_reference = True

    def __init__(self, name: str, options: SmtpOptions, clock: Clock) -> None:
        self.name = name
        self._timeout_s = options.timeout_s
        self._source = mime.sender(options.source)
        self._server = server_of(options)
        self._clock = clock
        self._pool: Pool[SmtpConnection] = Pool(
            self._connect, options.max_connections, options.connect_timeout_s, options.idle_s
        )

    async def reach(self) -> Way | Outcome:
        """A connection that is logged in; else what the mail server said, or NOT_PROCESSED."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._timeout_s
        try:
            connection = await self._pool.acquire(give_up_at)
        except NotSent as error:
            return _not_sent(error)
        return PooledWay(connection, self._send, self._pool.release, give_up_at - loop.time())

    async def close(self) -> None:
        await self._pool.close()

    async def _send(self, connection: SmtpConnection, call: Call, left_s: float) -> Outcome:
        """What the mail server answered; UNKNOWN when the content may have arrived and no reply came."""
        try:
            return await self._deliver(connection, call, asyncio.get_running_loop().time() + left_s)
        except NotSent as error:
            return _not_sent(error)
        except NoAnswer as error:
            return Outcome(Kind.UNKNOWN, detail=str(error))

    async def _deliver(self, connection: SmtpConnection, call: Call, give_up_at: float) -> Outcome:
        recipient = mime.ascii_address(call.to)
        if not recipient.isascii() and "SMTPUTF8" not in connection.extensions:
            return Outcome(Kind.DROP, detail="not supported by the provider: address needs SMTPUTF8")
        envelope = Envelope(self._source.address, recipient, envelope_id(call.notification_id), not recipient.isascii())
        reply = await connection.deliver(envelope, self._content(call), give_up_at)
        return smtp_replies.outcome(reply)

    def _content(self, call: Call) -> bytes:
        headers = (
            ("X-Tidings-Delivery-Key", header_token(call.delivery_key)),
            ("X-Tidings-Reference", header_token(call.reference)),
        )
        content = call.content
        mail = mime.Mail(
            call.to, content.subject, content.text, content.html, call.delivery_key, headers, self._clock.now_ms()
        )
        return mime.compose(mail, self._source)

    async def _connect(self) -> SmtpConnection:
        server = self._server
        loop = asyncio.get_running_loop()
        tls = (server.tls or True) if server.secure else None
        _, connection = await loop.create_connection(
            lambda: SmtpConnection(self._pool.lost), server.host, server.port, ssl=tls
        )
        try:
            await connection.greet(server)
        except BaseException:
            connection.abandon("not welcome")
            raise
        return connection


def server_of(options: SmtpOptions) -> Server:
    """The server that the URL names."""
    parts = urlsplit(options.url)
    return Server(
        host=parts.hostname or "",
        port=parts.port or DEFAULT_PORTS[parts.scheme],
        secure=parts.scheme == "smtps",
        require_tls=options.require_tls,
        tls=options.tls,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        own_name=options.own_name,
    )


def header_token(token: str) -> str:
    """The token itself, or its digest when it would pass the longest line a mail server must take."""
    return token if len(token) <= mime.PLAIN_HEADER_MAX else hashlib.sha256(token.encode()).hexdigest()


def envelope_id(notification_id: str) -> str:
    """ENVID (RFC 3461, at most 100 characters of xtext): the id itself, or a stable short form of a long one."""
    if len(notification_id) <= 100:
        return notification_id
    return base64.b32encode(hashlib.sha256(notification_id.encode()).digest()).decode().rstrip("=").lower()


def _not_sent(error: NotSent) -> Outcome:
    cause = error.__cause__
    if isinstance(cause, Unwelcome):
        return smtp_replies.outcome(cause.reply)
    return Outcome(Kind.NOT_PROCESSED, detail=str(error))
