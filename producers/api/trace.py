"""Which request this is: its id for people, and the trace (W3C traceparent) that travels to the callback."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from schemas.records import Headers

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
REQUEST_ID_MAX = 128


@dataclass(frozen=True, slots=True)
class Trace:
    """traceparent names the caller's trace, when it sent one, with this request as the parent."""

    request_id: str
    traceparent: str

    def record_headers(self) -> Headers:
        """Headers of every record that this request writes."""
        return (("traceparent", self.traceparent.encode()),)


TRACE = web.RequestKey("trace", Trace)


def begin(headers: Mapping[str, str], random_bytes: Callable[[int], bytes]) -> Trace:
    """The caller's ids where they are well formed, else new ones."""
    chance = random_bytes(24)
    trace_id, span_id, flags = chance[:16].hex(), chance[16:].hex(), "01"
    given = _TRACEPARENT.fullmatch(headers.get("traceparent", "").strip())
    if given is not None and _is_valid(given):
        trace_id, flags = given[2], given[4]
    request_id = headers.get("X-Request-Id", "")
    if not 0 < len(request_id) <= REQUEST_ID_MAX or not (request_id.isascii() and request_id.isprintable()):
        request_id = span_id
    return Trace(request_id, f"00-{trace_id}-{span_id}-{flags}")


def _is_valid(given: re.Match[str]) -> bool:
    """By the standard: version ff and ids of zeros are invalid; version 00 has no fifth part."""
    zeros = given[2].strip("0") == "" or given[3].strip("0") == ""
    return not zeros and given[1] != "ff" and not (given[1] == "00" and given[5])
