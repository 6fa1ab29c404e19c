"""Where the demo runs: a folder of its own, free ports, and settings as a company would write them."""

from __future__ import annotations

import base64
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.local import places, stack

TEMPLATES = Path(__file__).parent / "templates"
PUSH_PER_S = 1500
MAIL_PER_S = 1000
SMS_PER_S = 100
ANSWER_MS = 20
SERVERS = 2
"""Kafka and Redis."""

_SETTINGS = """\
[kafka]
bootstrap = "{kafka}"
[redis]
url = "{redis}"
[api]
listen = "127.0.0.1:{api_port}"
[callbacks]
listen = "127.0.0.1:{callbacks_port}"
[streams]
folder = "{folder}/tables"
[up]
logs = "{folder}/logs"
[templates]
path = "{templates}"
[channels.push]
providers = ["gateway"]
[channels.email]
providers = ["mail"]
[channels.sms]
providers = ["texter"]
[providers.gateway]
kind = "http"
url = "http://127.0.0.1:{http_port}/send"
rate_per_s = {push_per_s}
burst = 150
callback_secret = "{secret}"
[providers.texter]
kind = "http"
url = "http://127.0.0.1:{http_port}/sms"
rate_per_s = {sms_per_s}
burst = 20
callback_secret = "{secret}"
[providers.mail]
kind = "smtp"
url = "smtp://127.0.0.1:{smtp_port}"
from = "Corner Shop <news@example.org>"
rate_per_s = {mail_per_s}
burst = 100
[tenants.{tenant}]
time_zone = "Europe/Berlin"
locale = "en"
"""


@dataclass(frozen=True, slots=True)
class Place:
    """settings: the written tidings.toml. environment: what every child needs to see."""

    folder: Path
    settings: Path
    logs: Path
    api: str
    outside: str
    redis_url: str
    environment: dict[str, str]


def empty_folder(name: str) -> Path:
    """`.tidings/<name>`, without anything of an earlier run."""
    folder = places.home() / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def prepare(folder: Path, running: stack.Stack) -> Place:
    """The demo's own settings."""
    rates = {"push_per_s": PUSH_PER_S, "mail_per_s": MAIL_PER_S, "sms_per_s": SMS_PER_S}
    return written(folder, running, _SETTINGS, {"templates": TEMPLATES, **rates})


def written(folder: Path, running: stack.Stack, text: str, more: Mapping[str, object]) -> Place:
    """Chooses ports and writes these settings. On a foreign Kafka or Redis the run keeps to names of its own."""
    token = secrets.token_hex(3)
    is_ours = len(running.logs) == SERVERS
    api_port, callbacks_port, http_port, smtp_port = (places.free_port() for _ in range(4))
    settings = folder / "tidings.toml"
    settings.write_text(
        text.format(
            kafka=running.kafka_bootstrap,
            redis=running.redis_url,
            folder=folder,
            api_port=api_port,
            callbacks_port=callbacks_port,
            http_port=http_port,
            smtp_port=smtp_port,
            tenant="default" if is_ours else f"demo-{token}",
            secret=f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}",
            **more,
        )
    )
    prefix = {} if is_ours else {"TIDINGS_TOPIC_PREFIX": f"demo-{token}."}
    api, outside = f"http://127.0.0.1:{api_port}", f"http://127.0.0.1:{http_port}"
    environment = {**running.environment(), **prefix}
    return Place(folder, settings, folder / "logs", api, outside, running.redis_url, environment)
