"""The door of a role that serves nobody else: is it alive, can it work, its numbers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from deploy import serving
from schemas import metrics

Check = Callable[[], bool]


class Health:
    """Whether a process can work now: everything it needs has come about and is well.

    metrics_url: where its numbers are served; "" = nowhere.
    """

    def __init__(self) -> None:
        self._checks: list[Check] = []
        self.metrics_url = ""

    def needs(self, check: Check) -> None:
        """One more thing to be true."""
        self._checks.append(check)

    @property
    def ready(self) -> bool:
        """False before anything was named."""
        return bool(self._checks) and all(check() for check in self._checks)


HEALTH = web.AppKey("health", Health)


@asynccontextmanager
async def door(health: Health, listen: str) -> AsyncIterator[None]:
    """Serves on "host:port" (port 0: any free one) as long as it is entered; nothing when `listen` is empty."""
    if not listen:
        yield
        return
    with serving.bound(listen) as bound:
        health.metrics_url = f"{serving.url_of(bound)}/metrics"
        async with serving.serving(build_app(health), bound):
            yield


def build_app(health: Health) -> web.Application:
    app = web.Application()
    app[HEALTH] = health
    app.router.add_get("/healthz", alive)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", numbers)
    return app


async def alive(request: web.Request) -> web.Response:
    """200 while the event loop turns."""
    return web.json_response({"status": "alive"})


async def ready(request: web.Request) -> web.Response:
    """200 when the role works; 503 while it prepares itself, or has work and gets nowhere."""
    if request.app[HEALTH].ready:
        return web.json_response({"status": "ready"})
    return web.json_response({"status": "not at work"}, status=503)


async def numbers(request: web.Request) -> web.Response:
    return web.Response(body=generate_latest(metrics.REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})
