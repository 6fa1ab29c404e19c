"""What a person or a test asks the simulators: the ledger, the newest messages, the faults. JSON over HTTP.

GET  /ledger                    summary; ?keys=1 one JSON line per key; ?key=KEY the calls and sends of one key
GET  /ledger/marks              what came by the name its text begins with, `marks.py`; ?since=SECONDS only from then on
POST /ledger/reset              forget everything
GET  /messages                  the newest calls in full; ?to=ADDRESS, ?service=/send only those
GET  /faults   POST /faults     {"service": "/send" | "smtp" | "*", ...}; DELETE /faults: back to the start
GET  /send/status?id=ID         what became of a message, `status_api.py`; likewise for every other service
GET  /healthz
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any
from urllib.parse import parse_qs, urlsplit

from deploy.simulators import faults
from deploy.simulators.ledger import Ledger, short_hash
from deploy.simulators.status_api import SUFFIX, StatusApi

LINES_A_CHUNK = 5_000


class Control:
    """Called with every request; None means it is not for us, but a call to the provider."""

    def __init__(self, ledger: Ledger, board: faults.Board, statuses: StatusApi) -> None:
        self._ledger = ledger
        self._board = board
        self._statuses = statuses

    def __call__(self, method: str, url: str, body: bytes) -> list[bytes] | None:
        path = url.partition("?")[0]
        match method, path:
            case "GET", "/ledger":
                return self._show_ledger(parse_qs(urlsplit(url).query))
            case "GET", "/ledger/marks":
                return self._show_marks(parse_qs(urlsplit(url).query))
            case "POST", "/ledger/reset":
                self._ledger.reset()
                return _answer(200, {})
            case "GET", "/messages":
                return _answer(200, self._messages(parse_qs(urlsplit(url).query)))
            case "POST", "/faults":
                return self._set_faults(body)
            case "GET", "/faults":
                return _answer(200, asdict(self._board.get("*")))
            case "DELETE", "/faults":
                self._board.clear()
                return _answer(200, {})
            case "GET", "/healthz":
                return _answer(200, {"status": "ok"})
            case "GET", _ if path.endswith(SUFFIX):
                return self._show_status(path.removesuffix(SUFFIX), parse_qs(urlsplit(url).query))
            case "POST", _:
                return None
        return _answer(404, {"error": f"nothing at {method} {path}"})

    def _show_ledger(self, query: dict[str, list[str]]) -> list[bytes]:
        if "key" in query:
            key = short_hash(query["key"][0])
            return _answer(200, {name: service.of(key) for name, service in self._ledger.services.items()})
        if "keys" in query:
            return list(_chunked(self._lines()))
        return _answer(200, self._ledger.summary())

    def _show_marks(self, query: dict[str, list[str]]) -> list[bytes]:
        try:
            since_s = float(query.get("since", ["0"])[0])
        except ValueError:
            return _answer(400, {"error": "since: must be seconds since 1970"})
        return _answer(200, self._ledger.marks.shown(since_s))

    def _show_status(self, service: str, query: dict[str, list[str]]) -> list[bytes]:
        return _answer(*self._statuses.answer(service, query.get("id", [""])[0]))

    def _lines(self) -> Iterator[str]:
        for name, service in self._ledger.services.items():
            for key, calls, sends in service.by_key():
                yield f'{{"service":{json.dumps(name)},"key":"{key:016x}","calls":{calls},"sends":{sends}}}\n'

    def _messages(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        to, service = query.get("to", [""])[0], query.get("service", [""])[0]
        return [
            {"service": name, "at": message.at_s, "key": message.key, "message": message.content}
            for name, book in self._ledger.services.items()
            for message in book.messages
            if (not service or name == service) and (not to or message.content.get("to") == to)
        ]

    def _set_faults(self, body: bytes) -> list[bytes]:
        try:
            asked = json.loads(body)
            service = str(asked.pop("service", "*"))
            self._board.set(service, faults.parse(asked))
        except (ValueError, AttributeError) as error:
            return _answer(400, {"error": str(error)})
        return _answer(200, {"service": service})


def _answer(status: int, value: Any) -> list[bytes]:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return [head.encode(), body]


def _chunked(lines: Iterator[str]) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
    part: list[str] = []
    for line in lines:
        part.append(line)
        if len(part) == LINES_A_CHUNK:
            yield _chunk(part)
            part = []
    if part:
        yield _chunk(part)
    yield b"0\r\n\r\n"


def _chunk(lines: list[str]) -> bytes:
    body = "".join(lines).encode()
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"
