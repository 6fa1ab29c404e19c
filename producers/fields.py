"""What callers may write: pydantic field types shared by every door (requests, users, imports), and `read`.

A field type refuses with a sentence and normalises what it accepts (E.164, canonical locale, milliseconds),
so that everything behind the door compares plain strings.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar, get_args

import email_validator
import phonenumbers
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from schemas import keys, messages
from schemas.errors import Refused

LOCALE_SHAPE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8}){0,3}")
TOKEN_MAX = 4096
SHORT_TEXT_MAX = 256
REGISTERED_AHEAD_MS = 86_400_000
"""How far the clock of whoever registered a device, or its zone, may be wrong."""


class Body(BaseModel):
    """Root of every request body: an unknown field is a typing error that must not pass silently."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=BaseModel)


def read(model: type[Model], raw: bytes) -> Model:
    """The body as this model. Raises Refused naming the first offending field; 400 when it is no JSON at all."""
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise refusal(error, model) from error


def refusal(error: ValidationError, model: type[BaseModel]) -> Refused:
    """The first complaint of pydantic as ours; the input itself is never repeated."""
    first = error.errors(include_url=False, include_input=False)[0]
    text = first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return Refused("", f"the body is not valid JSON: {text}", status=400)
    if first["type"] == "extra_forbidden":
        text = f"unknown field; there are {', '.join(_names(model, first['loc'][:-1]))}"
    return Refused(".".join(str(part) for part in first["loc"]), text)


def _names(model: type[BaseModel], path: tuple[int | str, ...]) -> tuple[str, ...]:
    """The fields of what lies there in a body, as callers write them."""
    for part in path:
        if isinstance(part, str):
            model = next(_models(model.model_fields[part].annotation))
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Those that an annotation is made of: of `tuple[Device, ...] | None` Device."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def identifier(value: Any) -> str:
    """A caller's id: 1-128 printable characters; an integer means its decimal form (42 and "42" are one)."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError("must be a string or an integer")
    if not 1 <= len(value) <= keys.USER_ID_MAX or not value.isprintable():
        raise ValueError(f"must be 1 to {keys.USER_ID_MAX} printable characters")
    return value


def one_line(value: str) -> str:
    """No control characters, no lone surrogates: it may end up in a header."""
    if any(char < " " or char == "\x7f" or "\x80" <= char <= "\x9f" for char in value):
        raise ValueError("must not hold control characters")
    return encodable(value)


def encodable(value: str) -> str:
    """Refuses lone surrogates, which no encoder of the road would accept."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must not hold lone surrogates") from None
    return value


def email(value: str) -> str:
    """The address with its domain normalised. Syntax only: whether it exists is the provider's answer."""
    try:
        # test_environment admits only the reserved domain .test on top; nothing is looked up.
        found = email_validator.validate_email(one_line(value), check_deliverability=False, test_environment=True)
    except email_validator.EmailNotValidError as error:
        raise ValueError(str(error)) from None
    return found.normalized


def phone(value: str) -> str:
    """The number in E.164. Checked for length and country only: lists of number ranges are always out of date."""
    try:
        number = phonenumbers.parse(value, None)
    except phonenumbers.NumberParseException:
        raise ValueError("must be an international number such as +491701234567") from None
    if not phonenumbers.is_possible_number(number):
        raise ValueError("is too short or too long for its country")
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


@lru_cache(maxsize=4096)
def time_zone(value: str) -> str:
    """A name of the IANA time zone database."""
    try:
        zoneinfo.ZoneInfo(value)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("is not a known time zone such as Europe/Berlin") from None
    return value


def locale(value: str) -> str:
    """A language tag in canonical case: de, de-AT, zh-Hant-TW."""
    if not LOCALE_SHAPE.fullmatch(value):
        raise ValueError("must be a language tag such as de or de-AT")
    language, *rest = value.replace("_", "-").split("-")
    return "-".join([language.lower(), *(_canonical_subtag(part) for part in rest)])


def instant_ms(value: Any) -> int:
    """Milliseconds of an ISO 8601 time with an offset; a time without one means something else to everybody."""
    if not isinstance(value, str):
        raise ValueError("must be a time with an offset such as 2026-11-29T08:00:00+01:00")
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("must be a time with an offset such as 2026-11-29T08:00:00+01:00") from None
    if moment.tzinfo is None:
        raise ValueError("needs an offset (Z or +01:00): a time without a zone is ambiguous")
    try:
        return int(moment.astimezone(UTC).timestamp() * 1000)
    except OverflowError:
        raise ValueError("is in UTC no time of this calendar") from None


def _canonical_subtag(part: str) -> str:
    if len(part) == 4 and part.isalpha():
        return part.title()
    return part.upper() if len(part) <= 3 else part.lower()


Identifier = Annotated[str, BeforeValidator(identifier)]
Email = Annotated[str, StringConstraints(max_length=320), AfterValidator(email)]
Phone = Annotated[str, StringConstraints(max_length=40), AfterValidator(phone)]
TimeZone = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(time_zone)]
Locale = Annotated[str, StringConstraints(max_length=35), AfterValidator(locale)]
Token = Annotated[str, StringConstraints(min_length=1, max_length=TOKEN_MAX), AfterValidator(one_line)]
ShortText = Annotated[str, StringConstraints(max_length=SHORT_TEXT_MAX), AfterValidator(one_line)]
InstantMs = Annotated[int, BeforeValidator(instant_ms, json_schema_input_type=datetime)]


class DeviceBody(Body):
    """One push device as a caller writes it; `id` may be left out, then the token stands for the device."""

    token: Token
    platform: Literal["ios", "android", "web"]
    id: Identifier | None = None
    app: ShortText = ""
    environment: Literal["production", "sandbox"] = "production"
    registered_at: InstantMs | None = None

    def device(self, now_ms: int, device_id: str = "") -> messages.Device:
        """As it travels; without registered_at it has 0, so that the same body gives the same message.

        Raises Refused for a registered_at before 1970 or days ahead: the newest device is written to first.
        """
        registered_at_ms = self.registered_at or 0
        if registered_at_ms < 0:
            raise Refused("registered_at", "is before 1970")
        if registered_at_ms > now_ms + REGISTERED_AHEAD_MS:
            raise Refused("registered_at", "is more than a day ahead")
        return messages.Device(
            id=device_id or self.id or keys.device_hash(self.token),
            token=self.token,
            platform=self.platform,
            app=self.app,
            environment=self.environment,
            registered_at_ms=registered_at_ms,
        )


def devices(bodies: Sequence[DeviceBody], now_ms: int, place: str) -> list[messages.Device]:
    """As they travel. Raises Refused naming the field by its place in the body: `place`, position, field."""
    found = []
    for position, body in enumerate(bodies):
        try:
            found.append(body.device(now_ms))
        except Refused as error:
            raise Refused(f"{place}.{position}.{error.field}", error.text) from None
    return found
