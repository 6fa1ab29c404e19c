"""A person's in-app messages: the list with its exact unread count, reading, and news as they happen.

The stream is a hint: after any break the client reconnects and is told the true count first, then what it missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any

import orjson
from aiohttp import web
from pydantic import Field

from producers import auth, fields
from producers.api import bodies, openapi, people, trace
from producers.api.people import PEOPLE
from producers.auth import Scope
from schemas import codec, keys
from schemas.errors import Refused, StoreDown
from schemas.messages import InboxMessage
from schemas.records import Outgoing
from schemas.stores import InboxItem, InboxNews, InboxView

PATH = people.USER_PATH + "/inbox"
HEARTBEAT_S = 20.0
"""Proxies cut a silent connection at 60 s."""
RECONNECT_MS = 2_000
_STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
STREAMS = web.AppKey("inbox_streams", set[asyncio.Task[Any]])


class ReadBody(fields.Body):
    """Which messages were read: `ids` (notification ids), or `all` that are there."""

    ids: Annotated[list[fields.Identifier], Field(max_length=1000)] | None = None
    all: bool = False


def register(app: web.Application, parts: people.PeopleParts) -> None:
    people.register(app, parts)
    app[STREAMS] = set()
    path = people.pattern(PATH)
    app.router.add_get(path, get)
    app.router.add_post(path + "/read", read)
    app.router.add_get(path + "/stream", stream)
    app.on_shutdown.append(_end_streams)
    openapi.describe(app, *OPERATIONS)


async def get(request: web.Request) -> web.Response:
    tenant, user = auth.allow(request, Scope.READ), people.user_id(request)
    view = await request.app[PEOPLE].inbox.view(tenant, user)
    return bodies.answer({"unread": view.unread, "messages": [_document(item.message) for item in view.items]})


async def read(request: web.Request) -> web.Response:
    """Marks messages as read, in the log first: a read message stays read when Redis is lost."""
    tenant, user = auth.allow(request, Scope.USERS), people.user_id(request)
    parts = request.app[PEOPLE]
    body = fields.read(ReadBody, await bodies.read_json(request, parts.body_bytes))
    if body.all == (body.ids is not None):
        raise Refused("ids", 'name the messages in "ids", or say "all": true')
    view = await parts.inbox.view(tenant, user)
    unread = [item.message for item in view.items if not item.message.read_at_ms]
    chosen = [message for message in unread if body.all or message.notification_id in (body.ids or ())]
    if not chosen:
        return bodies.answer({"unread": view.unread})
    now_ms, headers = parts.clock.now_ms(), request[trace.TRACE].record_headers()
    marked = [replace(message, read_at_ms=now_ms) for message in chosen]
    await parts.publisher.publish([record_of(parts.topics.inbox, message, headers) for message in marked])
    ids = [message.notification_id for message in chosen]
    return bodies.answer({"unread": await parts.inbox.mark_read(tenant, user, ids, now_ms)})


async def stream(request: web.Request) -> web.StreamResponse:
    """Server-sent events: `unread` with the count, `message` with each arrival; resumes after Last-Event-ID."""
    tenant, user = auth.allow(request, Scope.READ), people.user_id(request)
    last_seen = _last_seen(request)
    inbox = request.app[PEOPLE].inbox
    async with inbox.live(tenant, user) as news:
        view = await inbox.view(tenant, user)
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        request.app[STREAMS].add(task)
        try:
            await response.write(_beginning(view, last_seen))
            await _pass_on(response, news)
        except (ConnectionError, StoreDown):
            pass  # gone, or news may be missing: the client reconnects by itself
        finally:
            request.app[STREAMS].discard(task)
    return response


def record_of(topic: str, message: InboxMessage, headers: tuple[tuple[str, bytes], ...] = ()) -> Outgoing:
    """The message as a record of `inbox`."""
    key = keys.inbox_key(message.tenant, message.user_id, message.notification_id)
    return Outgoing(topic, key.encode(), codec.encode(message), headers)


async def _pass_on(response: web.StreamResponse, news: AsyncIterator[InboxNews]) -> None:
    """Writes news until the client or the news end; a comment now and then shows that we are there.

    What arrived while the beginning was told may come twice: clients drop repeats by the notification's id.
    """
    coming = asyncio.ensure_future(anext(news))
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=HEARTBEAT_S)
            if not done:
                await response.write(b": still here\n\n")
                continue
            item = coming.result()
            coming = asyncio.ensure_future(anext(news))
            await response.write(_told(item))
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


def _beginning(view: InboxView, last_seen: int | None) -> bytes:
    """What was missed, oldest first, and the count as it is now."""
    missed = [item for item in reversed(view.items) if last_seen is not None and item.seq > last_seen]
    parts = [_message_event(item, view.unread) for item in missed]
    return b"".join(
        (f"retry: {RECONNECT_MS}\n\n".encode(), *parts, _event("unread", view.seq, {"unread": view.unread}))
    )


def _told(news: InboxNews) -> bytes:
    if news.arrived is None:
        return _event("unread", news.seq, {"unread": news.unread})
    return _message_event(InboxItem(news.seq, news.arrived), news.unread)


def _message_event(item: InboxItem, unread: int) -> bytes:
    return _event("message", item.seq, {"unread": unread, "message": _document(item.message)})


def _event(name: str, seq: int, body: dict[str, Any]) -> bytes:
    # JSON has no raw line break, so one data line is enough.
    return f"event: {name}\nid: {seq}\ndata: ".encode() + orjson.dumps(body) + b"\n\n"


def _document(message: InboxMessage) -> dict[str, Any]:
    return {
        "notification_id": message.notification_id,
        "template": message.template,
        "title": message.title,
        "text": message.text,
        "data": orjson.Fragment(message.data) if message.data else None,
        "at": bodies.instant(message.at_ms),
        "read": bool(message.read_at_ms),
    }


def _last_seen(request: web.Request) -> int | None:
    """Where the client's last connection ended; garbage counts as absent."""
    text = request.headers.get("Last-Event-ID") or request.query.get("last_event_id", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


async def _end_streams(app: web.Application) -> None:
    streams = app[STREAMS]
    for task in tuple(streams):
        task.cancel()


OPERATIONS = (
    openapi.Operation("get", PATH, "In-app messages and the unread count", Scope.READ, answers={200: "newest first"}),
    openapi.Operation(
        "post",
        PATH + "/read",
        "Mark messages as read",
        Scope.USERS,
        body=ReadBody,
        answers={200: "the count left"},
    ),
    openapi.Operation(
        "get",
        PATH + "/stream",
        "News of the inbox (server-sent events)",
        Scope.READ,
        headers=("Last-Event-ID",),
        query=("last_event_id",),
        answers={200: "a stream"},
    ),
)
