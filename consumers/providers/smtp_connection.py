"""One SMTP connection: greeting, TLS, login, then messages with as few round trips as the server allows.

With PIPELINING a message costs two round trips (envelope, content), without it five. RFC 5321, 2920, 3207, 4954.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from consumers.providers.pool import NoAnswer, NotSent

MAX_REPLY_BYTES = 64 * 1024


class Stage(StrEnum):
    """Where a reply came decides whose fault it is."""

    CONNECT = "connect"
    LOGIN = "login"
    SENDER = "mail from"
    RECIPIENT = "rcpt to"
    CONTENT = "data"


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply; text: its lines without the codes, joined by a space."""

    code: int
    text: str
    stage: Stage


class Unwelcome(OSError):
    """The server refused the connection or the login: nothing was sent."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"{reply.stage}: {reply.code}")
        self.reply = reply


@dataclass(frozen=True, slots=True)
class Server:
    """starttls: use it when offered; required: refuse to go on without. secure: TLS from the first byte (smtps)."""

    host: str
    port: int
    secure: bool = False
    require_tls: bool = False
    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None
    own_name: str = "localhost"


@dataclass(frozen=True, slots=True)
class Envelope:
    """sender and recipient are bare ASCII addresses (unless SMTPUTF8); envelope_id comes back in bounce reports."""

    sender: str
    recipient: str
    envelope_id: str
    smtputf8: bool = False


class SmtpConnection(asyncio.Protocol):
    """A logged-in connection; one message at a time."""

    def __init__(self, lost: Callable[[SmtpConnection], None]) -> None:
        self.gone = asyncio.Event()
        self.idle_since = 0.0
        self.extensions: dict[str, str] = {}
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._lines: list[str] = []
        self._replies: deque[tuple[int, str]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._keep = True
        self._busy = True
        self._ended = False
        self._why = "connection lost"

    @property
    def usable(self) -> bool:
        return self._keep and not self._busy and self._transport is not None and not self._transport.is_closing()

    def abandon(self, why: str) -> None:
        self._keep = False
        self._why = why
        if self._transport is not None:
            self._transport.abort()

    async def greet(self, server: Server) -> None:
        """Banner, EHLO, STARTTLS when offered, login. Raises Unwelcome, or NotSent when the line breaks."""
        try:
            self._expect(await self._reply(Stage.CONNECT), 220)
            await self._hello(server)
            if not server.secure and "STARTTLS" in self.extensions:
                await self._start_tls(server)
                await self._hello(server)
            elif server.require_tls and not server.secure:
                raise Unwelcome(Reply(530, "the server offers no TLS", Stage.LOGIN))
            if server.user:
                await self._login(server)
        except NoAnswer as error:
            raise NotSent(f"no greeting: {error}") from error
        self._rest()

    async def deliver(self, envelope: Envelope, content: bytes, give_up_at: float) -> Reply:
        """The reply that decided: 2xx at CONTENT = accepted, else the first refusal.

        content is ready (CRLF lines, dot-stuffed, final dot included). Raises NotSent while the server cannot
        have taken the message yet, NoAnswer once the final dot may have arrived. A connection that was left in the
        middle is not used again.
        """
        if not self.usable:
            raise NotSent(self._why)
        self._busy, self._ended = True, False
        timer = asyncio.get_running_loop().call_at(give_up_at, self.abandon, "time-out")
        try:
            return await self._transaction(envelope, content)
        except BaseException as error:
            self.abandon("left in the middle")
            if isinstance(error, NoAnswer) and not self._ended:
                raise NotSent(str(error)) from error
            raise
        finally:
            timer.cancel()
            self._rest()

    def _rest(self) -> None:
        """Until the next message nothing may come: whatever was said too much would be taken for its answer."""
        self._busy = False
        self._keep = self._keep and not (self._replies or self._lines or self._buffer)

    async def _transaction(self, envelope: Envelope, content: bytes) -> Reply:
        refusal = await self._envelope(envelope)
        if refusal is not None:
            return refusal
        if self._replies:
            raise NoAnswer("more replies than commands")
        self._write(content)
        self._ended = True
        reply = await self._reply(Stage.CONTENT)
        return reply if reply.code // 100 == 2 else _refusal(reply)

    async def _envelope(self, envelope: Envelope) -> Reply | None:
        """The refusal of sender, recipient or DATA; None when the server waits for the content."""
        commands = (
            (Stage.SENDER, self._mail_from(envelope), 250),
            (Stage.RECIPIENT, f"RCPT TO:<{envelope.recipient}>", 250),
            (Stage.CONTENT, "DATA", 354),
        )
        pipelining = "PIPELINING" in self.extensions
        if pipelining:
            self._write("".join(f"{line}\r\n" for _, line, _ in commands).encode())
        for at, (stage, line, wanted) in enumerate(commands, 1):
            if not pipelining:
                self._write(f"{line}\r\n".encode())
            reply = await self._reply(stage)
            if reply.code // 10 != wanted // 10:
                refusal = _refusal(reply)
                await self._clear(len(commands) - at if pipelining else 0)
                return refusal
        return None

    async def _clear(self, unheard: int) -> None:
        """Makes the connection ready for the next message after a refusal. unheard: replies that are still to come.

        The message is decided: a server that closes or says no more from here on costs only the connection.
        """
        try:
            for _ in range(unheard):
                if (await self._reply(Stage.CONTENT)).code == 354:
                    await self._end_empty()
            await self._command("RSET", Stage.CONTENT)
        except NoAnswer:
            self._keep = False

    async def _end_empty(self) -> None:
        """The server took DATA although nobody is to get it: end it without content (RFC 2920 section 3.1)."""
        self._write(b".\r\n")
        await self._reply(Stage.CONTENT)

    def _mail_from(self, envelope: Envelope) -> str:
        line = f"MAIL FROM:<{envelope.sender}>"
        if envelope.smtputf8:
            line += " SMTPUTF8"
        if "8BITMIME" in self.extensions and envelope.smtputf8:
            line += " BODY=8BITMIME"
        if "DSN" in self.extensions:
            line += f" RET=HDRS ENVID={envelope.envelope_id}"
        return line

    async def _hello(self, server: Server) -> None:
        reply = await self._command(f"EHLO {server.own_name}", Stage.CONNECT, lines=True)
        self._expect(reply, 250)
        words = [line.partition(" ") for line in reply.text.split("\n")[1:]]
        self.extensions = {name.upper(): rest for name, _, rest in words}

    async def _start_tls(self, server: Server) -> None:
        self._expect(await self._command("STARTTLS", Stage.LOGIN), 220)
        if self._buffer or self._replies:
            raise Unwelcome(Reply(554, "the server sent bytes between STARTTLS and TLS", Stage.LOGIN))
        assert self._transport is not None
        context = server.tls or ssl.create_default_context()
        secured = await asyncio.get_running_loop().start_tls(
            self._transport, self, context, server_hostname=server.host
        )
        assert secured is not None
        self._transport = secured

    async def _login(self, server: Server) -> None:
        token = base64.b64encode(f"\0{server.user}\0{server.password}".encode()).decode()
        self._expect(await self._command(f"AUTH PLAIN {token}", Stage.LOGIN), 235)

    async def _command(self, line: str, stage: Stage, lines: bool = False) -> Reply:
        self._write(f"{line}\r\n".encode())
        return await self._reply(stage, lines)

    @staticmethod
    def _expect(reply: Reply, code: int) -> None:
        if reply.code != code:
            raise Unwelcome(reply)

    def _write(self, raw: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise NoAnswer(self._why)
        self._transport.write(raw)

    async def _reply(self, stage: Stage, lines: bool = False) -> Reply:
        while not self._replies:
            if self.gone.is_set() or (self._transport is not None and self._transport.is_closing()):
                raise NoAnswer(self._why)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        code, text = self._replies.popleft()
        if code == 421:
            self.abandon("the server closes")
        return Reply(code, text if lines else text.replace("\n", " "), stage)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class is no subclass

    def data_received(self, data: bytes) -> None:
        if not self._busy:
            self.abandon("bytes without a command")
            return
        self._buffer += data
        *complete, self._buffer = self._buffer.split(b"\n")
        for line in complete:
            self._line(line.decode("utf-8", "replace").rstrip("\r"))
        if len(self._buffer) + sum(map(len, self._lines)) > MAX_REPLY_BYTES:
            self.abandon("endless reply")
        self._wake()

    def _line(self, line: str) -> None:
        if len(line) < 3 or not line[:3].isdigit():
            self.abandon("not an SMTP reply")
            return
        self._lines.append(line[4:])
        if line[3:4] != "-":
            self._replies.append((int(line[:3]), "\n".join(self._lines)))
            self._lines = []

    def connection_lost(self, error: Exception | None) -> None:
        self._keep = False
        self.gone.set()
        self._wake()
        self._lost(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _refusal(reply: Reply) -> Reply:
    """The reply, if it is a no. Raises NoAnswer for what is neither a no nor the yes that was due."""
    if 400 <= reply.code < 600:
        return reply
    raise NoAnswer(f"out of step: {reply.code} to {reply.stage}")
