"""What may be asked for, and the message it becomes: notifications, campaigns, recipient lines, direct events.

The API's handlers and `route` (for events that others publish themselves) run the same rules. Everything here
is pure; bad input raises Refused, naming the field.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, TypeVar

import orjson
import pydantic

from producers import fields
from producers.request_bodies import CampaignBody, EventBody, LocalStart, NotificationBody, params_text
from schemas import local_times, messages
from schemas.errors import Refused
from schemas.policies import MessageClass, Policies, TemplatePolicy

DAY_MS = 86_400_000
JUST_NOW_MS = 5 * 60_000
"""A start this little behind means now: callers' clocks differ, and a request may have been tried for minutes."""
LET_GO_AHEAD_MS = 3_600_000
"""A campaign's pages are let go so long before its local start comes anywhere: at 3,000 recipients a second, 10 million
wait in hold by then."""
_LATEST_MS = 2**53
"""Of an event that was moved: its devices were judged where it first came, by that record's time."""
KEY_MAX = 128
LISTED_MAX = 20
"""Templates that are named to who asked for one that there is not."""
Timed = TypeVar("Timed", messages.NotificationRequested, messages.CampaignRequested)
Request = messages.NotificationRequested | messages.CampaignRequested


@dataclass(frozen=True, slots=True)
class Limits:
    """What the door lets through. body_bytes: also of the values of a campaign, and of each of its recipients."""

    body_bytes: int = 65_536
    inline_bytes: int = 16_777_216
    inline_recipients: int = 10_000
    send_ahead_ms: int = 14 * DAY_MS
    expires_ahead_ms: int = 21 * DAY_MS


def notification(
    raw: bytes, event_id: str, tenant: str, policies: Policies, now_ms: int, limits: Limits
) -> messages.NotificationRequested:
    """The body of POST /v1/notifications as a message. Raises Refused."""
    body = fields.read(NotificationBody, raw)
    policy = _policy(policies, body.template, body.channels, body.priority)
    send_at_ms, send_at_local, send_on = _start(body.send_at)
    message = messages.NotificationRequested(
        tenant=tenant,
        event_id=event_id,
        user_id=body.user_id,
        template=body.template,
        params=params_text(body.params),
        channels=_distinct(body.channels),
        priority=_lowered(body.priority),
        to=None if body.to is None else body.to.contact(now_ms),
        send_at_ms=send_at_ms,
        send_at_local=send_at_local,
        send_on=send_on,
        expires_at_ms=body.expires_at or 0,
        force=body.force,
        accepted_at_ms=now_ms,
    )
    _check_not_past(message, now_ms)
    return _with_expiry(message, policy, now_ms, limits)


def check_event(
    event: messages.NotificationRequested, policies: Policies, now_ms: int, limits: Limits
) -> messages.NotificationRequested:
    """A directly published event by the API's rules, with its times filled in.

    now_ms: the time on its record, so that a second reading gives the same answer. An unknown time zone is
    left as it is: routing falls back to the tenant's. A start that has passed on the way means now. Raises Refused;
    field "event_id" when it has none.
    """
    if not event.event_id:
        raise Refused("event_id", "a published event must carry an event_id: without it a repeat cannot be told")
    check_params(event.params, limits)
    if event.send_on and not event.send_at_local:
        raise Refused("send_at_local", "is missing: a date alone is no time")
    if event.send_at_ms and event.send_at_local:
        raise Refused("send_at_local", "an event starts at an instant or at a local time, not at both")
    accepted_at_ms = min(event.accepted_at_ms, now_ms) if event.accepted_at_ms > 0 else now_ms
    body = _event_body(event)
    policy = _policy(policies, body.template, body.channels, body.priority)
    checked = replace(
        event,
        user_id=body.user_id,
        params=params_text(body.params),
        channels=_distinct(body.channels),
        priority=_lowered(body.priority),
        to=None if body.to is None else body.to.contact(_LATEST_MS if event.origin_row else now_ms),
        accepted_at_ms=accepted_at_ms,
    )
    return _with_expiry(checked, policy, accepted_at_ms, limits)


def campaign(
    body: CampaignBody,
    campaign_id: str,
    tenant: str,
    policies: Policies,
    now_ms: int,
    limits: Limits,
    asked_at_ms: int = 0,
) -> messages.CampaignRequested:
    """The definition of a campaign; its audience (upload, offsets, counts, hash) is filled in by the caller.

    asked_at_ms: when its upload began, if it has one behind it: a start that came meanwhile means now.
    """
    policy = _policy(policies, body.template, body.channels, body.priority)
    params = params_text(body.params)
    check_params(params, limits)
    send_at_ms, send_at_local, send_on = _start(body.send_at)
    message = messages.CampaignRequested(
        tenant=tenant,
        campaign_id=campaign_id,
        template=body.template,
        upload_id="",
        partition=-1,
        first_offset=-1,
        last_offset=-1,
        pages=0,
        recipients=0,
        content_hash="",
        params=params,
        channels=_distinct(body.channels),
        priority=_lowered(body.priority),
        send_at_ms=send_at_ms,
        send_at_local=send_at_local,
        send_on=send_on,
        expires_at_ms=body.expires_at or 0,
        pace_per_s=body.pace_per_s or 0,
        weight=body.weight,
        accepted_at_ms=now_ms,
    )
    _check_not_past(message, asked_at_ms or now_ms)
    return _let_go_in_time(_with_expiry(message, policy, now_ms, limits), now_ms)


def check_params(text: str, limits: Limits) -> None:
    """Raises Refused for values that are longer than a whole notification may be: they travel in every delivery, and
    with all others of a page in one record.
    """
    if len(text.encode()) > limits.body_bytes:
        raise Refused("params", f"is longer than {limits.body_bytes} bytes")


def definition_text(body: CampaignBody) -> bytes:
    """What two requests for one campaign id must share, besides their recipients."""
    wanted = body.model_dump(exclude={"campaign_id", "recipients", "params"}, exclude_defaults=True)
    return orjson.dumps([wanted, params_text(body.params)], option=orjson.OPT_SORT_KEYS) + b"\n"


def idempotency_key(value: str | None) -> str:
    """The header's value. Raises Refused 400 when it is missing or not 1-128 printable characters."""
    if not value:
        raise Refused("Idempotency-Key", "is missing: without it a repeat cannot be told from a new wish", 400)
    if len(value) > KEY_MAX or not value.isprintable():
        raise Refused("Idempotency-Key", f"must be 1 to {KEY_MAX} printable characters", 400)
    return value


def starts_in_ms(message: messages.NotificationRequested, now_ms: int) -> int:
    """How long until the last moment at which it may start by its own wish; 0 for at once."""
    return _latest_start_ms(message, now_ms) - now_ms


def _event_body(event: messages.NotificationRequested) -> EventBody:
    try:
        return EventBody.model_validate(_event_fields(event))
    except pydantic.ValidationError as error:
        raise fields.refusal(error, EventBody) from None


def _event_fields(event: messages.NotificationRequested) -> dict[str, Any]:
    try:
        params = orjson.loads(event.params)
    except orjson.JSONDecodeError:
        raise Refused("params", "is not JSON") from None
    return {
        "event_id": event.event_id,
        "user_id": event.user_id,
        "template": event.template,
        "params": params,
        "priority": event.priority or None,
        "channels": event.channels,
        "to": None if event.to is None else _contact_fields(event.to),
        "send_at_local": event.send_at_local,
        "send_on": event.send_on,
    }


def _contact_fields(contact: messages.Contact) -> dict[str, Any]:
    return {
        "email": contact.email or None,
        "phone": contact.phone or None,
        "devices": [_device_fields(device) for device in contact.devices],
        "locale": contact.locale or None,
        "time_zone": contact.time_zone or None,
    }


def _device_fields(device: messages.Device) -> dict[str, Any]:
    try:
        registered_at = datetime.fromtimestamp(device.registered_at_ms / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        raise Refused("to.devices.registered_at_ms", "is no time of this calendar") from None
    return {
        "id": device.id or None,
        "token": device.token,
        "platform": device.platform,
        "app": device.app,
        "environment": device.environment,
        "registered_at": registered_at if device.registered_at_ms else None,
    }


def _policy(
    policies: Policies, template: str, channels: tuple[messages.Channel, ...], priority: str | None
) -> TemplatePolicy:
    """The template's policy, when the wish keeps to it."""
    policy = policies.get(template)
    if policy is None:
        raise Refused("template", f"{template!r} is not known; there {_listed(policies)}")
    known = (*policy.channels, *policy.fallback)
    if any(channel not in known for channel in channels):
        raise Refused("channels", f"this template speaks on {', '.join(known)} only")
    if priority == messages.Priority.TRANSACTIONAL and policy.message_class is not MessageClass.TRANSACTIONAL:
        raise Refused("priority", "a request may lower a template's class, never raise it")
    return policy


def _listed(policies: Policies) -> str:
    """The templates' names; the first ones where they are many."""
    names = sorted(policies)
    more = f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return f"are {', '.join(names[:LISTED_MAX])}{more}" if names else "is none: look at [templates] path"


def _lowered(priority: str | None) -> str:
    return messages.Priority.BULK.value if priority == messages.Priority.BULK else ""


def _distinct(channels: tuple[messages.Channel, ...]) -> tuple[messages.Channel, ...]:
    return tuple(dict.fromkeys(channels))


def _start(wanted: int | LocalStart | None) -> tuple[int, str, str]:
    """(instant, local time, local date), of which the unused are empty."""
    if isinstance(wanted, LocalStart):
        return 0, wanted.local, wanted.date or ""
    return wanted or 0, "", ""


def _let_go_in_time(message: messages.CampaignRequested, now_ms: int) -> messages.CampaignRequested:
    """With a local start: when its pages have to be let go so that they are split before the first zone is due."""
    if not message.send_at_local:
        return message
    let_go_at_ms = _earliest_start_ms(message, now_ms) - LET_GO_AHEAD_MS
    return replace(message, send_at_ms=let_go_at_ms) if let_go_at_ms > now_ms else message


def _check_not_past(message: Request, now_ms: int) -> None:
    if 0 < message.send_at_ms < now_ms - JUST_NOW_MS:
        raise Refused("send_at", "lies in the past; leave it out to send now")


def _with_expiry(message: Timed, policy: TemplatePolicy, now_ms: int, limits: Limits) -> Timed:
    """The message with its expiry, when its times fit together."""
    _check_day(message.send_on, now_ms, limits)
    start_ms, last_start_ms = _earliest_start_ms(message, now_ms), _latest_start_ms(message, now_ms)
    _check_start(message, start_ms, now_ms, limits)
    latest_ms = now_ms + limits.expires_ahead_ms
    expires_at_ms = message.expires_at_ms
    if not expires_at_ms:
        return replace(message, expires_at_ms=min(last_start_ms + policy.expiry_ms(), latest_ms))
    if expires_at_ms <= start_ms:
        raise Refused("expires_at", "lies in the past" if expires_at_ms <= now_ms else "comes before send_at")
    if expires_at_ms > latest_ms:
        raise Refused("expires_at", f"may be at most {limits.expires_ahead_ms // DAY_MS} days ahead")
    return message


def _check_day(send_on: str, now_ms: int, limits: Limits) -> None:
    """Refuses a day that is far away: it need not have a moment in every zone of this calendar."""
    if not send_on:
        return
    ahead = (date.fromisoformat(send_on) - datetime.fromtimestamp(now_ms / 1000, UTC).date()).days
    if ahead < -2:
        raise Refused("send_at.date", _PAST_DAY)
    if ahead > limits.send_ahead_ms // DAY_MS + 2:
        raise Refused("send_at", f"may be at most {limits.send_ahead_ms // DAY_MS} days ahead")


def _check_start(message: Request, start_ms: int, now_ms: int, limits: Limits) -> None:
    if start_ms > now_ms + limits.send_ahead_ms:
        raise Refused("send_at", f"may be at most {limits.send_ahead_ms // DAY_MS} days ahead")
    if message.send_on and local_times.latest_ms(message.send_on, message.send_at_local, now_ms) < now_ms:
        raise Refused("send_at.date", _PAST_DAY)


_PAST_DAY = "is over everywhere on earth; a time of day without a date is its next one"


def _earliest_start_ms(message: Request, now_ms: int) -> int:
    """When the first of its users may be reached."""
    if not message.send_at_local:
        return max(now_ms, message.send_at_ms)
    return max(now_ms, local_times.earliest_ms(message.send_on, message.send_at_local, now_ms))


def _latest_start_ms(message: Request, now_ms: int) -> int:
    """When the last of them may be."""
    if not message.send_at_local:
        return max(now_ms, message.send_at_ms)
    return max(now_ms, local_times.latest_ms(message.send_on, message.send_at_local, now_ms))
