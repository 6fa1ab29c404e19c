"""The sections of tidings.toml: names, defaults and what each value alone must look like.

`settings.py` reads them and checks how they fit together. Durations are seconds or text such as "250ms", "5m", "3d".
"""

from __future__ import annotations

import re
import zoneinfo
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from producers.callbacks import signatures
from schemas import policies

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_PREFIX = re.compile(r"[A-Za-z0-9._-]*")
_TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
SCOPES = ("send", "campaigns", "users", "read", "operate")


def _seconds(value: Any) -> Any:
    if isinstance(value, str) and (found := _TEXT.fullmatch(value.strip())):
        return float(found.group(1)) * _UNITS[found.group(2)]
    return value


def _address(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError('must be "host:port"')
    return value


def _url(value: str) -> str:
    """The value is never shown: it may hold a password."""
    try:
        urlsplit(value).port  # noqa: B018
    except ValueError:
        raise ValueError("its host or port cannot be read; write it like scheme://host:port/path") from None
    return value


def _zone(value: str) -> str:
    try:
        zoneinfo.ZoneInfo(value)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f'{value!r} is no time zone; write one like "Europe/Berlin"') from None
    return value


def _time_of_day(value: str) -> str:
    if not _TIME_OF_DAY.fullmatch(value):
        raise ValueError('is no time of day; write one from "00:00" to "23:59"')
    return value


def _address_or_none(value: str) -> str:
    return _address(value) if value else ""


def _as_list(value: Any) -> Any:
    if isinstance(value, str | SecretStr):
        return (value,) if value else ()
    return value


def _webhook_secrets(values: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    """The text of a wrong secret is never shown."""
    for value in values:
        signatures.key_of(value.get_secret_value())
    if len(values) > 2:
        raise ValueError("give one secret, or two during a rotation")
    return values


def _prefix(value: str) -> str:
    if not _PREFIX.fullmatch(value):
        raise ValueError("only ASCII letters, digits, '.', '_' and '-' can begin a topic's name")
    return value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]
Listen = Annotated[str, AfterValidator(_address)]
ListenOrNot = Annotated[str, AfterValidator(_address_or_none)]
Url = Annotated[str, AfterValidator(_url)]
Zone = Annotated[str, AfterValidator(_zone)]
WebhookSecrets = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_as_list), AfterValidator(_webhook_secrets)]
Prefix = Annotated[str, AfterValidator(_prefix)]
Share = Annotated[float, Field(gt=0, lt=1)]
TimeOfDay = Annotated[str, AfterValidator(_time_of_day)]
Price = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=6)]
Money = Annotated[Decimal, Field(gt=0, le=1_000_000_000, decimal_places=6)]
ChannelName = Literal["push", "email", "sms", "inapp"]


class Section(BaseModel):
    """Unknown names are refused: a misspelt limit must not be a missing limit. So is a yes where a number is meant,
    which would be read as 1.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        assert info.field_name is not None
        kind = cls.model_fields[info.field_name].annotation
        given = value.values() if isinstance(value, dict) and get_origin(kind) is dict else (value,)
        if kind is not bool and any(isinstance(one, bool) for one in given):
            raise ValueError("true and false are no values here")
        return value


class Kafka(Section):
    """partitions, replication_factor: what `tidings provision` makes. ca: file of the authority, for TLS."""

    bootstrap: str = "127.0.0.1:9092"
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: str = ""
    password: SecretStr = SecretStr("")
    ca: str = ""
    partitions: Literal["laptop", "production"] = "laptop"
    replication_factor: int = Field(default=1, ge=1)

    def client(self) -> dict[str, str]:
        """The librdkafka settings every client of this deployment starts from."""
        found = {"bootstrap.servers": self.bootstrap, "security.protocol": self.security_protocol}
        if "SASL" in self.security_protocol:
            found["sasl.mechanism"] = self.sasl_mechanism
            found["sasl.username"] = self.username
            found["sasl.password"] = self.password.get_secret_value()
        if self.ca:
            found["ssl.ca.location"] = self.ca
        return found


class Redis(Section):
    """rediss:// speaks TLS."""

    url: Url = Field(default="redis://127.0.0.1:6379/0", pattern=r"^(rediss?|unix)://")


class Api(Section):
    listen: Listen = "127.0.0.1:8080"

    @property
    def host(self) -> str:
        """The one it listens on; an IPv6 address without its brackets."""
        return self.listen.rpartition(":")[0].strip("[]")


class Callbacks(Section):
    listen: Listen = "127.0.0.1:8081"


class Streams(Section):
    """listen: where a status process answers reads of its rows; port 0 is chosen by the system.

    advertise: the host name or address by which the APIs reach it; without it the one of `listen`, and where that is
    every address of the machine, the machine's own.

    folder: where tables lie between starts. heartbeat_s, session_s: of the Faust consumers.
    """

    listen: Listen = "127.0.0.1:0"
    advertise: str = Field(default="", pattern=r"^[A-Za-z0-9._:-]*$")
    folder: Path = Path(".tidings/tables")
    heartbeat_s: Seconds = 3.0
    session_s: Seconds = 30.0
    commit_every_s: Seconds = 1.0


class Metrics(Section):
    """listen: where a role without a port of its own serves /metrics, /healthz and /readyz; "" = nowhere.

    Port 0 is chosen by the system; the log names it, and `metrics.json` of `tidings up`. With another port `up` gives
    it to the first such role and the following ports to the others, in the order in which it lists them.
    """

    listen: ListenOrNot = "127.0.0.1:0"


class Templates(Section):
    """path: the folder with one folder per template."""

    path: Path = Path("templates")


class Identity(Section):
    """secret: makes ids unguessable; the same in every process of a deployment, and kept for ever."""

    secret: SecretStr = SecretStr("")


class Channel(Section):
    """providers: in order; the second is the standby."""

    providers: tuple[str, ...] = ()


class Provider(Section):
    """One account at one vendor. callback_secret: one, or a list of two while the vendor changes from one to the other.

    source (`from` in the file): the sender of mail. headers: sent with every request, e.g. Authorization.
    timeout_s: the longest call, connecting included; up to half a second more where its token died in between. It ends
    a quarter of a second before sending.deadline_s at the latest.
    concurrency: calls at the same time from one worker. ca: file of the authority.
    status_url, of kind http: where `reconcile` asks what became of a message. status_per_s: how often at most, over all
    processes; without it a tenth of rate_per_s.
    prices, like `{ DE = 0.07, default = 0.05 }`: money per SMS segment, by the number's country; else per message.
    dead_tokens_most: the part of the last 200 calls that may report a dead push token; clearly more than that is taken
    for a wrong setting, and the tokens are kept. 1: never.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    kind: Literal["http", "smtp"]
    url: Url
    source: str = Field(default="", alias="from")
    rate_per_s: float = Field(gt=0)
    burst: int = Field(ge=2)
    timeout_s: Seconds = 5.0
    callback_secret: WebhookSecrets = ()
    headers: dict[str, SecretStr] = {}
    concurrency: int = Field(default=256, ge=1, le=10_000)
    require_tls: bool = False
    ca: str = ""
    status_url: Url = ""
    status_per_s: float | None = Field(default=None, gt=0)
    prices: dict[str, Price] = {}
    dead_tokens_most: float = Field(default=0.2, gt=0, le=1)


class ApiKey(Section):
    """hash: `sha256:` and the hex digest of the key."""

    hash: str = Field(pattern=r"^sha256:[0-9a-fA-F]{64}$")
    scopes: tuple[Literal["send", "campaigns", "users", "read", "operate"], ...] = Field(min_length=1)


class QuietHours(Section):
    """From and to, in each user's own zone; over midnight is the normal case."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    start: TimeOfDay = Field(alias="from")
    end: TimeOfDay = Field(alias="to")

    @model_validator(mode="after")
    def _has_length(self) -> QuietHours:
        if self.start == self.end:
            raise ValueError(f'{policies.NO_LENGTH}; write {{ from = "22:00", to = "08:00" }}, or leave it out')
        return self


class Caps(Section):
    """How many one user may get."""

    day: int = Field(ge=1)


class Tenant(Section):
    """locale, time_zone: of users who have none. weight: its part of a lane's pace among tenants.

    caps, like `{ day = 5 }`: marketing messages that a user may get a day, over all templates.
    quiet_hours, like `{ from = "22:00", to = "08:00" }`: marketing waits for their end, spread over half an hour.
    budget_per_day, like `{ sms = 250.0 }`: money for each channel and day of time_zone; beyond it marketing ends and
    transactional waits. keys: what `tidings keys create` prints.
    """

    time_zone: Zone = "UTC"
    locale: str = Field(default="en", pattern=r"^[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*$")
    weight: float = Field(default=1, gt=0)
    quiet_hours: QuietHours | None = None
    caps: Caps | None = None
    budget_per_day: dict[ChannelName, Money] = {}
    keys: tuple[ApiKey, ...] = ()


class Sending(Section):
    """The numbers of one send. lease_s: how long a claim holds; margin_s: what must be left of it after a call.

    deadline_s: the hard end of a call; of one that lasts so long nobody knows what became of it.
    bulk_share: the part of a provider's rate that bulk may use. retry_share: retries among a provider's sends.
    standby_share: what a channel's second provider gets while the first is well too.
    tries: calls of one delivery that count; retry_base_s, retry_cap_s: the longest wait after the first failure, and
    after any. in_flight: deliveries a worker handles at the same time, per lane. sms_segments_max: an SMS is never
    shortened; one that fills more segments fails.
    """

    lease_s: Seconds = 30.0
    deadline_s: Seconds = 5.0
    margin_s: Seconds = 5.0
    bulk_share: Share = 0.7
    retry_share: Share = 0.1
    standby_share: float = Field(default=0.05, ge=0, lt=0.5)
    tries: int = Field(default=8, ge=1, le=20)
    retry_base_s: Seconds = 1.0
    retry_cap_s: Seconds = 300.0
    in_flight: int = Field(default=1000, ge=1, le=20_000)
    batch: int = Field(default=200, ge=1, le=1000)
    sms_segments_max: int = Field(default=12, ge=1, le=255)

    @property
    def longest_call_s(self) -> float:
        """What a provider has at most: only one that ends before the deadline can say whether anything was sent."""
        return self.deadline_s - min(0.25, self.deadline_s / 4)


class Tiers(Section):
    """The longest real wait of each tier. The names are parts of topics' names and stay."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    ten_seconds: Seconds = Field(default=10.0, alias="10s")
    one_minute: Seconds = Field(default=60.0, alias="1m")
    ten_minutes: Seconds = Field(default=600.0, alias="10m")

    def by_name_ms(self) -> dict[str, int]:
        waits = {"10s": self.ten_seconds, "1m": self.one_minute, "10m": self.ten_minutes}
        return {name: round(wait_s * 1000) for name, wait_s in waits.items()}


class Engine(Section):
    """Of the confluent consumers: heartbeat, session and the longest pause between two polls.

    A member learns of a rebalance by its next heartbeat: frequent ones make it short. What a dead member had in hand
    waits for its session to end: for urgent_session_s where somebody waits for it (transactional lanes and requests,
    the tiers, what people want and forbid), elsewhere for session_s, which spares bulk needless rebalances.
    """

    heartbeat_s: Seconds = 1.0
    session_s: Seconds = 30.0
    urgent_session_s: Seconds = 10.0
    poll_limit_s: Seconds = 300.0


class Dispatch(Section):
    """Seconds of a lane's rate that dispatch keeps waiting in it, at least and at most."""

    backlog_min_s: Seconds = 2.0
    backlog_max_s: Seconds = 5.0
    session_s: Seconds = 10.0


class Reconcile(Section):
    """after: how long a provider that promises reports (one with a callback_secret) may be silent about a message; then
    it is asked, or the delivery becomes `unconfirmed`. Other providers are never asked, nor their deliveries marked.

    failover_on_alarm: while the delivery-rate alarm of a provider is on, the channel's next one is preferred.
    """

    after: Seconds = 3600.0
    failover_on_alarm: bool = False


class Up(Section):
    """workers: processes per lane, e.g. {"push.bulk" = 2}; every configured lane has one unless told otherwise."""

    workers: dict[str, Annotated[int, Field(ge=0, le=64)]] = {}
    logs: Path = Path(".tidings/logs")
    ready_within_s: Seconds = 90.0
