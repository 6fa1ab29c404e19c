"""POST, GET and DELETE of single notifications.

POST is the first stop of the road: checked by `requests`, told apart by `idempotency`, written by the
publisher, and only then answered. GET reads through `notification_status`, DELETE acts in `cancellation`.
"""

from __future__ import annotations

from aiohttp import web

from producers import auth, requests
from producers.api import bodies, cancellation, notification_status, openapi, trace
from producers.api.parts import PARTS, ApiParts
from producers.auth import Scope
from producers.idempotency import Attempt, Begun
from producers.request_bodies import NotificationBody
from schemas import codec, keys, messages, metrics
from schemas.errors import Refused
from schemas.records import Outgoing, Placed

KEY_HEADER = "Idempotency-Key"
PATH = "/v1/notifications"


def register(app: web.Application) -> None:
    app.router.add_post(PATH, post)
    app.router.add_get(PATH + "/{id}", get)
    app.router.add_delete(PATH + "/{id}", delete)
    openapi.describe(app, *OPERATIONS)


async def post(request: web.Request) -> web.Response:
    """202 once the log has it; the same key and body always get the same answer."""
    tenant = auth.allow(request, Scope.SEND)
    parts = request.app[PARTS]
    key = requests.idempotency_key(request.headers.get(KEY_HEADER))
    raw = await bodies.read_json(request, parts.limits.body_bytes)
    attempt = await parts.idempotency.begin(tenant, key, bodies.content_hash(raw))
    match attempt.begun:
        case Begun.ANSWERED:
            metrics.REPLAYED.labels(tenant).inc()
            return _accepted(attempt.answer, {"Idempotent-Replayed": "true"})
        case Begun.RUNNING:
            raise Refused(KEY_HEADER, "the first request with this key is still running", 409)
        case Begun.OTHER_BODY:
            raise Refused(KEY_HEADER, "was used with another body before; a new wish needs a new key")
    return await _accept(parts, attempt, raw, request[trace.TRACE])


async def get(request: web.Request) -> web.Response:
    tenant = auth.allow(request, Scope.READ)
    notification_id = request.match_info["id"]
    found = await notification_status.find(request.app[PARTS], tenant, notification_id)
    if found is None:
        raise Refused("", f"no such notification: {notification_id!r}, or it is older than what is kept", 404)
    return bodies.answer(found)


async def delete(request: web.Request) -> web.Response:
    tenant = auth.allow(request, Scope.SEND)
    parts, notification_id = request.app[PARTS], request.match_info["id"]
    result = await cancellation.cancel(parts, tenant, notification_id, request[trace.TRACE].record_headers())
    if result is None:
        raise Refused("", f"no such notification: {notification_id!r}, or it is older than what can be cancelled", 404)
    return bodies.answer(result, 202)


async def _accept(parts: ApiParts, attempt: Attempt, raw: bytes, traced: trace.Trace) -> web.Response:
    """Into the log, then under the key. Whatever goes wrong before that leaves nothing under the key."""
    now_ms = parts.clock.now_ms()
    try:
        message = requests.notification(raw, attempt.event_id, attempt.tenant, parts.policies, now_ms, parts.limits)
        notification_id = await _write(parts, message, traced)
    except BaseException:
        await parts.idempotency.release(attempt)
        raise
    if parts.gap is not None:
        parts.gap("after_log")
    await parts.idempotency.finish(attempt, notification_id, requests.starts_in_ms(message, now_ms))
    if parts.gap is not None:
        parts.gap("before_answer")
    if attempt.begun is not Begun.UNCHECKED:
        return _accepted(notification_id, {})
    metrics.IDEMPOTENCY_UNCHECKED.labels(attempt.tenant).inc()
    return _accepted(notification_id, {"Idempotency-Checked": "false"})


async def _write(parts: ApiParts, message: messages.NotificationRequested, traced: trace.Trace) -> str:
    """The accepted record; its place is its id."""
    priority = parts.policies[message.template].priority(message.priority)
    is_bulk = priority is messages.Priority.BULK
    topic = (parts.topics.requests_bulk if is_bulk else parts.topics.requests)(message.tenant)
    key = keys.user_key(message.tenant, message.user_id).encode()
    [placed] = await parts.publisher.publish([Outgoing(topic, key, codec.encode(message), traced.record_headers())])
    metrics.ACCEPTED.labels(message.tenant, priority.value).inc()
    return parts.ids.notification_id(message.tenant, _address(parts, topic, placed))


def _address(parts: ApiParts, topic: str, placed: Placed) -> keys.Address:
    return keys.single_address(parts.entries.epoch(topic), placed.partition, placed.offset)


def _accepted(notification_id: str, headers: dict[str, str]) -> web.Response:
    body = {"notification_id": notification_id, "status": "accepted"}
    return bodies.answer(body, 202, {"Location": f"{PATH}/{notification_id}", **headers})


OPERATIONS = (
    openapi.Operation(
        "post",
        PATH,
        "Send one notification",
        Scope.SEND,
        body=NotificationBody,
        headers=(KEY_HEADER,),
        answers={202: "accepted: the log has it", 409: "the first request with this key is still running"},
    ),
    openapi.Operation("get", PATH + "/{id}", "What became of it", Scope.READ, answers={200: "its deliveries"}),
    openapi.Operation(
        "delete", PATH + "/{id}", "Cancel what is not sent", Scope.SEND, answers={202: "what could still be stopped"}
    ),
)
