"""For orchestrators and Prometheus: alive, ready, metrics."""

from __future__ import annotations

import asyncio

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from producers.api import bodies, problems
from producers.api.parts import PARTS
from schemas import metrics
from schemas.errors import Transient

READY_TIMEOUT_S = 2.0


def register(app: web.Application) -> None:
    app.router.add_get("/healthz", alive)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", numbers)


async def alive(request: web.Request) -> web.Response:
    """200 while the event loop turns."""
    return bodies.answer({"status": "alive"})


async def ready(request: web.Request) -> web.Response:
    """200 when requests can be accepted: the log answers and the campaigns are loaded. Redis may be away."""
    parts = request.app[PARTS]
    if not parts.campaigns.is_loaded:
        return problems.response(503, "campaigns are still being read from the log")
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            await parts.log.offsets(parts.topics.campaign_requests, 0)
    except (Transient, TimeoutError):
        return problems.response(503, "the log does not answer")
    return bodies.answer({"status": "ready"})


async def numbers(request: web.Request) -> web.Response:
    body = generate_latest(metrics.REGISTRY)
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
