"""An in-house gateway as a stand-in: any POST is a call, answered as the wire format of provider kind "http" says.

A raw protocol, since it must cost far less CPU than the sender it is measured with. Calls on one connection are
answered one after the other. `control.py` answers what is not a call: the ledger and the faults.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NamedTuple

import httptools
import orjson

from deploy.simulators import marks
from deploy.simulators.callbacks import Callbacks
from deploy.simulators.faults import DROP_REPLY, HANG, Board, Faults
from deploy.simulators.ledger import Ledger, Message, Service, short_hash

BODY_MAX = 8 << 20
_SIMULATED = b'{"error":"simulated"}'
_DONE = b"HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


@dataclass(slots=True)
class World:
    """What every connection shares. ids: makes message ids; remember: of an accepted message, for the status API;
    answer_control: (method, url, body) -> answer chunks.
    """

    ledger: Ledger
    board: Board
    callbacks: Callbacks
    ids: Callable[[], str]
    remember: Callable[[str, str, Faults, int, int, str], None]
    answer_control: Callable[[str, str, bytes], list[bytes] | None]


class _Request(NamedTuple):
    method: str
    path: str
    idempotency_key: str
    body: bytes
    keep_alive: bool


class _Call(NamedTuple):
    """One call between being read and being answered."""

    service: Service
    name: str
    faults: Faults
    key: int
    number: int
    to: str
    reference: str
    already_sent: bool
    keep_alive: bool
    at_s: float
    mark: marks.Mark | None


class HttpProvider(asyncio.Protocol):
    """One connection."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._loop = asyncio.get_running_loop()
        self._backlog: deque[_Request] = deque()
        self._current: _Call | None = None
        self._busy = False
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._transport.write(_answer(400, b'{"error":"not HTTP"}', keep_alive=False))
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The caller left: a call not yet answered ends as `abandoned`."""
        self._backlog.clear()
        if self._current is not None:
            self._current.service.end("abandoned")
            self._current = None

    # What the parser tells, in this order for each request.

    def on_message_begin(self) -> None:
        self._url = b""
        self._body: list[bytes] = []
        self._idempotency_key = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == 15 and name.lower() == b"idempotency-key":
            self._idempotency_key = value
        elif len(name) == 6 and name.lower() == b"expect" and value.lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        if sum(map(len, self._body)) > BODY_MAX:
            raise ValueError("body too long")

    def on_message_complete(self) -> None:
        keep = bool(self._parser.should_keep_alive())
        method, path = self._parser.get_method().decode(), self._url.decode("latin-1")
        request = _Request(method, path, self._idempotency_key.decode("latin-1"), b"".join(self._body), keep)
        if self._busy:
            self._backlog.append(request)
        else:
            self._take(request)

    def _take(self, request: _Request) -> None:
        control = self._world.answer_control(request.method, request.path, request.body)
        if control is not None:
            self._transport.writelines(control)
            self._finish(request.keep_alive)
            return
        try:
            call = self._begin(request)
        except (ValueError, AttributeError):
            self._transport.write(_answer(400, b'{"error":"not a JSON object"}', request.keep_alive))
            self._finish(request.keep_alive)
            return
        self._current, self._busy = call, True
        self._settle(call)

    def _begin(self, request: _Request) -> _Call:
        message = orjson.loads(request.body)
        key_text = str(message.get("delivery_key") or request.idempotency_key)
        name = request.path.partition("?")[0]
        world = self._world
        service, faults, key = world.ledger.service(name), world.board.for_call(name), short_hash(key_text)
        now_s = time.time()
        already = faults.idempotent and service.of(key)["sends"] > 0
        number = service.begin(key, now_s)
        service.messages.append(Message(now_s, key_text, message))
        to, reference = str(message.get("to", "")), str(message.get("reference", ""))
        mark = marks.read(message.get("text"))
        return _Call(service, name, faults, key, number, to, reference, already, request.keep_alive, now_s, mark)

    def _settle(self, call: _Call) -> None:
        """Decides the call's fate now; tells it after the answer's delay."""
        fate = call.faults.fate(call.key, call.number)
        if fate == HANG:
            return
        accepted = fate in ("", DROP_REPLY)
        answer = self._accept(call) if accepted else _refusal(fate, call.faults, call.keep_alive)
        delay_s = call.faults.answer_ms / 1000
        if delay_s:
            self._loop.call_later(delay_s, self._reply, call, fate, answer)
        else:
            self._reply(call, fate, answer)

    def _accept(self, call: _Call) -> bytes:
        message_id = self._world.ids()
        if not call.already_sent:
            is_new = call.service.sent(call.key, short_hash(call.to))
            if call.mark is not None:
                self._world.ledger.marks.add(call.mark, call.at_s, is_new)
            self._world.remember(message_id, call.name, call.faults, call.key, call.number, call.reference)
            self._world.callbacks.schedule(call.name, call.faults, call.key, call.number, call.reference, message_id)
        body = b'{"id":"%b"}' % message_id.encode()
        return _DONE % (len(body), body)

    def _reply(self, call: _Call, fate: str, answer: bytes) -> None:
        if self._current is not call:  # the caller left
            return
        self._current = None
        if fate == DROP_REPLY:
            call.service.end("dropped")
            self._transport.abort()
            return
        call.service.end(fate or "202")
        self._transport.write(answer)
        self._finish(call.keep_alive)

    def _finish(self, keep_alive: bool) -> None:
        self._busy = False
        if not keep_alive:
            self._transport.close()
        elif self._backlog:
            self._take(self._backlog.popleft())


def _refusal(fate: str, faults: Faults, keep_alive: bool) -> bytes:
    """A status is answered as it is; a word is the error of a 422."""
    if not fate.isdigit():
        return _answer(422, json.dumps({"error": fate}).encode(), keep_alive)
    status = int(fate)
    wait = faults.retry_after(datetime.now(UTC)) if status in (429, 503) else ""
    body = (
        b'{"error":"throttled","scope":"%b"}' % faults.scope.encode() if status == 429 and faults.scope else _SIMULATED
    )
    return _answer(status, body, keep_alive, f"retry-after: {wait}\r\n" if wait else "")


def _answer(status: int, body: bytes, keep_alive: bool, more: str = "") -> bytes:
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Simulated"
    close = "" if keep_alive else "connection: close\r\n"
    head = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return f"{head}{close}{more}\r\n".encode() + body
