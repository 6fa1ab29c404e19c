"""The door of a role that serves nobody else: is it alive, can it work, its numbers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from deploy import serving
from schemas import metrics

Check = Callable[[], bool]
STARTED = "its start"


class Health:
    """Whether a process can work now: everything it needs has come about and is well; what it waits for otherwise.

    metrics_url: where its numbers are served; "" = nowhere.
    """

    def __init__(self) -> None:
        self._checks: list[tuple[Check, str]] = []
        self.metrics_url = ""

    def needs(self, check: Check, what: str) -> None:
        """One more thing to be true. what: is waited for while it is not; completes "waits for ..."."""
        self._checks.append((check, what))

    @property
    def waits_for(self) -> list[str]:
        """Empty when it can work. Before anything was named: its start."""
        return [what for check, what in self._checks if not check()] if self._checks else [STARTED]

    @property
    def ready(self) -> bool:
        return not self.waits_for


HEALTH = web.AppKey("health", Health)


@asynccontextmanager
async def door(health: Health, listen: str) -> AsyncIterator[None]:
    """Serves on "host:port" (port 0: any free one) as long as it is entered; nothing when `listen` is empty."""
    if not listen:
        yield
        return
    with serving.bound(listen, "[metrics] listen") as bound:
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
    """200 when the role works; 503 and what it waits for while it prepares itself, or has work and gets nowhere."""
    waits_for = request.app[HEALTH].waits_for
    if not waits_for:
        return web.json_response({"status": "ready"})
    return web.json_response({"status": "not at work", "waits_for": waits_for}, status=503)


async def numbers(request: web.Request) -> web.Response:
    return web.Response(body=generate_latest(metrics.REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})
