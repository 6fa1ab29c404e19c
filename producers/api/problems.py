"""Answers that say what was wrong: RFC 9457 problem details for every error, from 400 to 500."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus

import orjson
from aiohttp import web

from schemas.errors import Poison, Refused, StoreDown, Transient
from schemas.reasons import ParkReason

log = logging.getLogger(__name__)
CONTENT_TYPE = "application/problem+json"
RETRY_AFTER_S = "1"
FIELD_MAX = 200
DETAIL_MAX = 500
SERVER_ERROR = 500


def response(
    status: int, detail: str, field: str = "", headers: Mapping[str, str] | None = None, request_id: str = ""
) -> web.Response:
    """A problem document. field: the offending part of the input; request_id: what to quote to an operator."""
    body: dict[str, object] = {"type": "about:blank", "title": _title(status), "status": status}
    if detail:
        body["detail"] = _short(detail, DETAIL_MAX)
    if field:
        body["field"] = _short(field, FIELD_MAX)
    if request_id:
        body["request_id"] = request_id
    return web.Response(body=orjson.dumps(body), status=status, content_type=CONTENT_TYPE, headers=headers)


def of(error: Exception, request_id: str) -> web.Response:
    """What a caller is told about this error; unexpected ones are logged and told nothing more."""
    match error:
        case Refused():
            return response(error.status, str(error), error.field, _refusal_headers(error), request_id)
        case Transient():
            log.warning("request.unavailable", extra={"request_id": request_id, "error": str(error)})
            text = _REDIS_IS_AWAY if isinstance(error, StoreDown) else "a part of Tidings is unavailable"
            text += "; nothing was lost, try again"
            return response(503, text, headers={"Retry-After": RETRY_AFTER_S}, request_id=request_id)
        case Poison() if error.reason == ParkReason.TOO_LARGE:
            return response(413, "the request is larger than a record of the log may be", request_id=request_id)
        case web.HTTPException():
            kept = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
            return response(error.status, _HTTP_DETAILS.get(error.status, ""), headers=kept, request_id=request_id)
        case web.RequestPayloadError():
            return response(400, "the body ended early or is not encoded as its headers say", request_id=request_id)
    log.error("request.failed", exc_info=error, extra={"request_id": request_id})
    return response(SERVER_ERROR, "this is a bug in Tidings; quote the request id", request_id=request_id)


_REDIS_IS_AWAY = "Redis does not answer, or is still being filled from the log: sends wait, and this cannot be told"
_HTTP_DETAILS = {404: "there is nothing at this address", 405: "this address does not take that method"}


def _refusal_headers(error: Refused) -> Mapping[str, str] | None:
    match error.status, error.field:
        case 401, _:
            return {"WWW-Authenticate": "Bearer"}
        case 409, "Idempotency-Key":  # still running; other conflicts do not pass with time
            return {"Retry-After": RETRY_AFTER_S}
    return None


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _short(text: str, longest: int) -> str:
    """Cut, and free of what no encoder accepts."""
    return text[:longest].encode("utf-8", "replace").decode()
