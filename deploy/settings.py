"""The only reader of tidings.toml and of the environment. Every process gets its numbers from here, checked together.

The environment wins over the file: KAFKA_BOOTSTRAP, REDIS_URL, TIDINGS_TOPIC_PREFIX, and any setting as
TIDINGS_<SECTION>__<NAME>, e.g. TIDINGS_KAFKA__PASSWORD; lists and tables there are JSON. Sections: `sections.py`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import ssl
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, get_args

from pydantic import BaseModel, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from deploy import budgets, sections
from deploy.origins import PREFIX, SHORT_NAMES, WITHIN, Origins
from schemas.errors import Misconfigured
from schemas.policies import QuietWindow
from schemas.quiet_hours import QuietHours

log = logging.getLogger(__name__)

DEFAULT_TENANT = "default"
EXAMPLE_SECRET = "32 random characters, kept for ever"  # noqa: S105 the README's, known to everybody
PRIORITIES = ("transactional", "bulk")
WRITE_YOUR_OWN = "everybody knows it; write another one (openssl rand -hex 16) while nobody keeps an id made with it"
LONGEST_SILENCE_S = 7 * 86_400.0
"""Rows and states are kept for 30 days; a silence must end well before."""
LONGEST_TIER_S = 3600.0
"""A delivery that is a day old is not sent any more: it must not lie in a tier for long."""
NEEDS_PROVIDER = ("push", "email", "sms")
_FITS = {"smtp": ("email",), "http": NEEDS_PROVIDER}
_IN_OUR_WORDS = {
    "missing": "is missing",
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "tuple_type": "must be a list, in [ ]",
}
_EXAMPLES = {
    "quiet_hours": '{ from = "22:00", to = "08:00" }',
    "caps": "{ day = 3 }",
    "budget_per_day": "{ sms = 250.0 }",
    "prices": "{ DE = 0.07, default = 0.05 }",
    "workers": '{ "push.bulk" = 2 }',
}
"""Tables whose inside nobody guesses."""
_NO_JSON = """must be JSON: a list like '["gateway"]', or a table like '{"push.bulk": 2}'"""


class Settings(BaseSettings):
    """One deployment. Paths are absolute once loaded: relative ones start at the file's folder."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix=PREFIX, env_nested_delimiter=WITHIN, env_ignore_empty=True
    )

    kafka: sections.Kafka = sections.Kafka()
    redis: sections.Redis = sections.Redis()
    api: sections.Api = sections.Api()
    callbacks: sections.Callbacks = sections.Callbacks()
    streams: sections.Streams = sections.Streams()
    metrics: sections.Metrics = sections.Metrics()
    templates: sections.Templates = sections.Templates()
    id: sections.Identity = sections.Identity()
    channels: dict[sections.ChannelName, sections.Channel] = {}
    providers: dict[str, sections.Provider] = {}
    tenants: dict[str, sections.Tenant] = Field(default_factory=lambda: {DEFAULT_TENANT: sections.Tenant()})
    sending: sections.Sending = sections.Sending()
    tiers: sections.Tiers = sections.Tiers()
    engine: sections.Engine = sections.Engine()
    dispatch: sections.Dispatch = sections.Dispatch()
    reconcile: sections.Reconcile = sections.Reconcile()
    up: sections.Up = sections.Up()
    topic_prefix: sections.Prefix = ""
    region: str = Field(default="", max_length=32)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file, which arrives as keyword arguments."""
        return env_settings, init_settings

    def lanes(self) -> tuple[tuple[str, str], ...]:
        """(channel, priority) of every lane that can be worked: channels with a provider, and the inbox."""
        served = [channel for channel, used in self.channels.items() if used.providers]
        return tuple((channel, priority) for channel in (*served, "inapp") for priority in PRIORITIES)

    def quiet_hours(self) -> QuietHours:
        """When people must be left alone, for those who plan and for those who send."""
        quiet = {name: tenant.quiet_hours for name, tenant in self.tenants.items()}
        windows = {name: QuietWindow(hours.start, hours.end) for name, hours in quiet.items() if hours is not None}
        return QuietHours(windows, {name: tenant.time_zone for name, tenant in self.tenants.items()})

    def id_secret(self, cluster_id: str) -> bytes:
        """What makes ids unguessable; without `[id] secret` it follows from the Kafka cluster: easy to know."""
        given = self.id.secret.get_secret_value()
        if given:
            return given.encode()
        log.warning("settings.id_secret_derived", extra={"advice": "set [id] secret to 32 random characters"})
        return hashlib.sha256(f"tidings id secret {cluster_id}".encode()).digest()


def load(file: Path | None, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of this deployment. Raises Misconfigured that names file, line or variable, and what to change.

    Without a file everything comes from the environment and the defaults.
    """
    text = _read(file)
    values, origins = _parse(file, text), Origins(file, text, environ)
    for variable, (section, name) in SHORT_NAMES.items():
        if environ.get(variable) and isinstance(values.setdefault(section, {}), dict):  # else refused below
            values[section][name] = environ[variable]
    if unknown := list(_unknown_variables(environ)):
        raise Misconfigured("\n".join(f"{one}: unknown setting; there are {', '.join(_names(()))}" for one in unknown))
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise Misconfigured("\n".join(_explain(error, origins))) from None
    except SettingsError:
        raise Misconfigured("\n".join(f"{one}: {_NO_JSON}" for one in _unread_variables(environ))) from None
    settings = _with_absolute_paths(settings, file.parent.resolve() if file else Path.cwd())
    problems = list(_misfits(settings))
    if problems:
        raise Misconfigured("\n".join(f"{origins.told(path)}{what}" for path, what in problems))
    return settings


def _read(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{file} cannot be read: {error}") from None


def _parse(file: Path | None, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"{file} is not TOML: {error}") from None


def _unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Those that name a section there is not: nobody would miss them. Within a section pydantic refuses them.

    Without `__` a name may be somebody else's: Kubernetes gives every pod TIDINGS_API_PORT for a service tidings-api.
    """
    sections_of = Settings.model_fields.keys() - {"topic_prefix", "region"}
    for variable in environ:
        section, within, _ = variable.upper().removeprefix(PREFIX).partition(WITHIN)
        if variable.upper().startswith(PREFIX) and within and section.lower() not in sections_of:
            yield variable


def _unread_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Those whose text is not the JSON it should be; pydantic itself names only their section."""
    source = EnvSettingsSource(Settings)
    for variable, value in environ.items():
        source.env_vars = {variable.lower(): value}
        try:
            source()
        except SettingsError:
            yield variable


def _with_absolute_paths(settings: Settings, base: Path) -> Settings:
    kafka, providers = settings.kafka, settings.providers
    changed = {
        "kafka": kafka.model_copy(update={"ca": _absolute(base, kafka.ca)}),
        "providers": {
            name: given.model_copy(update={"ca": _absolute(base, given.ca)}) for name, given in providers.items()
        },
        "templates": settings.templates.model_copy(update={"path": base / settings.templates.path}),
        "streams": settings.streams.model_copy(update={"folder": base / settings.streams.folder}),
        "up": settings.up.model_copy(update={"logs": base / settings.up.logs}),
    }
    return settings.model_copy(update=changed)


def _absolute(base: Path, file: str) -> str:
    return str(base / file) if file else ""


def _explain(error: ValidationError, origins: Origins) -> Iterator[str]:
    """One line for each wrong value; the value itself is never shown, it may be a secret."""
    for wrong in error.errors(include_input=False, include_url=False):
        path = tuple(str(part) for part in wrong["loc"] if part != "[key]")
        yield f"{origins.told(path)}{'.'.join(path)}: {_told(wrong['type'], wrong['msg'], path)}"


def _told(kind: str, message: str, path: tuple[str, ...]) -> str:
    """What is wrong, and what to write instead."""
    if kind == "extra_forbidden":
        return f"unknown setting; there are {', '.join(_names(path[:-1]))}"
    what = _IN_OUR_WORDS.get(kind, message.removeprefix("Value error, "))
    example = next((f"{name} = {_EXAMPLES[name]}" for name in path if name in _EXAMPLES), "")
    return what if "; write" in what or not example else f"{what}; write it like {example}"


def _names(path: tuple[str, ...]) -> tuple[str, ...]:
    """The settings of a section, as they are written in the file."""
    kind: Any = Settings
    for part in path:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = {field.alias or name: field.annotation for name, field in kind.model_fields.items()}[part]
            kind = get_args(kind)[0] if isinstance(kind, UnionType) else kind
        else:
            kind = next(one for one in reversed(get_args(kind)) if one is not Ellipsis)
    return tuple(field.alias or name for name, field in kind.model_fields.items())


def _misfits(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """(path of the setting, what is wrong) for numbers and names that do not fit each other."""
    yield from _wrong_times(settings)
    yield from _wrong_providers(settings)
    yield from budgets.misfits(settings.channels, settings.providers, settings.tenants)
    yield from _wrong_security(settings)
    yield from _wrong_authorities(settings)
    for lane in settings.up.workers:
        if lane.partition(".")[0] not in ("push", "email", "sms", "inapp") or lane.partition(".")[2] not in PRIORITIES:
            yield ("up", "workers"), f'up.workers: {lane!r} is no lane; write one like "push.bulk"'


def _wrong_times(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    sending, engine, tiers, dispatch = settings.sending, settings.engine, settings.tiers, settings.dispatch
    if sending.deadline_s >= sending.lease_s - sending.margin_s:
        text = f"sending.deadline_s ({sending.deadline_s:g}) must be below lease_s - margin_s"
        yield ("sending", "deadline_s"), f"{text} ({sending.lease_s:g} - {sending.margin_s:g})"
    if engine.poll_limit_s <= sending.lease_s:
        text = f"engine.poll_limit_s ({engine.poll_limit_s:g}) must be above sending.lease_s ({sending.lease_s:g})"
        yield ("engine", "poll_limit_s"), text
    sessions = (
        ("engine", "session_s", engine.session_s, engine.heartbeat_s),
        ("engine", "urgent_session_s", engine.urgent_session_s, engine.heartbeat_s),
        ("streams", "session_s", settings.streams.session_s, settings.streams.heartbeat_s),
    )
    for section, name, session_s, heartbeat_s in sessions:
        if heartbeat_s * 3 > session_s:
            yield (section, name), f"{section}.{name} must be at least three times heartbeat_s"
        if section == "engine" and session_s > engine.poll_limit_s:
            yield (section, name), f"engine.{name} must not be above engine.poll_limit_s"
    if not tiers.ten_seconds < tiers.one_minute < tiers.ten_minutes:
        yield ("tiers",), "tiers: the waits must rise from 10s over 1m to 10m"
    if tiers.ten_minutes > LONGEST_TIER_S:
        yield ("tiers", "10m"), f"tiers.10m ({tiers.ten_minutes:g}) must not be above {LONGEST_TIER_S:g}, an hour"
    if dispatch.backlog_min_s >= dispatch.backlog_max_s:
        yield ("dispatch", "backlog_max_s"), "dispatch.backlog_max_s must be above backlog_min_s"
    if settings.reconcile.after > LONGEST_SILENCE_S:
        text = f"reconcile.after ({settings.reconcile.after:g}) must not be above {LONGEST_SILENCE_S:g}, a week"
        yield ("reconcile", "after"), text
    if sending.retry_base_s > sending.retry_cap_s:
        yield ("sending", "retry_cap_s"), "sending.retry_cap_s must not be below retry_base_s"


def _wrong_providers(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    for channel, used in settings.channels.items():
        path = ("channels", channel, "providers")
        for name in used.providers:
            provider = settings.providers.get(name)
            if used.providers.count(name) > 1:
                text = f"{name} is listed twice; the standby is another provider, with a section of its own"
                yield path, f"channels.{channel}.providers: {text}"
                break
            if channel == "inapp":
                yield path, "channels.inapp.providers: the inbox is Tidings' own, it needs no provider"
            elif provider is None:
                yield path, f"channels.{channel}.providers: there is no [providers.{name}]"
            elif channel not in _FITS[provider.kind]:
                yield (
                    path,
                    f"channels.{channel}.providers: {name} is of kind {provider.kind}, which carries no {channel}",
                )
    for name, provider in settings.providers.items():
        for key, what in _wrong_provider(provider, settings.sending.deadline_s):
            yield ("providers", name, key), f"providers.{name}.{key}: {what}"


def _wrong_provider(provider: sections.Provider, deadline_s: float) -> Iterator[tuple[str, str]]:
    if provider.timeout_s > deadline_s:
        yield "timeout_s", f"must not be above sending.deadline_s ({deadline_s:g})"
    schemes = {"http": ("http://", "https://"), "smtp": ("smtp://", "smtps://")}[provider.kind]
    if not provider.url.startswith(schemes):
        yield "url", f"must begin with {' or '.join(schemes)}"
    if provider.status_url:
        yield from _wrong_status_url(provider)
    elif provider.status_per_s is not None:
        yield "status_per_s", "there is no status_url to ask; write one, or leave this out"
    if provider.kind == "smtp" and "@" not in provider.source:
        yield "from", 'mail needs a sender, like "Shop <news@example.org>"'


def _wrong_status_url(provider: sections.Provider) -> Iterator[tuple[str, str]]:
    if provider.kind != "http":
        yield "status_url", f"a provider of kind {provider.kind} cannot be asked; leave it out"
    elif not provider.status_url.startswith(("http://", "https://")):
        yield "status_url", "must begin with http:// or https://"
    elif not provider.callback_secret:
        text = "nobody is asked about messages of which no report is promised; add callback_secret, or leave it out"
        yield "status_url", text


def _wrong_security(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    kafka, tenants = settings.kafka, settings.tenants
    if "SASL" in kafka.security_protocol and not (kafka.username and kafka.password.get_secret_value()):
        yield ("kafka", "security_protocol"), "kafka: SASL needs username and password"
    if not tenants:
        yield ("tenants",), "tenants: leave the section out, or name at least one tenant"
    for name in tenants:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", name):
            yield ("tenants", name), f"tenants.{name}: use 1 to 32 lower-case letters, digits, '_' and '-'"
    yield from _repeated_keys(tenants)
    host = settings.api.host
    if host not in ("127.0.0.1", "::1", "localhost") and not any(tenant.keys for tenant in tenants.values()):
        text = f"api.listen: {host} can be reached by other machines, but no API key is configured: "
        yield ("api", "listen"), text + "add one (`tidings keys create`) or listen on 127.0.0.1"


def _repeated_keys(tenants: Mapping[str, sections.Tenant]) -> Iterator[tuple[tuple[str, ...], str]]:
    """A key acts for one tenant, with one set of scopes: of two that are equal only the last would hold."""
    places: dict[str, str] = {}
    for name, tenant in tenants.items():
        for number, key in enumerate(tenant.keys):
            place = f"tenants.{name}.keys.{number}"
            first = places.setdefault(key.hash.lower(), place)
            if first != place:
                text = f"{place}.hash: is the hash of {first}, too: one of them would be ignored; "
                yield ("tenants", name, "keys"), text + "leave one out, or make another key (`tidings keys create`)"


def _wrong_authorities(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every process would stumble over that of the broker; a provider's may lie only where somebody calls it."""
    named: dict[tuple[str, ...], str] = {("kafka", "ca"): settings.kafka.ca}
    there = {name: given.ca for name, given in settings.providers.items() if Path(given.ca).exists()}
    named |= {("providers", name, "ca"): ca for name, ca in there.items()}
    for path, ca in named.items():
        if ca and not Path(ca).is_dir() and (why := wrong_authority(ca)):
            yield path, f"{'.'.join(path)}: {ca} {why}"


def wrong_authority(file: str) -> str:
    """Why nobody's certificate can be checked by this file; "" when it can."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except OSError as error:
        return "holds no certificate" if isinstance(error, ssl.SSLError) else f"cannot be read: {error.strerror}"
    return ""
