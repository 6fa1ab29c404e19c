"""The installed command as a user runs it: `tidings up` and `tidings simulate` on real Kafka and Redis.

`conftest.py` starts one for the whole run; `world.py` is how tests speak to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import redis
from confluent_kafka.admin import AdminClient

from deploy import children, ready
from deploy.local import places
from schemas.topics import Topics

SETTINGS = "tidings.toml"
COMMAND = Path(sys.executable).with_name("tidings")
READY_WITHIN_S = 240
BROKER_TIMEOUT_S = 30
PUSH_PER_S, PUSH_BURST = 600, 60
"""So slow that a campaign of some hundreds lasts long enough to do something in its middle."""
SMS_PER_S, SMS_BURST = 100, 20
LEASE_S = 6
OTHER_DATABASES = (12, 13)
"""For deployments beside the shared one, which no other test uses."""
SECRET = "whsec_YWNjZXB0YW5jZSBhY2NlcHRhbmNlIGFjY2VwdA=="
QUICK = """
topic_prefix = "{prefix}"
[kafka]
bootstrap = "{kafka}"
[redis]
url = "{redis}"
[api]
listen = "127.0.0.1:{api}"
[callbacks]
listen = "127.0.0.1:{callbacks}"
[streams]
folder = "tables"
heartbeat_s = 1.5
session_s = 6
[engine]
heartbeat_s = 1.5
session_s = 6
urgent_session_s = 6
poll_limit_s = 60
[dispatch]
session_s = 6
[sending]
lease_s = {lease_s}
deadline_s = 3
margin_s = 2
[up]
logs = "logs"
ready_within_s = 200
workers = {{ "push.bulk" = 2, "sms.bulk" = 2 }}
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
url = "http://127.0.0.1:{http}/send"
rate_per_s = {push_per_s}
burst = {push_burst}
timeout_s = 2
callback_secret = "{secret}"
[providers.texter]
kind = "http"
url = "http://127.0.0.1:{http}/sms"
rate_per_s = {sms_per_s}
burst = {sms_burst}
timeout_s = 2
callback_secret = "{secret}"
[providers.mail]
kind = "smtp"
url = "smtp://127.0.0.1:{smtp}"
from = "Corner Shop <news@example.org>"
rate_per_s = 500
burst = 50
timeout_s = 2
"""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where its doors are. api, callbacks, outside: base URLs; outside is the simulators' ledger."""

    folder: Path
    logs: Path
    api: str
    callbacks: str
    outside: str
    kafka: str
    redis_url: str
    topics: Topics

    def pid(self, role: str) -> int | None:
        """The process of this role now; None while it is being started again."""
        found = json.loads((self.logs / "processes.json").read_text()).get(role)
        return None if found is None else int(found)

    def complaints(self) -> Iterator[tuple[str, str]]:
        """(log, its last lines) of the supervisor and of every role that warned or worse."""
        for log in (self.folder / "up.log", *sorted(self.logs.glob("*.log"))):
            lines = [line for line in places.tail(log, 1_000).splitlines() if '"info"' not in line]
            if lines:
                yield log.name, "\n".join(lines[-8:])


@contextlib.contextmanager
def running(folder: Path, kafka: str, redis_url: str, templates: Path) -> Iterator[Deployment]:
    """A whole deployment with a topic prefix of its own, ready; everything it made is removed on the way out."""
    limits = {"push_per_s": PUSH_PER_S, "push_burst": PUSH_BURST, "sms_per_s": SMS_PER_S, "sms_burst": SMS_BURST}
    with outside(folder, kafka, redis_url, templates, QUICK, lease_s=LEASE_S, **limits) as found, up(found):
        yield found


@contextlib.contextmanager
def outside(
    folder: Path, kafka: str, redis_url: str, templates: Path, settings: str, **given: object
) -> Iterator[Deployment]:
    """The file of settings made from this text, and its simulators; `up` starts the roles."""
    prefix = f"acc-{secrets.token_hex(3)}."
    ports = dict(zip(("api", "callbacks", "http", "smtp"), free_ports(4), strict=True))
    places_ = {"prefix": prefix, "kafka": kafka, "redis": redis_url, "templates": templates, "secret": SECRET}
    (folder / SETTINGS).write_text(settings.format(**places_, **ports, **given))
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    with (
        emptied(redis_url),
        removed_topics(kafka, prefix),
        program(folder, ("simulate", "--config", str(folder / SETTINGS))),
    ):
        yield Deployment(
            folder, folder / "logs", urls["api"], urls["callbacks"], urls["http"], kafka, redis_url, Topics(prefix)
        )


def up(deployment: Deployment) -> contextlib.AbstractContextManager[None]:
    """Every role, as the file of settings says now."""
    return program(deployment.folder, ("up", "--config", str(deployment.folder / SETTINGS)))


@contextlib.contextmanager
def program(
    folder: Path,
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = (str(COMMAND),),
) -> Iterator[None]:
    """`tidings <words>`, ready to work; ended with SIGTERM on the way out, which must be a clean end."""
    log = folder / f"{words[0]}.log"
    hear, tell = os.pipe()
    variables = {name: value for name, value in os.environ.items() if name not in ("KAFKA_BOOTSTRAP", "REDIS_URL")}
    with log.open("ab") as output:
        child = subprocess.Popen(
            [*command, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**variables, **(environment or {}), ready.VARIABLE: str(tell)},
            pass_fds=(tell,),
            start_new_session=True,
            preexec_fn=children.end_with_parent(),
        )
    os.close(tell)
    try:
        heard = select.select([hear], [], [], READY_WITHIN_S)[0] and os.read(hear, 1)
        assert heard, f"`tidings {words[0]}` did not come up:\n{places.tail(log)}"
        yield
    finally:
        os.close(hear)
        code = children.stop(child, timeout_s=60)
    assert code == 0, f"`tidings {words[0]}` ended with {code}:\n{places.tail(log)}"


@contextlib.contextmanager
def emptied(redis_url: str) -> Iterator[None]:
    """Nothing of an earlier run is in this database, and nothing of this run stays."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
        try:
            yield
        finally:
            client.flushdb()


@contextlib.contextmanager
def removed_topics(kafka: str, prefix: str) -> Iterator[None]:
    """Every topic that begins with the prefix is deleted on the way out."""
    try:
        yield
    finally:
        admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
        names = [name for name in admin.list_topics(timeout=BROKER_TIMEOUT_S).topics if name.startswith(prefix)]
        for deleted in admin.delete_topics(names).values() if names else ():
            deleted.result(timeout=BROKER_TIMEOUT_S)


def database(redis_url: str, number: int) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(redis_url)._replace(path=f"/{number}"))


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on."""
    found: set[int] = set()
    while len(found) < count:
        found.add(places.free_port())
    return list(found)
