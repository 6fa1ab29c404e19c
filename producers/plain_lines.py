"""A recipient's line read without its model, where nothing in it needs more than a look: nearly every one of an upload.

Such a line gives the very same message as `request_bodies.RecipientBody`, at a quarter of the price. Everything else
is left to the model: fields that are normalised, values that JSON readers keep differently, and whatever is wrong,
since the model says so in words.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeGuard

import orjson

from producers import fields
from producers.request_bodies import DEVICES_MAX, params_text
from schemas import keys
from schemas.messages import Contact, Device, Recipient

_FIELDS = {"user_id", "params", "to"}
_TO_FIELDS = {"devices"}
_DEVICE_FIELDS = {"id", "token", "platform", "app", "environment"}
_PLATFORMS = frozenset({"ios", "android", "web"})
_ENVIRONMENTS = frozenset({"production", "sandbox"})
_PLAIN_TYPES = frozenset({str, int, bool})
"""A float may be an integer that was too long; a nested value may hold one."""


def recipient(line: bytes) -> Recipient | None:
    """The recipient of a plain line; None when the model must look at it."""
    try:
        body = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if type(body) is not dict or not body.keys() <= _FIELDS or not _is_text(body.get("user_id"), keys.USER_ID_MAX):
        return None
    params, to = body.get("params"), body.get("to")
    if type(params) is dict:
        if not _PLAIN_TYPES.issuperset(map(type, params.values())):
            return None
    elif "params" in body:
        return None
    contact = None
    if to is not None and (contact := _contact(to)) is None:
        return None
    return Recipient(body["user_id"], params_text(params) if params else "{}", contact)


def _contact(to: Any) -> Contact | None:
    if type(to) is not dict or not to.keys() <= _TO_FIELDS:
        return None
    written = to.get("devices", [])
    if type(written) is not list or len(written) > DEVICES_MAX:
        return None
    devices = [device for one in written if (device := _device(one)) is not None]
    return Contact(devices=tuple(devices)) if len(devices) == len(written) else None


def _device(one: Any) -> Device | None:
    if type(one) is not dict or not one.keys() <= _DEVICE_FIELDS:
        return None
    token, app, environment = one.get("token"), one.get("app", ""), one.get("environment", "production")
    if not (_is_text(token, fields.TOKEN_MAX) and _is_one_of(one.get("platform"), _PLATFORMS)):
        return None
    if not (app == "" or _is_text(app, fields.SHORT_TEXT_MAX)) or not _is_one_of(environment, _ENVIRONMENTS):
        return None
    device_id = one["id"] if "id" in one else keys.device_hash(token)
    if not _is_text(device_id, keys.USER_ID_MAX):
        return None
    return Device(device_id, token, one["platform"], app, environment)


def _is_text(value: Any, longest: int) -> TypeGuard[str]:
    """Whether it is a text of printable characters only, and not empty."""
    return type(value) is str and 0 < len(value) <= longest and value.isprintable()


def _is_one_of(value: Any, words: Collection[str]) -> TypeGuard[str]:
    return type(value) is str and value in words
