"""Addresses that must not be written to again, after a hard bounce or a complaint: ask, and lift.

The address itself is never stored, only its hash; so one has to know the address to ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web

from producers import auth, fields
from producers.api import bodies, openapi, people, trace
from producers.api.people import PEOPLE
from producers.auth import Scope
from schemas import keys
from schemas.errors import Refused
from schemas.records import Outgoing

PATH = "/v1/suppressions/{channel}/{address}"
NORMALISERS: Mapping[str, Callable[[str], str]] = {"email": fields.email, "sms": fields.phone}


def register(app: web.Application, parts: people.PeopleParts) -> None:
    people.register(app, parts)
    app.router.add_get(people.pattern(PATH), get)
    app.router.add_delete(people.pattern(PATH), lift)
    openapi.describe(app, *OPERATIONS)


async def get(request: web.Request) -> web.Response:
    """200 with the cause; 404 when the address may be written to."""
    tenant = auth.allow(request, Scope.READ)
    channel, address = _address(request)
    hashed = keys.address_hash(channel, address)
    cause = await request.app[PEOPLE].suppressions.load(tenant, channel, hashed)
    if not cause:
        raise Refused("address", "is not suppressed", 404)
    return bodies.answer({"channel": channel, "address": address, "suppressed": True, "cause": cause})


async def lift(request: web.Request) -> web.Response:
    """The address may be written to again. Repeatable."""
    tenant = auth.allow(request, Scope.USERS)
    parts = request.app[PEOPLE]
    channel, address = _address(request)
    hashed = keys.address_hash(channel, address)
    key = keys.suppression_key(tenant, channel, hashed).encode()
    headers = request[trace.TRACE].record_headers()
    [placed] = await parts.publisher.publish([Outgoing(parts.topics.suppressions, key, None, headers)])
    await parts.suppressions.apply(tenant, channel, hashed, placed.offset, "")
    return web.Response(status=204)


def _address(request: web.Request) -> tuple[str, str]:
    """(channel, normalised address) of the path. Raises Refused."""
    channel = request.match_info["channel"]
    if channel not in NORMALISERS:
        raise Refused("channel", "must be email or sms: no other address can be suppressed")
    try:
        return channel, NORMALISERS[channel](request.match_info["address"])
    except ValueError as error:
        raise Refused("address", str(error)) from None


OPERATIONS = (
    openapi.Operation("get", PATH, "Is this address suppressed, and why", Scope.READ, answers={200: "it is"}),
    openapi.Operation("delete", PATH, "Lift a suppression", Scope.USERS, answers={204: "it may be written to"}),
)
