"""What senders did for a person lately, for support: newest first, 100 entries, 30 days.

An entry is written when a sender is done with a delivery, and never again: what a provider reports of it later is told
by the notification itself.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from producers import auth
from producers.api import bodies, openapi, people
from producers.api.people import PEOPLE
from producers.auth import Scope
from schemas import timeline

PATH = people.USER_PATH + "/notifications"


def register(app: web.Application, parts: people.PeopleParts) -> None:
    people.register(app, parts)
    app.router.add_get(people.pattern(PATH), get)
    openapi.describe(app, *OPERATIONS)


async def get(request: web.Request) -> web.Response:
    tenant, user = auth.allow(request, Scope.READ), people.user_id(request)
    parts = request.app[PEOPLE]
    oldest_ms = parts.clock.now_ms() - timeline.KEPT_S * 1000
    entries = await parts.timeline.newest(tenant, user)
    return bodies.answer({"notifications": [_document(entry) for entry in entries if entry.at_ms >= oldest_ms]})


def _document(entry: timeline.Entry) -> dict[str, Any]:
    document = {
        "notification_id": entry.notification_id,
        "channel": entry.channel,
        "template": entry.template,
        "state": entry.state,
        "at": bodies.instant(entry.at_ms),
    }
    optional = {"device": entry.device, "reason": entry.reason}
    return {**document, **{name: value for name, value in optional.items() if value}}


OPERATIONS = (
    openapi.Operation(
        "get",
        PATH,
        "What senders did for this user lately: the state is the one they left (sent, failed, ...); what a provider "
        "reports later (delivered, bounced, ...) is told by /v1/notifications/{id}",
        Scope.READ,
        answers={200: "newest first, 100 at most, of 30 days"},
    ),
)
