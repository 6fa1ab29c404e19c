"""What a template decides: class, channels, fallback, expiry, quiet hours, caps, digest, what to do when in doubt.

Read from `templates/<name>/template.toml`; `consumers/render.py` reads the texts beside it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple

from schemas.errors import Misconfigured
from schemas.messages import Channel, Priority

HOUR_MS = 3_600_000
MAX_EXPIRY_MS = 21 * 24 * HOUR_MS
"""Nothing may wait longer than the topics keep it."""
TRANSACTIONAL_EXPIRY_MS = 20 * HOUR_MS
MARKETING_EXPIRY_MS = 72 * HOUR_MS
FALLBACK_AFTER_MS = 30_000


class MessageClass(StrEnum):
    """A template without one is marketing."""

    TRANSACTIONAL = "transactional"
    MARKETING = "marketing"


class OnUnknown(StrEnum):
    """What to do when a call may have been accepted: call again, or end `unconfirmed`."""

    RISK_REPEAT = "risk_repeat"
    RISK_LOSS = "risk_loss"


class OverCap(StrEnum):
    """What becomes of a message above its cap: dropped with its reason, or one of those that go out as one."""

    DROP = "drop"
    DIGEST = "digest"


class ContentCheck(StrEnum):
    """By what two messages to one user look alike: their template; their params too; or never."""

    TEMPLATE = "template"
    PARAMS = "params"
    OFF = "off"


class WhenRedisIsDown(StrEnum):
    """Wait for it, or send by the address in the record: unclaimed, opt-outs unread."""

    WAIT = "wait"
    SEND = "send"


class QuietWindow(NamedTuple):
    """From and to, "HH:MM" in a user's own zone, unlike each other; over midnight is the normal case."""

    begins: str
    ends: str


OFF: Literal["off"] = "off"
"""Never quiet, whatever the tenant says."""
NO_LENGTH = "quiet hours that end when they begin are none, or all of the day"


@dataclass(frozen=True, slots=True)
class TemplatePolicy:
    """template.toml, checked. channels: all of these are sent; fallback: tried in order; at least one is given.

    quiet_hours: None = the tenant's. digest_ms: for how long messages are gathered into one; 0 = each goes alone.
    fallback_after_ms: how long its provider may be away before the next channel of `fallback` is tried.
    """

    name: str
    message_class: MessageClass
    channels: tuple[Channel, ...]
    fallback: tuple[Channel, ...] = ()
    expires_ms: int = 0
    caps: dict[str, int] = field(default_factory=dict)
    content_check: ContentCheck = ContentCheck.TEMPLATE
    on_unknown: OnUnknown = OnUnknown.RISK_REPEAT
    quiet_hours: QuietWindow | Literal["off"] | None = None
    over_cap: OverCap = OverCap.DROP
    digest_ms: int = 0
    fallback_after_ms: int = FALLBACK_AFTER_MS
    when_redis_is_down: WhenRedisIsDown = WhenRedisIsDown.WAIT

    @property
    def makes_digests(self) -> bool:
        """Whether messages of it may go out as one."""
        return self.digest_ms > 0 or self.over_cap is OverCap.DIGEST

    def priority(self, requested: str) -> Priority:
        """The lane for a request: a request may lower the class (priority "bulk"), never raise it."""
        if self.message_class is MessageClass.TRANSACTIONAL and requested != Priority.BULK:
            return Priority.TRANSACTIONAL
        return Priority.BULK

    def expiry_ms(self) -> int:
        """How long a message stays worth sending, from its acceptance."""
        if self.expires_ms:
            return self.expires_ms
        return TRANSACTIONAL_EXPIRY_MS if self.message_class is MessageClass.TRANSACTIONAL else MARKETING_EXPIRY_MS


Policies = dict[str, TemplatePolicy]
"""Template name -> policy; loaded once, shared by API, route, fan-out and workers."""

POLICY_FILE = "template.toml"
DIGEST = "digest"
"""Comes after the channel in the name of the text of many messages as one: `push.digest.en.j2`."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": HOUR_MS, "d": 24 * HOUR_MS}
_CHANNELS = ", ".join(f'"{channel}"' for channel in Channel)


class _Wrong(Exception):
    """A setting that cannot stay: which key, and what to write instead."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key
        self.text = text


def read_policies(path: Path) -> Policies:
    """The policies of all templates below a folder; folders starting with "_" or "." hold no template.

    Raises Misconfigured with every mistake of every template: file, line and what to write instead.
    """
    if not path.is_dir():
        raise Misconfigured(f"{path} is no folder; point [templates] path at the folder that holds your templates")
    policies: Policies = {}
    mistakes: list[str] = []
    for folder in sorted(child for child in path.iterdir() if child.is_dir() and child.name[0] not in "_."):
        try:
            policies[folder.name] = read_policy(folder)
        except Misconfigured as error:
            mistakes.append(str(error))
    if mistakes:
        raise Misconfigured("\n".join(mistakes))
    return policies


def read_policy(folder: Path) -> TemplatePolicy:
    """The policy of one template. Raises Misconfigured with every mistake in it, one a line."""
    file = folder / POLICY_FILE
    try:
        text = file.read_text(encoding="utf-8")
        written = tomllib.loads(text)
    except OSError as error:
        raise Misconfigured(f"{file}: cannot be read ({error.strerror}); every template needs one") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        line = _line_of_error(error, text) if isinstance(error, tomllib.TOMLDecodeError) else 1
        raise Misconfigured(f"{file}:{line}: not TOML: {error}") from error
    settings, mistakes = _settings(written)
    if not mistakes:
        mistakes += _relations(folder.name, settings)
        mistakes += [*_without_text(folder, settings), *_without_digest_text(folder, settings)]
    if mistakes:
        raise Misconfigured("\n".join(f"{file}:{_line_of(text, wrong.key)}: {wrong.text}" for wrong in mistakes))
    return TemplatePolicy(name=folder.name, **settings)


def _settings(written: Mapping[str, Any]) -> tuple[dict[str, Any], list[_Wrong]]:
    """TemplatePolicy's fields as far as they are right by themselves, and what is wrong."""
    settings: dict[str, Any] = {"message_class": MessageClass.MARKETING, "channels": ()}
    mistakes = []
    for key, value in written.items():
        try:
            if key not in _READERS:
                raise _Wrong(key, f"{key}: no such setting; there are {', '.join(_READERS)}")
            name, reader = _READERS[key]
            settings[name] = reader(key, value)
        except _Wrong as wrong:
            mistakes.append(wrong)
    return settings, mistakes


def _relations(name: str, settings: Mapping[str, Any]) -> list[_Wrong]:
    """What is wrong between settings that are right by themselves."""
    return [
        *_contradictions(name, settings["channels"], settings.get("fallback", ())),
        *_without_effect(settings),
    ]


def _contradictions(name: str, channels: tuple[Channel, ...], fallback: tuple[Channel, ...]) -> Iterator[_Wrong]:
    if not _NAME.fullmatch(name):
        yield _Wrong(
            "", f"the folder {name!r} cannot name a template; use letters, digits, '_', '-' and '.', at most 64"
        )
    if not channels and not fallback:
        yield _Wrong(
            "channels", f"channels: missing; list channels to send on all of them, or fallback, of {_CHANNELS}"
        )
    for channel in fallback:
        if channel in channels:
            yield _Wrong(
                "fallback", f'fallback: goes round in a circle: "{channel}" is in channels already; remove it here'
            )


def _without_effect(settings: Mapping[str, Any]) -> Iterator[_Wrong]:
    """What this template would never do, however it is written: its author expects otherwise."""
    is_transactional = settings["message_class"] is MessageClass.TRANSACTIONAL
    expires_ms = settings.get("expires_ms") or (TRANSACTIONAL_EXPIRY_MS if is_transactional else MARKETING_EXPIRY_MS)
    if is_transactional and isinstance(settings.get("quiet_hours"), QuietWindow):
        text = 'quiet_hours: a transactional template goes at any hour; remove it here, or write class = "marketing"'
        yield _Wrong("quiet_hours", text)
    if not is_transactional and settings.get("when_redis_is_down") is WhenRedisIsDown.SEND:
        text = 'when_redis_is_down: "send" is for transactional templates: opt-outs cannot be read; write "wait"'
        yield _Wrong("when_redis_is_down", text)
    if settings.get("on_unknown") is OnUnknown.RISK_LOSS and settings.get("when_redis_is_down") is WhenRedisIsDown.SEND:
        text = 'when_redis_is_down: "send" may repeat a call, and on_unknown = "risk_loss" forbids that; write "wait"'
        yield _Wrong("when_redis_is_down", text)
    if "fallback_after_ms" in settings and not (is_transactional and settings.get("fallback")):
        text = "fallback_after: only a transactional template with a fallback list changes over; remove it here"
        yield _Wrong("fallback_after", text)
    if is_transactional and settings.get("over_cap") is OverCap.DIGEST and not settings.get("caps"):
        text = "over_cap: a transactional template has no cap but its own; write caps = { day = 3 }, or remove it here"
        yield _Wrong("over_cap", text)
    if settings.get("digest_ms", 0) >= expires_ms:
        yield _Wrong("digest", "digest: messages would expire before they are gathered; write less than expires")


def _without_text(folder: Path, settings: Mapping[str, Any]) -> Iterator[_Wrong]:
    """In any language: those who have none in theirs get another one."""
    for key in ("channels", "fallback"):
        for channel in settings.get(key, ()):
            texts = (path.name for path in folder.glob(f"{channel}.*") if path.suffix == ".j2")
            if all(text.startswith(f"{channel}.{DIGEST}.") for text in texts):
                text = f'there is no text for "{channel}"; write {channel}.<locale>.j2 beside it, like {channel}.en.j2'
                yield _Wrong(key, f"{key}: {text}")


def _without_digest_text(folder: Path, settings: Mapping[str, Any]) -> Iterator[_Wrong]:
    """A digest has a text of its own on each channel that may bring it."""
    key = "digest" if settings.get("digest_ms") else "over_cap"
    if key == "over_cap" and settings.get("over_cap") is not OverCap.DIGEST:
        return
    for channel in (*settings["channels"], *settings.get("fallback", ())):
        if not (folder / f"{channel}.{DIGEST}.j2").exists() and not any(folder.glob(f"{channel}.{DIGEST}.*.j2")):
            text = (
                f"there is no text for many messages as one; write {channel}.{DIGEST}.<locale>.j2 beside it, which gets"
            )
            yield _Wrong(key, f"{key}: {text} items (the values of each message), count and others")


def _choice(kind: type[StrEnum]) -> Callable[[str, Any], StrEnum]:
    choices = ", ".join(f'"{word}"' for word in kind)

    def read(key: str, value: Any) -> StrEnum:
        if value not in list(kind):
            raise _Wrong(key, f"{key}: {value!r}; write one of {choices}")
        return kind(value)

    return read


def _channels(key: str, value: Any) -> tuple[Channel, ...]:
    if not isinstance(value, list) or not value or any(channel not in list(Channel) for channel in value):
        raise _Wrong(key, f"{key}: {value!r}; write a list of some of {_CHANNELS}")
    if len(set(value)) != len(value):
        raise _Wrong(key, f"{key}: a channel is listed twice; list each one once")
    return tuple(Channel(channel) for channel in value)


def _duration_ms(units: str, example: str) -> Callable[[str, Any], int]:
    """units: the letters that may be used of _UNITS_MS. example: what the author is told to write."""

    def read(key: str, value: Any) -> int:
        found = re.fullmatch(rf"([1-9][0-9]{{0,6}})([{units}])", value) if isinstance(value, str) else None
        if found is None:
            raise _Wrong(key, f"{key}: {value!r}; write {example}")
        if (length_ms := int(found[1]) * _UNITS_MS[found[2]]) > MAX_EXPIRY_MS:
            raise _Wrong(key, f'{key}: {value!r} is longer than messages are kept; write at most "21d"')
        return length_ms

    return read


def _quiet_hours(key: str, value: Any) -> QuietWindow | Literal["off"]:
    if value == OFF:
        return OFF
    example = f'write {{ from = "22:00", to = "08:00" }}, or "{OFF}" for never'
    if not isinstance(value, dict) or value.keys() != {"from", "to"}:
        raise _Wrong(key, f"{key}: {value!r}; {example}")
    begins, ends = value["from"], value["to"]
    if not all(isinstance(time, str) and _TIME_OF_DAY.fullmatch(time) for time in (begins, ends)):
        raise _Wrong(key, f"{key}: {value!r}; {example}")
    if begins == ends:
        raise _Wrong(key, f"{key}: {NO_LENGTH}; {example}")
    return QuietWindow(begins, ends)


def _caps(key: str, value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or value.keys() != {"day"} or not _is_count(value["day"]):
        raise _Wrong(key, f"{key}: {value!r}; write how many one user may get a day, like {{ day = 3 }}")
    return dict(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


_READERS: Mapping[str, tuple[str, Callable[[str, Any], Any]]] = {
    "class": ("message_class", _choice(MessageClass)),
    "channels": ("channels", _channels),
    "fallback": ("fallback", _channels),
    "expires": ("expires_ms", _duration_ms("mhd", 'minutes, hours or days like "30m", "20h" or "3d"')),
    "quiet_hours": ("quiet_hours", _quiet_hours),
    "caps": ("caps", _caps),
    "over_cap": ("over_cap", _choice(OverCap)),
    "digest": ("digest_ms", _duration_ms("smh", 'seconds, minutes or hours like "30s", "5m" or "1h"')),
    "content_check": ("content_check", _choice(ContentCheck)),
    "fallback_after": ("fallback_after_ms", _duration_ms("smh", 'seconds, minutes or hours like "30s" or "2m"')),
    "on_unknown": ("on_unknown", _choice(OnUnknown)),
    "when_redis_is_down": ("when_redis_is_down", _choice(WhenRedisIsDown)),
}
"""Key in the file -> field of TemplatePolicy and how it is read."""
KEYS = tuple(_READERS)


def _line_of(text: str, key: str) -> int:
    """The line that sets a key or opens its table; the TOML reader does not tell. 1 when nothing does."""
    name = re.escape(key)
    sets = re.compile(rf"""\s*(?:\[\s*)?(["']?){name}\1\s*[=.\]]""")
    return next((number for number, line in enumerate(text.splitlines(), 1) if key and sets.match(line)), 1)


def _line_of_error(error: tomllib.TOMLDecodeError, text: str) -> int:
    """The line that the TOML reader names in its message; the last one when it met the end."""
    found = re.search(r"line (\d+)", str(error))
    return int(found[1]) if found else len(text.splitlines())
