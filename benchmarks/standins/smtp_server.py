"""A mail server that takes everything at once and keeps nothing but the count.

The key of a mail is its Message-ID. usage: python -m benchmarks.standins.smtp_server PORT CONTROL_PORT
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import cast

import uvloop

from benchmarks.standins.book import Book, serve
from deploy import ready

EHLO = b"250-stand-in\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 SIZE 10485760\r\n"
OK, GO_ON, BYE = b"250 2.0.0 ok\r\n", b"354 go on\r\n", b"221 2.0.0 bye\r\n"
END = b"\r\n.\r\n"
MESSAGE_ID = b"Message-ID: <"
BACKLOG = 4096


class Connection(asyncio.Protocol):
    """One sender; its commands may come in one piece."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._rest = b""
        self._in_mail = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(b"220 stand-in ESMTP\r\n")

    def data_received(self, data: bytes) -> None:
        self._rest += data
        answers = []
        while (end := self._rest.find(END if self._in_mail else b"\r\n")) >= 0:
            taken, self._rest = self._rest[:end], self._rest[end + (len(END) if self._in_mail else 2) :]
            answers.append(self._mail(taken) if self._in_mail else self._command(taken))
        if answers:
            self._transport.write(b"".join(answers))

    def _command(self, line: bytes) -> bytes:
        match line[:4].upper():
            case b"EHLO":
                return EHLO
            case b"DATA":
                self._in_mail = True
                return GO_ON
            case b"QUIT":
                return BYE
        return OK

    def _mail(self, mail: bytes) -> bytes:
        self._in_mail = False
        start = mail.index(MESSAGE_ID) + len(MESSAGE_ID)
        self._book.call(mail[start : mail.index(b">", start)], time.time())
        self._book.end()
        return OK


async def main(port: int, control_port: int) -> None:
    """Until it is ended."""
    book = Book()
    await asyncio.get_running_loop().create_server(lambda: Connection(book), "127.0.0.1", port, backlog=BACKLOG)
    await serve(book.answer, control_port)
    ready.tell()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
