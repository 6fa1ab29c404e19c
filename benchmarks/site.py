"""One deployment of Tidings with topics of its own, on the bench's Kafka and Redis; nothing of it stays."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import redis

from benchmarks import log, programs
from benchmarks.bench import Bench
from benchmarks.programs import NotMeasured, Program
from deploy import catalogue, cost, settings
from deploy.local import places
from schemas.topics import Topics

TEMPLATES = Path(__file__).with_name("templates")
COMMAND = "deploy.cli"
ORDER, CODE = "order", "code"
BULK_SHARE = 0.7
FAST_PER_S = 100_000
"""A pace that holds nobody back."""
WEBHOOK_KEY = "whsec_YmVuY2htYXJrIGJlbmNobWFyayBiZW5jaG1hcms="
"""Of a webhook that nobody but the stand-in calls."""
_SETTINGS = """\
topic_prefix = "{prefix}"
[kafka]
bootstrap = "{kafka}"
[redis]
url = "{redis}"
[api]
listen = "127.0.0.1:{api_port}"
[callbacks]
listen = "127.0.0.1:{callbacks_port}"
[streams]
folder = "tables"
[up]
logs = "logs"
[templates]
path = "{templates}"
[channels.push]
providers = ["gateway"]
[channels.email]
providers = ["mail"]
[providers.gateway]
kind = "http"
url = "{outside.push}"
ca = "{outside.ca}"
rate_per_s = {outside.per_s}
burst = {outside.burst}
callback_secret = "{secret}"
[providers.mail]
kind = "smtp"
url = "{outside.mail}"
from = "Corner Shop <news@example.org>"
rate_per_s = {outside.per_s}
burst = {outside.burst}
"""


@dataclass(frozen=True, slots=True)
class Outside:
    """What this deployment sends to, and how fast that may be. ca: the authority of an HTTPS gateway."""

    push: str = "http://127.0.0.1:9/send"
    mail: str = "smtp://127.0.0.1:9"
    ca: str = ""
    per_s: int = FAST_PER_S

    @property
    def burst(self) -> int:
        return max(2, self.per_s // 10)


@dataclass(frozen=True, slots=True)
class Site:
    """Where it is. callbacks: where providers report to."""

    folder: Path
    config: Path
    settings: settings.Settings
    topics: Topics
    servers: dict[str, int | None]

    @property
    def kafka(self) -> str:
        return self.settings.kafka.bootstrap

    @property
    def redis_url(self) -> str:
        return self.settings.redis.url

    @property
    def api(self) -> str:
        return f"http://{self.settings.api.listen}"

    @contextlib.asynccontextmanager
    async def running(self, *words: str) -> AsyncIterator[Program]:
        """`tidings <words>` at work."""
        name = "-".join(word for word in words if not word.startswith("-"))
        command = (COMMAND, *words, "--config", str(self.config))
        async with programs.running(name.partition("{")[0], command, self.folder) as program:
            yield program

    def role(self, name: str) -> int:
        """The process of one role of `tidings up`."""
        return int(json.loads((self.folder / "logs" / "processes.json").read_text())[name])

    def roles_meter(self, **others: int) -> cost.Meter:
        """Of every process of `tidings up`, of Kafka, Redis and others."""
        found: dict[str, int] = json.loads((self.folder / "logs" / "processes.json").read_text())
        return cost.Meter({**found, **others, **self.servers})

    def meter(self, **others: int) -> cost.Meter:
        """Of Kafka, Redis and others."""
        return cost.Meter({**others, **self.servers})


@contextlib.asynccontextmanager
async def opened(bench: Bench, outside: Outside, campaigns: int = 1) -> AsyncIterator[Site]:
    """Topics made, Redis's database emptied; both are gone on the way out. No role runs yet. campaigns: to the same
    people; each has a template of its own, or the second would be held as a look-alike of the first.
    """
    token = secrets.token_hex(3)
    folder = bench.folder / f"site-{token}"
    write_templates(folder / "templates", campaigns)
    api_port, callbacks_port = _ports()
    config = folder / "tidings.toml"
    config.write_text(
        _SETTINGS.format(
            prefix=f"bench-{token}.",
            kafka=bench.stack.kafka_bootstrap,
            redis=bench.stack.redis_url,
            api_port=api_port,
            callbacks_port=callbacks_port,
            templates=folder / "templates",
            outside=outside,
            secret=WEBHOOK_KEY,
        )
    )
    chosen = settings.load(config, {})
    await asyncio.to_thread(_empty, chosen.redis.url)
    try:
        await catalogue.provision(chosen, apply=True)
        yield Site(folder, config, chosen, catalogue.topics_of(chosen), bench.servers())
    finally:
        await asyncio.to_thread(log.remove_topics, chosen.kafka.bootstrap, chosen.topic_prefix)
        await asyncio.to_thread(_empty, chosen.redis.url)


def order(campaign: int) -> str:
    """The template of one of the campaigns that the same people get."""
    return f"{ORDER}-{campaign}"


def write_templates(folder: Path, campaigns: int) -> None:
    """Of the codes, and of so many campaigns."""
    shutil.copytree(TEMPLATES / CODE, folder / CODE)
    for campaign in range(campaigns):
        shutil.copytree(TEMPLATES / ORDER, folder / order(campaign))


def check_empty(url: str) -> None:
    """Raises NotMeasured for a database that holds something: each run begins by emptying it."""
    with redis.Redis.from_url(url) as client:
        if count := client.dbsize():
            raise NotMeasured(f"the database of REDIS_URL holds {count} keys; name one that the bench may empty")


def _empty(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.flushdb()


def _ports() -> tuple[int, int]:
    first = places.free_port()
    while (second := places.free_port()) == first:
        pass
    return first, second
