"""The status API of provider kind `http`: what became of a message, asked by the id that its gateway gave it.

GET {status_url}?id=ID, answered with 200 and
`{"type": "delivered" | "undelivered" | "bounced" | "pending" | "unknown", "at"?, "detail"?, "reference"?}`; 404 says
`unknown` as well. Only with the reference that came along with the message can a bounced address be suppressed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import quote, urlsplit

import orjson

from consumers.providers.http import DETAIL_MAX, HttpOptions
from consumers.providers.http_pool import Answer, HttpPool
from consumers.providers.pool import NoAnswer, NotSent
from schemas.clock import Clock
from schemas.messages import EventKind
from schemas.reports import Report, Silence

REPORTS: Mapping[str, EventKind] = {
    "delivered": EventKind.DELIVERED,
    "undelivered": EventKind.UNDELIVERED,
    "bounced": EventKind.BOUNCED,
}
_SILENT = {"pending": Silence.PENDING, "unknown": Silence.UNKNOWN}


class HttpStatus:
    """StatusApi port. options: as of the provider, but of the URL where it is asked."""

    def __init__(self, options: HttpOptions, clock: Clock) -> None:
        self._clock = clock
        self._timeout_s = options.timeout_s
        self._pool = HttpPool(options.url, options.pool)
        self._begin = b"&id=" if urlsplit(options.url).query else b"?id="
        own = "".join(f"{key}: {value}\r\n" for key, value in options.headers.items())
        self._headers = f"Accept: application/json\r\nUser-Agent: tidings\r\n{own}".encode()

    async def ask(self, message_id: str) -> Report | Silence:
        more = self._begin + quote(message_id, safe="").encode()
        try:
            answer = await self._pool.get(more, self._headers, self._timeout_s)
        except (NotSent, NoAnswer):
            return Silence.NO_ANSWER
        return read_status(answer, message_id, self._clock.now_ms())

    async def close(self) -> None:
        await self._pool.close()


def read_status(answer: Answer, message_id: str, now_ms: int) -> Report | Silence:
    """What the answer says; what cannot be read says nothing."""
    if answer.status == 404:
        return Silence.UNKNOWN
    try:
        told = orjson.loads(answer.body) if answer.status == 200 else None
    except orjson.JSONDecodeError:
        return Silence.NO_ANSWER
    if not isinstance(told, dict):
        return Silence.NO_ANSWER
    word = _text(told, "type")
    kind = REPORTS.get(word)
    if kind is None:
        return _SILENT.get(word, Silence.NO_ANSWER)
    detail, suppress = _text(told, "detail")[:DETAIL_MAX], kind is EventKind.BOUNCED
    return Report(kind, _text(told, "reference"), message_id, _at_ms(told, now_ms), detail, suppress)


def _at_ms(told: Mapping[str, object], now_ms: int) -> int:
    """When it happened, never later than now; what cannot be read counts as just now."""
    try:
        at = datetime.fromisoformat(_text(told, "at"))
    except ValueError:
        return now_ms
    if at.tzinfo is None:
        return now_ms
    return max(0, min(round(at.timestamp() * 1000), now_ms))


def _text(told: Mapping[str, object], name: str) -> str:
    value = told.get(name)
    return value if isinstance(value, str) else ""
