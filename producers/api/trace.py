"""Which request this is: its id for people, and the trace (W3C traceparent) that travels to the callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from schemas import traces
from schemas.records import Headers

REQUEST_ID_MAX = 128


@dataclass(frozen=True, slots=True)
class Trace:
    """traceparent names the caller's trace, when it sent one, with this request as the parent."""

    request_id: str
    traceparent: str

    def record_headers(self) -> Headers:
        """Headers of every record that this request writes."""
        return ((traces.HEADER, self.traceparent.encode()),)


TRACE = web.RequestKey("trace", Trace)


def begin(headers: Mapping[str, str], random_bytes: Callable[[int], bytes]) -> Trace:
    """The caller's ids where they are well formed, else new ones."""
    chance = random_bytes(24)
    span_id = chance[16:].hex()
    given = traces.read(headers.get(traces.HEADER, "").strip())
    own = traces.Trace(chance[:16].hex(), span_id, "01") if given is None else given._replace(parent_id=span_id)
    request_id = headers.get("X-Request-Id", "")
    if not 0 < len(request_id) <= REQUEST_ID_MAX or not (request_id.isascii() and request_id.isprintable()):
        request_id = span_id
    return Trace(request_id, str(own))
