"""The API's application: every request passes one door (trace, key, answer, count), then its resource.

Reading order: app, parts, trace, problems, bodies, notifications, notification_status, cancellation,
campaigns, campaign_orders, campaign_answers, campaign_recipients, health, registry, openapi.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from producers import auth
from producers.api import (
    campaign_orders,
    campaign_recipients,
    campaigns,
    health,
    notifications,
    openapi,
    problems,
    registry,
    trace,
)
from producers.api.parts import PARTS, ApiParts
from schemas import metrics

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_app(parts: ApiParts) -> web.Application:
    """The application; further resources are added by their own `register(app, ...)`."""
    app = web.Application(middlewares=[door])
    app[PARTS] = parts
    openapi.register(app)
    notifications.register(app)
    campaigns.register(app)
    campaign_orders.register(app)
    campaign_recipients.register(app)
    health.register(app)
    registry.register(app, parts.topics)
    return app


@web.middleware
async def door(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Lets a request in, and turns whatever it raises into an answer."""
    parts = request.app[PARTS]
    started_s = parts.clock.steady_s()
    request[trace.TRACE] = trace.begin(request.headers, parts.random_bytes)
    response = await _answered(request, handler, parts.keys)
    if not response.prepared:
        response.headers["X-Request-Id"] = request[trace.TRACE].request_id
    _count(request, response.status, parts.clock.steady_s() - started_s)
    return response


async def _answered(request: web.Request, handler: Handler, keys: auth.Keys) -> web.StreamResponse:
    try:
        if _route(request).startswith("/v1/"):
            authorization = request.headers.get("Authorization", "")
            request[auth.IDENTITY] = keys.identify(authorization, request.remote, request.host)
            keys.check_origin(request.method, request.headers.get("Origin"), request.host)
        return await handler(request)
    except ConnectionResetError:  # the caller is gone
        raise
    except Exception as error:
        return problems.of(error, request[trace.TRACE].request_id)


def _route(request: web.Request) -> str:
    """The route's pattern: a closed set, fit for a label; "" for an unknown address."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else ""


def _count(request: web.Request, status: int, seconds: float) -> None:
    metrics.HTTP_SECONDS.labels(_route(request) or "unknown", str(status)).observe(seconds)
    if 400 <= status < 500:
        metrics.REFUSED.labels(str(status)).inc()
