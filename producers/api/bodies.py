"""Bodies in and out: bounded reads of JSON, and JSON answers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from aiohttp import web

from schemas.errors import Refused


async def read_json(request: web.Request, longest: int) -> bytes:
    """The body's bytes. Raises Refused 413 beyond `longest` bytes, 415 when it is announced as something else."""
    kind = request.content_type
    if "Content-Type" in request.headers and kind != "application/json" and not kind.endswith("+json"):
        raise Refused("Content-Type", "must be application/json", 415)
    if (request.content_length or 0) > longest:
        raise Refused("", f"the body is longer than {longest} bytes", 413)
    return await read_at_most(request, longest)


async def read_at_most(request: web.Request, longest: int) -> bytes:
    """The body's bytes, never holding more than one chunk beyond the limit."""
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > longest:
            raise Refused("", f"the body is longer than {longest} bytes", 413)
    return bytes(body)


def content_hash(raw: bytes) -> str:
    """Equal for bodies that say the same in another order or spacing. Raises Refused 400 for broken JSON."""
    try:
        canonical = orjson.dumps(orjson.loads(raw), option=orjson.OPT_SORT_KEYS)
    except orjson.JSONDecodeError as error:
        raise Refused("", f"the body is not JSON: {error}", 400) from None
    except TypeError:
        raise Refused("", "the body is nested too deeply", 400) from None
    return hashlib.sha256(canonical).hexdigest()[:32]


def answer(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json", headers=headers)


def instant(at_ms: int) -> str:
    """RFC 3339, UTC, milliseconds."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
