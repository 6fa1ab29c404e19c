"""A gateway that answers every POST with 200 after a fixed time. Some 15 us a call, so that the sender is the limit.

The key of a call is its Idempotency-Key. A text that begins with "@" and the time at which somebody wished for it
(seconds since 1970) has its way here timed.
usage: python -m benchmarks.standins.http_provider PORT CONTROL_PORT ANSWER_MS [CERTIFICATE KEY]
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import time
from collections import deque
from typing import Any

import uvloop

from benchmarks.standins.book import Book, serve
from deploy import ready

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"id":"1-1"}'
TICK_S = 0.0005
"""Answers due so soon go out together."""
KEY, LENGTH, WISHED = b"Idempotency-Key: ", b"Content-Length: ", b'"text":"@'
BACKLOG = 4096


class Answers:
    """All answers take the same time, so the first to come is the first to go."""

    def __init__(self, book: Book, answer_s: float) -> None:
        self.book = book
        self._answer_s = answer_s
        self._due: deque[tuple[float, Any]] = deque()
        self._loop = asyncio.get_running_loop()

    def plan(self, transport: Any) -> None:
        if not self._answer_s:
            self._give(transport)
            return
        at = self._loop.time() + self._answer_s
        if not self._due:
            self._loop.call_at(at, self._fire)
        self._due.append((at, transport))

    def _fire(self) -> None:
        soon = self._loop.time() + TICK_S
        while self._due and self._due[0][0] <= soon:
            self._give(self._due.popleft()[1])
        if self._due:
            self._loop.call_at(self._due[0][0], self._fire)

    def _give(self, transport: Any) -> None:
        self.book.end()
        if not transport.is_closing():
            transport.write(ANSWER)


class Connection(asyncio.Protocol):
    """One caller; knows only requests with a Content-Length."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        while (head_end := data.find(b"\r\n\r\n")) >= 0:
            end = head_end + 4 + int(_header(data, LENGTH, head_end) or 0)
            if len(data) < end:
                break
            self._take(data, head_end, end)
            data = data[end:]
        self._rest = data

    def _take(self, data: bytes, head_end: int, end: int) -> None:
        now_s = time.time()
        book = self._answers.book
        book.call(_header(data, KEY, head_end), now_s)
        begins = data.find(WISHED, head_end, end)
        if begins >= 0:
            begins += len(WISHED)
            book.waits_s.append(now_s - float(data[begins : data.find(b" ", begins, end)]))
        self._answers.plan(self._transport)


def _header(data: bytes, name: bytes, head_end: int) -> bytes:
    begins = data.find(name, 0, head_end)
    if begins < 0:
        return b""
    begins += len(name)
    return data[begins : data.find(b"\r\n", begins, head_end + 2)]


async def main(port: int, control_port: int, answer_ms: float, *certificate: str) -> None:
    """Until it is ended."""
    book = Book()
    answers = Answers(book, answer_ms / 1000)
    tls = None
    if certificate:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(*certificate)
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Connection(answers), "127.0.0.1", port, ssl=tls, backlog=BACKLOG)
    await serve(book.answer, control_port)
    ready.tell()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:]))
