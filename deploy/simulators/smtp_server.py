"""A mail server as a stand-in: takes every message, keeps count, throws it away.

Speaks EHLO with PIPELINING, 8BITMIME, SMTPUTF8, ENHANCEDSTATUSCODES and SIZE; STARTTLS and AUTH when asked to.
A message's key is its X-Tidings-Delivery-Key header, else its Message-ID, else its content.
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deploy.simulators.faults import DROP_REPLY, HANG, Board
from deploy.simulators.ledger import Ledger, Message, short_hash

SERVICE = "smtp"
SIZE_MAX = 10 << 20
LINE_MAX = 4096
_END = b"\r\n.\r\n"
_ADDRESS = re.compile(rb"^(?:FROM|TO):\s*<([^>]*)>", re.IGNORECASE)
_KEY = re.compile(
    rb"^(?:x-tidings-delivery-key|message-id):[ \t]*([^\r\n]*(?:\r\n[ \t][^\r\n]*)*)", re.IGNORECASE | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class MailOptions:
    """user and password: AUTH is offered and required when given. tls: STARTTLS is offered when given."""

    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None


class SmtpServer(asyncio.Protocol):
    """One connection. Lines are handled in order; while an answer is awaited the rest stays in the buffer."""

    def __init__(self, ledger: Ledger, board: Board, options: MailOptions, ids: Callable[[], str]) -> None:
        self._ledger = ledger
        self._board = board
        self._options = options
        self._ids = ids
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._on_line: Callable[[bytes], None] = self._command
        self._in_data = self._waiting = self._open_call = False
        self._secure = self._known = False
        self._starting_tls: asyncio.Task[None] | None = None
        self._forget()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        if not self._secure:
            self._say("220 simulator ESMTP")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._open_call:
            self._ledger.service(SERVICE).end("abandoned")
            self._open_call = False

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._work()

    def _work(self) -> None:
        while self._buffer and not (self._waiting or self._transport.is_closing()):
            if not (self._take_message() if self._in_data else self._take_line()):
                return

    def _take_line(self) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > LINE_MAX:
                self._say("500 5.5.2 line too long")
                self._transport.close()
            return False
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        self._on_line(line)
        return True

    def _command(self, line: bytes) -> None:
        verb, _, rest = line.partition(b" ")
        handler = getattr(self, f"_do_{verb.decode('latin-1').lower()}", None)
        if handler is None:
            self._say("502 5.5.1 unknown command")
        elif self._options.user and not self._known and verb.upper() in (b"MAIL", b"RCPT", b"DATA"):
            self._say("530 5.7.0 authentication required")
        else:
            handler(rest.strip())

    # Commands, in the order of a session.

    def _do_helo(self, _: bytes) -> None:
        self._forget()
        self._say("250 simulator")

    def _do_ehlo(self, _: bytes) -> None:
        self._forget()
        words = ["simulator", "PIPELINING", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES", f"SIZE {SIZE_MAX}"]
        if self._options.tls and not self._secure:
            words.append("STARTTLS")
        if self._options.user:
            words.append("AUTH PLAIN LOGIN")
        self._say("\r\n".join([f"250-{word}" for word in words[:-1]] + [f"250 {words[-1]}"]))

    def _do_starttls(self, _: bytes) -> None:
        if self._options.tls is None or self._secure:
            self._say("502 5.5.1 not offered")
            return
        self._say("220 2.0.0 go ahead")
        self._buffer.clear()  # whatever was slipped in before the handshake
        self._waiting = True
        self._starting_tls = self._loop.create_task(self._start_tls(self._options.tls))

    async def _start_tls(self, context: ssl.SSLContext) -> None:
        self._secure = True
        try:
            transport = await self._loop.start_tls(self._transport, self, context, server_side=True)
        except (OSError, ConnectionError):
            return
        self._transport, self._waiting = transport, False
        self._forget()

    def _do_auth(self, rest: bytes) -> None:
        method, _, first = rest.partition(b" ")
        if method.upper() == b"PLAIN":
            self._ask(first, "334 ", self._check_plain)
        elif method.upper() == b"LOGIN":
            self._ask(first, "334 VXNlcm5hbWU6", self._login_name)
        else:
            self._say("504 5.5.4 unknown method")

    def _ask(self, given: bytes, prompt: str, then: Callable[[bytes], None]) -> None:
        if given:
            then(given)
        else:
            self._say(prompt)
            self._on_line = then

    def _login_name(self, line: bytes) -> None:
        name = line
        self._ask(b"", "334 UGFzc3dvcmQ6", lambda word: self._check(_plain(name), _plain(word)))

    def _check_plain(self, line: bytes) -> None:
        parts = _plain(line).split("\0")
        self._check(*parts[-2:]) if len(parts) == 3 else self._check("", "")

    def _check(self, user: str, password: str) -> None:
        self._on_line = self._command
        self._known = (user, password) == (self._options.user, self._options.password)
        self._say("235 2.7.0 welcome" if self._known else "535 5.7.8 wrong user or password")

    def _do_mail(self, rest: bytes) -> None:
        found = _ADDRESS.match(rest)
        size = re.search(rb"\bSIZE=(\d+)", rest, re.IGNORECASE)
        if not found:
            self._say("501 5.1.7 bad sender")
        elif size and int(size.group(1)) > SIZE_MAX:
            self._say("552 5.3.4 too big")
        else:
            self._forget()
            self._sender = found.group(1)
            self._has_sender = True
            self._say("250 2.1.0 ok")

    def _do_rcpt(self, rest: bytes) -> None:
        found = _ADDRESS.match(rest)
        if not self._has_sender:
            self._say("503 5.5.1 MAIL first")
        elif not found or b"@" not in found.group(1):
            self._say("501 5.1.3 bad recipient")
        elif fate := self._board.get(SERVICE).rcpt_fate(short_hash(found.group(1).decode("utf-8", "replace"))):
            self._refuse(reply(fate, "1.1"))
        else:
            self._recipients.append(found.group(1))
            self._say("250 2.1.5 ok")

    def _do_data(self, _: bytes) -> None:
        if not self._recipients:
            self._say("503 5.5.1 RCPT first")
            return
        self._in_data = True
        self._say("354 go ahead")

    def _do_rset(self, _: bytes) -> None:
        self._forget()
        self._say("250 2.0.0 ok")

    def _do_noop(self, _: bytes) -> None:
        self._say("250 2.0.0 ok")

    def _do_vrfy(self, _: bytes) -> None:
        self._say("252 2.5.0 perhaps")

    def _do_quit(self, _: bytes) -> None:
        self._say("221 2.0.0 bye")
        self._transport.close()

    # The message itself.

    def _take_message(self) -> bool:
        """The message up to its final dot; False while it is not all here."""
        if self._buffer.startswith(b".\r\n"):
            content, length = b"", 3
        else:
            end = self._buffer.find(_END)
            if end < 0:
                return self._refuse_flood()
            content, length = bytes(self._buffer[: end + 2]), end + len(_END)
        del self._buffer[:length]
        self._in_data = False
        if len(content) > SIZE_MAX:
            self._say("552 5.3.4 too big")
        else:
            self._receive(unstuff(content))
        return True

    def _refuse_flood(self) -> bool:
        if len(self._buffer) > SIZE_MAX + LINE_MAX:
            self._say("552 5.3.4 too big")
            self._transport.close()
        return False

    def _receive(self, content: bytes) -> None:
        faults, service = self._board.for_call(SERVICE), self._ledger.service(SERVICE)
        key_text, recipients = delivery_key(content), [r.decode("utf-8", "replace") for r in self._recipients]
        key, now_s = short_hash(key_text), time.time()
        number = service.begin(key, now_s)
        text = content.decode("utf-8", "replace")
        message = {"from": self._sender.decode("utf-8", "replace"), "to": recipients[0], "content": text}
        service.messages.append(Message(now_s, key_text, message))
        fate = faults.fate(key, number)
        self._open_call = self._waiting = True
        if fate == HANG:
            return
        if fate in ("", DROP_REPLY):
            for recipient in recipients:
                service.sent(key, short_hash(recipient))
        if faults.answer_ms:
            self._loop.call_later(faults.answer_ms / 1000, self._reply, fate)
        else:
            self._reply(fate)

    def _reply(self, fate: str) -> None:
        if not self._open_call:  # the caller left
            return
        self._open_call = self._waiting = False
        self._forget()
        service = self._ledger.service(SERVICE)
        if fate == DROP_REPLY:
            service.end("dropped")
            self._transport.abort()
            return
        service.end(fate or "250")
        if fate:
            self._refuse(reply(fate, "3.0"))
        else:
            self._say(f"250 2.0.0 taken as {self._ids()}")
        if self._buffer:
            self._loop.call_soon(self._work)

    def _forget(self) -> None:
        self._sender = b""
        self._has_sender = False
        self._recipients: list[bytes] = []

    def _refuse(self, line: str) -> None:
        self._say(line)
        if line.startswith("421"):
            self._transport.close()

    def _say(self, line: str) -> None:
        self._transport.write(line.encode() + b"\r\n")


def reply(fate: str, detail: str) -> str:
    """A refusal: the code with this detail, unless it comes with one of its own."""
    return f"{fate} simulated" if " " in fate else f"{fate} {fate[0]}.{detail} simulated"


def unstuff(content: bytes) -> bytes:
    """Takes away the dot that was put before every line that began with one."""
    if content.startswith(b"."):
        content = content[1:]
    return content.replace(b"\r\n.", b"\r\n")


def delivery_key(content: bytes) -> str:
    """What makes two messages the same."""
    head = content.partition(b"\r\n\r\n")[0]
    found = {line.group(0)[:1].lower(): line.group(1) for line in _KEY.finditer(head)}
    key = found.get(b"x") or found.get(b"m")
    if not key:
        return f"content:{short_hash(content.decode('latin-1')):x}"
    return re.sub(rb"\r\n[ \t]+", b"", key).strip().decode("utf-8", "replace")


def _plain(word: bytes) -> str:
    try:
        return base64.b64decode(word, validate=True).decode("utf-8", "replace")
    except ValueError:
        return ""
