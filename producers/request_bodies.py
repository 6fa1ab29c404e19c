"""The shapes of requests: one model per body, from which the OpenAPI document is made as well.

`requests.py` turns them into messages and holds the rules that span several fields.
"""

from __future__ import annotations

import json
import re
from datetime import date, datetime
from typing import Annotated, Any, Literal

import orjson
import pydantic

from producers import fields
from schemas import messages
from schemas.errors import Refused

DEVICES_MAX = 20
ID_SHAPE = re.compile(r"[A-Za-z0-9._~:-]{1,64}")


def params_text(params: dict[str, Any]) -> str:
    """Params as JSON text with sorted keys: equal params give equal texts. Raises Refused for odd numbers."""
    try:
        text = orjson.dumps(params, option=orjson.OPT_SORT_KEYS)
        if b"null" in text:  # which is also how orjson writes NaN and infinity
            json.dumps(params, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise Refused("params", "holds a number that JSON readers cannot keep; write it as a string") from None
    return text.decode()


def _local_time(value: str) -> str:
    try:
        datetime.strptime(value, "%H:%M")  # noqa: DTZ007 the zone is the user's
    except ValueError:
        raise ValueError('must be a time of day such as "08:00"') from None
    return value


def _day(value: str) -> str:
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        raise ValueError('must be a date such as "2026-05-01"') from None


def _campaign_id(value: str) -> str:
    if not ID_SHAPE.fullmatch(value):
        raise ValueError("must be 1 to 64 letters, digits or any of . _ ~ : -")
    return value


PacePerS = Annotated[int, pydantic.Field(strict=True, ge=1, le=1_000_000)]
Weight = Annotated[int, pydantic.Field(strict=True, ge=1, le=100)]


class LocalStart(fields.Body):
    """A time of day in each user's own zone; already past: the next day."""

    local: Annotated[str, pydantic.AfterValidator(_local_time)]
    date: Annotated[str, pydantic.AfterValidator(_day)] | None = None


def _start_value(value: Any) -> Any:
    """Picks the kind of start by its JSON type, so that the refusal speaks of that kind only."""
    if isinstance(value, dict):
        try:
            return LocalStart.model_validate(value)
        except pydantic.ValidationError as error:
            raise ValueError(str(fields.refusal(error, LocalStart))) from None
    return fields.instant_ms(value)


StartAt = Annotated[
    int | LocalStart, pydantic.BeforeValidator(_start_value, json_schema_input_type=datetime | LocalStart)
]
ExpiresAt = Annotated[int, pydantic.BeforeValidator(fields.instant_ms, json_schema_input_type=datetime)]
Params = dict[str, Any]


class ToBody(fields.Body):
    """Addresses for somebody without a stored profile, or in place of the stored ones."""

    email: fields.Email | None = None
    phone: fields.Phone | None = None
    devices: Annotated[tuple[fields.DeviceBody, ...], pydantic.Field(max_length=DEVICES_MAX)] = ()
    locale: fields.Locale | None = None
    time_zone: fields.TimeZone | None = None

    def contact(self, now_ms: int) -> messages.Contact:
        """As it travels. Raises Refused for a device that was registered at no likely time."""
        return messages.Contact(
            email=self.email or "",
            phone=self.phone or "",
            devices=tuple(fields.devices(self.devices, now_ms, "to.devices")),
            locale=self.locale or "",
            time_zone=self.time_zone or "",
        )


class _Wish(fields.Body):
    """What single notifications and campaigns have in common."""

    template: fields.Identifier
    params: Params = {}
    priority: Literal["bulk", "transactional"] | None = None
    channels: tuple[messages.Channel, ...] = ()


class NotificationBody(_Wish):
    """POST /v1/notifications."""

    user_id: fields.Identifier
    to: ToBody | None = None
    send_at: StartAt | None = None
    expires_at: ExpiresAt | None = None
    force: pydantic.StrictBool = False


class RecipientBody(fields.Body):
    """One recipient: an element of `recipients`, or one line of an upload."""

    user_id: fields.Identifier
    params: Params = {}
    to: ToBody | None = None

    def recipient(self, now_ms: int) -> messages.Recipient:
        """As it travels. Raises Refused for odd params, and for a device that was registered at no likely time."""
        return messages.Recipient(
            self.user_id,
            params_text(self.params) if self.params else "{}",
            None if self.to is None else self.to.contact(now_ms),
        )


class CampaignBody(_Wish):
    """POST /v1/campaigns; without `recipients` when they follow as a second part."""

    campaign_id: Annotated[str, pydantic.AfterValidator(_campaign_id)] | None = None
    send_at: StartAt | None = None
    expires_at: ExpiresAt | None = None
    pace_per_s: PacePerS | None = None
    weight: Weight = 1
    recipients: tuple[RecipientBody, ...] | None = None


class CampaignChangeBody(fields.Body):
    """PATCH /v1/campaigns/{id}: what is left out stays; `pace_per_s` null: no limit of its own any more."""

    pace_per_s: PacePerS | None = None
    weight: Weight = 1


class _EventTo(ToBody):
    time_zone: Annotated[str, pydantic.Field(max_length=64), pydantic.AfterValidator(fields.one_line)] | None = None


class EventBody(_Wish):
    """The checked part of a directly published NotificationRequested."""

    event_id: fields.Identifier
    user_id: fields.Identifier
    to: _EventTo | None = None
    send_at_local: Annotated[str, pydantic.AfterValidator(lambda value: value and _local_time(value))] = ""
    send_on: Annotated[str, pydantic.AfterValidator(lambda value: value and _day(value))] = ""
