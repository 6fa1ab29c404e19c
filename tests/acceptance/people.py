"""Whom tests write to: addresses that follow from a user's name, and the keys under which they are reached."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

from schemas import keys
from schemas.messages import Channel

TENANT = "default"
DEVICE = "phone"


def phone(user: str) -> str:
    """A mobile number of their own."""
    return f"+49151{zlib.crc32(user.encode()) % 10**8:08}"


def devices(user: str) -> list[dict[str, str]]:
    return [{"id": DEVICE, "token": f"token-{user}", "platform": "ios"}]


def to_device(user: str) -> dict[str, Any]:
    """`to` of somebody without a profile, reached by push."""
    return {"devices": devices(user)}


def to_phone(user: str) -> dict[str, Any]:
    return {"phone": phone(user)}


def readers(users: Iterable[str]) -> list[dict[str, Any]]:
    """Lines of an audience that is reached by push."""
    return [{"user_id": user, "params": {"name": user}, "to": to_device(user)} for user in users]


def push_key(event_id: str) -> str:
    """The delivery key of a single push."""
    return keys.delivery_key(keys.single_intent(TENANT, event_id), Channel.PUSH, DEVICE)


def sms_key(event_id: str) -> str:
    return keys.delivery_key(keys.single_intent(TENANT, event_id), Channel.SMS)


def reader_keys(campaign_id: str, users: Iterable[str]) -> list[str]:
    """The delivery keys of a campaign by push."""
    intents = [keys.recipient_intent(TENANT, campaign_id, user) for user in users]
    return [keys.delivery_key(intent, Channel.PUSH, DEVICE) for intent in intents]


def reader_sms_keys(campaign_id: str, users: Iterable[str]) -> list[str]:
    """The same by SMS."""
    return [keys.delivery_key(keys.recipient_intent(TENANT, campaign_id, user), Channel.SMS) for user in users]
