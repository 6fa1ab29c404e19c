"""People as their company knows them: profile, devices, opt-outs.

Each facet is a record of its own, so a profile write can never undo an opt-out: only PUT preferences, which
carries the whole list, removes one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import Field, StringConstraints

from producers import auth, fields
from producers.api import bodies, openapi, people
from producers.api.people import PEOPLE, USER_PATH, PeopleParts
from producers.auth import Scope
from schemas import facets, keys
from schemas.errors import Refused, StoreDown
from schemas.messages import Device, FacetKind, RecipientFacet
from schemas.stores import Profile

Facets = dict[str, RecipientFacet | None]
OPT_OUTS_MAX = 200


class OptOutBody(fields.Body):
    """kind: a template's name or a class; "*" means all of either."""

    channel: Literal["push", "email", "sms", "inapp", "*"]
    kind: Annotated[fields.ShortText, StringConstraints(min_length=1)]


OptOuts = Annotated[list[OptOutBody], Field(max_length=OPT_OUTS_MAX)]


class PreferencesBody(fields.Body):
    """The whole list: what is not in it is no longer opted out."""

    opt_outs: OptOuts


class UserBody(fields.Body):
    """A profile. devices, when given, are all there are; opt_outs are added to those that hold already."""

    email: fields.Email | None = None
    phone: fields.Phone | None = None
    locale: fields.Locale | None = None
    time_zone: fields.TimeZone | None = None
    devices: list[fields.DeviceBody] | None = None
    opt_outs: OptOuts | None = None
    user_id: fields.Identifier | None = None


def register(app: web.Application, parts: PeopleParts) -> None:
    people.register(app, parts)
    router = app.router
    user = people.pattern(USER_PATH)
    router.add_put(user, put)
    router.add_get(user, get)
    router.add_patch(user, patch)
    router.add_delete(user, erase)
    router.add_put(people.pattern(_DEVICE_PATH), put_device)
    router.add_delete(people.pattern(_DEVICE_PATH), delete_device)
    router.add_put(user + "/preferences", put_preferences)
    openapi.describe(app, *OPERATIONS)


async def put(request: web.Request) -> web.Response:
    """The profile as it shall be; what is left out is empty afterwards."""
    tenant, user = auth.allow(request, Scope.USERS), people.user_id(request)
    body = await _user_body(request, user)
    async with people.one_at_a_time(request, tenant, user) as before:
        facet = RecipientFacet(tenant, user, FacetKind.USER, request.app[PEOPLE].clock.now_ms())
        await people.write(request, tenant, user, _changes(before, _merged(facet, body), body))
        return await _shown(request, tenant, user)


async def patch(request: web.Request) -> web.Response:
    """Changes what is named; null empties it."""
    tenant, user = auth.allow(request, Scope.USERS), people.user_id(request)
    body = await _user_body(request, user)
    async with people.one_at_a_time(request, tenant, user) as before:
        _check_known(before)
        now_ms = request.app[PEOPLE].clock.now_ms()
        stored = RecipientFacet(
            tenant, user, FacetKind.USER, now_ms, before.email, before.phone, before.locale, before.time_zone
        )
        await people.write(request, tenant, user, _changes(before, _merged(stored, body), body))
        return await _shown(request, tenant, user)


async def get(request: web.Request) -> web.Response:
    tenant, user = auth.allow(request, Scope.READ), people.user_id(request)
    profile = await request.app[PEOPLE].profiles.load(tenant, user)
    _check_known(profile)
    return bodies.answer(as_document(user, profile))


async def erase(request: web.Request) -> web.Response:
    """Blocks sends at once and removes what is known of the person, also from the log. Repeatable."""
    tenant, user = auth.allow(request, Scope.USERS), people.user_id(request)
    parts = request.app[PEOPLE]
    gone: Facets = {facets.USER: None}
    try:
        before = await parts.profiles.load(tenant, user)
        gone.update({keys.device_facet(device.id): None for device in before.devices})
    except StoreDown:
        # The record comes first: `route recipients` finds and removes the devices when Redis is back.
        gone = {}
    erased = RecipientFacet(tenant, user, FacetKind.ERASED, parts.clock.now_ms())
    await people.write(request, tenant, user, {**gone, facets.ERASED: erased})
    return bodies.answer({"user_id": user, "status": "erased"}, 202)


async def put_device(request: web.Request) -> web.Response:
    """Adds or replaces one device; beyond the newest ones a person keeps, the oldest goes."""
    tenant, user = auth.allow(request, Scope.USERS), people.user_id(request)
    parts, device_id = request.app[PEOPLE], people.path_id(request, "device")
    body = fields.read(fields.DeviceBody, await bodies.read_json(request, parts.body_bytes))
    if body.id not in (None, device_id):
        raise Refused("id", "differs from the device in the path")
    device = body.device(parts.clock.now_ms(), device_id)
    async with people.one_at_a_time(request, tenant, user) as before:
        if before.erased:
            raise Refused("id", "this user was erased; PUT the user first", 404)
        others = [known for known in before.devices if known.id != device_id]
        changes: Facets = {keys.device_facet(old.id): None for old in others[parts.devices - 1 :]}
        changes[keys.device_facet(device_id)] = _device_facet(tenant, user, device, parts.clock.now_ms())
        await people.write(request, tenant, user, changes)
        return await _shown(request, tenant, user)


async def delete_device(request: web.Request) -> web.Response:
    tenant, user = auth.allow(request, Scope.USERS), people.user_id(request)
    await people.write(request, tenant, user, {keys.device_facet(people.path_id(request, "device")): None})
    return web.Response(status=204)


async def put_preferences(request: web.Request) -> web.Response:
    """The whole list of opt-outs, also of somebody without a profile."""
    tenant, user = auth.allow(request, Scope.USERS), people.user_id(request)
    parts = request.app[PEOPLE]
    body = fields.read(PreferencesBody, await bodies.read_json(request, parts.body_bytes))
    wanted = {(opt_out.channel, opt_out.kind) for opt_out in body.opt_outs}
    async with people.one_at_a_time(request, tenant, user) as before:
        changes: Facets = {keys.opt_out_facet(*pair): None for pair in sorted(before.opt_outs - wanted)}
        changes.update(_opt_out_facets(tenant, user, sorted(wanted - before.opt_outs), parts.clock.now_ms()))
        await people.write(request, tenant, user, changes)
        return await _shown(request, tenant, user)


def as_document(user: str, profile: Profile) -> dict[str, Any]:
    """The person as the API shows them; it may be PUT back unchanged."""
    return {
        "user_id": user,
        "email": profile.email or None,
        "phone": profile.phone or None,
        "locale": profile.locale or None,
        "time_zone": profile.time_zone or None,
        "devices": [_device_document(device) for device in profile.devices],
        "opt_outs": [{"channel": channel, "kind": kind} for channel, kind in sorted(profile.opt_outs)],
    }


async def _user_body(request: web.Request, user: str) -> UserBody:
    body = fields.read(UserBody, await bodies.read_json(request, request.app[PEOPLE].body_bytes))
    if body.user_id not in (None, user):
        raise Refused("user_id", "differs from the user in the path")
    if body.devices is not None and len(body.devices) > request.app[PEOPLE].devices:
        raise Refused("devices", f"a user keeps at most {request.app[PEOPLE].devices} devices")
    return body


def _check_known(profile: Profile) -> None:
    if not profile.version or profile.erased:
        raise Refused("", "no such user", 404)


async def _shown(request: web.Request, tenant: str, user: str) -> web.Response:
    return bodies.answer(as_document(user, await request.app[PEOPLE].profiles.load(tenant, user)))


def _merged(facet: RecipientFacet, body: UserBody) -> RecipientFacet:
    """The profile with what the body names; null empties."""
    named: dict[str, Any] = body.model_dump(include={"email", "phone", "locale", "time_zone"}, exclude_unset=True)
    emptied: dict[str, Any] = {name: value or "" for name, value in named.items()}
    return replace(facet, **emptied)


def _changes(before: Profile, facet: RecipientFacet, body: UserBody) -> Facets:
    """What a profile write writes: the profile, the devices if named, more opt-outs, never fewer."""
    changes: Facets = {facets.USER: facet}
    if body.devices is not None:
        devices = fields.devices(body.devices, facet.at_ms, "devices")
        kept = {device.id for device in devices}
        changes.update({keys.device_facet(old.id): None for old in before.devices if old.id not in kept})
        for device in devices:
            new = _device_facet(facet.tenant, facet.user_id, device, facet.at_ms)
            changes[keys.device_facet(device.id)] = new
    pairs = [(opt_out.channel, opt_out.kind) for opt_out in body.opt_outs or ()]
    return {**changes, **_opt_out_facets(facet.tenant, facet.user_id, pairs, facet.at_ms)}


def _device_facet(tenant: str, user: str, device: Device, at_ms: int) -> RecipientFacet:
    """A device that does not say when it was registered counts as registered now."""
    device = replace(device, registered_at_ms=device.registered_at_ms or at_ms)
    return RecipientFacet(tenant, user, FacetKind.DEVICE, at_ms, device=device)


def _opt_out_facets(tenant: str, user: str, pairs: Iterable[tuple[str, str]], at_ms: int) -> Facets:
    return {
        keys.opt_out_facet(channel, kind): RecipientFacet(
            tenant, user, FacetKind.OPT_OUT, at_ms, channel=channel, kind=kind
        )
        for channel, kind in pairs
    }


def _device_document(device: Device) -> dict[str, Any]:
    return {
        "id": device.id,
        "token": device.token,
        "platform": device.platform,
        "app": device.app,
        "environment": device.environment,
        "registered_at": bodies.instant(device.registered_at_ms),
    }


_SHOWN = {200: "the user as it is now"}
_DEVICE_PATH = USER_PATH + "/devices/{device}"
OPERATIONS = (
    openapi.Operation("put", USER_PATH, "Write a user's profile", Scope.USERS, body=UserBody, answers=_SHOWN),
    openapi.Operation("get", USER_PATH, "A user's profile, devices and opt-outs", Scope.READ, answers=_SHOWN),
    openapi.Operation("patch", USER_PATH, "Change a profile in part", Scope.USERS, body=UserBody, answers=_SHOWN),
    openapi.Operation("delete", USER_PATH, "Erase a user", Scope.USERS, answers={202: "no sends from now on"}),
    openapi.Operation(
        "put", _DEVICE_PATH, "Add or replace a device", Scope.USERS, body=fields.DeviceBody, answers=_SHOWN
    ),
    openapi.Operation("delete", _DEVICE_PATH, "Remove a device", Scope.USERS, answers={204: "removed"}),
    openapi.Operation(
        "put", USER_PATH + "/preferences", "All opt-outs of a user", Scope.USERS, body=PreferencesBody, answers=_SHOWN
    ),
)
