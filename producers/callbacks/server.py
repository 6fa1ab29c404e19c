"""POST /v1/callbacks/{provider}: verified, written raw to the log, and only then answered with 2xx.

Nothing is read from a callback here: `route callbacks` does that later, and may do it again from the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from producers.callbacks import signatures
from schemas import codec, metrics
from schemas.clock import Clock
from schemas.errors import Poison, Transient
from schemas.gaps import Gap
from schemas.messages import RawCallback
from schemas.records import LogReader, Outgoing, Publisher
from schemas.topics import Topics

log = logging.getLogger(__name__)

BODY_MAX = 900_000
"""A callback must fit into one record."""
KEPT_HEADERS = ("content-type", "user-agent", signatures.ID_HEADER, signatures.TIME_HEADER)
"""Never a signature or a password: the raw topic is kept for days."""
ID_MAX = 200
READY_TIMEOUT_S = 2.0
REFUSED = "the request is not signed by us both"


@dataclass(frozen=True, slots=True)
class CallbackParts:
    """verifiers: provider name -> its secrets; only these providers may post. gap: see `schemas/gaps.py`."""

    publisher: Publisher
    log_reader: LogReader
    topics: Topics
    verifiers: Mapping[str, signatures.StandardWebhooks]
    clock: Clock
    gap: Gap | None = None


PARTS = web.AppKey("parts", CallbackParts)


def build_app(parts: CallbackParts) -> web.Application:
    app = web.Application(client_max_size=BODY_MAX)
    app[PARTS] = parts
    app.router.add_post("/v1/callbacks/{provider}", receive)
    app.router.add_get("/healthz", alive)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", numbers)
    return app


async def receive(request: web.Request) -> web.Response:
    """204 once the log has it; 404 unknown provider, 413 too long, 401 for a wrong signature or encoding."""
    parts, provider = request.app[PARTS], request.match_info["provider"]
    verifier = parts.verifiers.get(provider)
    if verifier is None:
        return _answer("unknown", "no_provider", 404, "no provider of this name posts callbacks here")
    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        return _answer(provider, "too_long", 413, f"a callback has at most {BODY_MAX} bytes")
    except web.RequestPayloadError:
        return _answer(provider, "refused", 401, REFUSED)
    if not verifier.verify(request.headers, body, parts.clock.now_ms() / 1000):
        return _answer(provider, "refused", 401, REFUSED)
    try:
        await parts.publisher.publish([_record(parts, provider, request.headers, body)])
    except Transient:
        # Not ours to keep: the provider posts it again.
        return _answer(provider, "log_away", 503, "the log does not answer; post it again")
    except Poison:
        return _answer(provider, "too_long", 413, "the callback does not fit into the log")
    if parts.gap is not None:
        parts.gap("after_callback")
    return _answer(provider, "written", 204, "")


async def alive(request: web.Request) -> web.Response:
    return web.json_response({"status": "alive"})


async def ready(request: web.Request) -> web.Response:
    """200 when callbacks can be written."""
    parts = request.app[PARTS]
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            await parts.log_reader.offsets(parts.topics.callbacks, 0)
    except (Transient, TimeoutError):
        return web.json_response({"status": "the log does not answer"}, status=503)
    return web.json_response({"status": "ready"})


async def numbers(request: web.Request) -> web.Response:
    return web.Response(body=generate_latest(metrics.REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _record(parts: CallbackParts, provider: str, headers: Mapping[str, str], body: bytes) -> Outgoing:
    """Keyed by the provider's message id, so that its repeats come in order. The tenant stands in the references."""
    kept = {name: headers[name][:ID_MAX].encode(errors="replace").decode() for name in KEPT_HEADERS if name in headers}
    raw = RawCallback("", provider, body, kept, parts.clock.now_ms())
    key = f"{provider}:{kept[signatures.ID_HEADER]}".encode()
    return Outgoing(parts.topics.callbacks, key, codec.encode(raw))


def _answer(provider: str, result: str, status: int, detail: str) -> web.Response:
    metrics.CALLBACKS.labels(provider, result).inc()
    if status < 300:
        return web.Response(status=status)
    log.info("callback.refused", extra={"provider": provider, "result": result})
    retry = {"Retry-After": "5"} if status == 503 else None
    problem = {"type": "about:blank", "title": detail, "status": status}
    return web.json_response(problem, status=status, content_type="application/problem+json", headers=retry)
