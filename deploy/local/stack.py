"""The local stack: what the environment names is used, the rest is started here and ends with this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy import children
from deploy.local import jars, kafka, redis, tools

KAFKA_PORT = 9092
REDIS_PORT = 6379


@dataclass(frozen=True, slots=True)
class Stack:
    """Where Kafka and Redis answer. logs: files of what was started here."""

    kafka_bootstrap: str
    redis_url: str
    logs: tuple[Path, ...] = ()

    def environment(self) -> dict[str, str]:
        """The variables that point every Tidings process at this stack."""
        return {"KAFKA_BOOTSTRAP": self.kafka_bootstrap, "REDIS_URL": self.redis_url}


@contextlib.contextmanager
def running(folder: Path, environ: Mapping[str, str], usual_ports: bool = False) -> Iterator[Stack]:
    """Kafka and Redis, answering; stopped on the way out. Data and logs stay in `folder`.

    KAFKA_BOOTSTRAP and REDIS_URL in `environ` replace them. usual_ports: 9092 and 6379 where they are free.
    Raises Misconfigured when a program is missing or does not come up.
    """
    with contextlib.ExitStack() as ending:
        bootstrap, url = environ.get("KAFKA_BOOTSTRAP", ""), environ.get("REDIS_URL", "")
        logs: tuple[Path, ...] = ()
        _ensure_programs(need_kafka=not bootstrap, need_redis=not url)
        if not url:
            url, log = _start_redis(ending, folder / "redis", REDIS_PORT if usual_ports else 0)
            logs += (log,)
        if not bootstrap:
            bootstrap, log = _start_kafka(ending, folder / "kafka", KAFKA_PORT if usual_ports else 0)
            logs += (log,)
        yield Stack(bootstrap, url, logs)


def _ensure_programs(need_kafka: bool, need_redis: bool) -> None:
    tools.ensure(tools.Need(java=need_kafka, maven=need_kafka and jars.cached() is None, redis=need_redis))


def _start_kafka(ending: contextlib.ExitStack, folder: Path, port: int) -> tuple[str, Path]:
    broker = kafka.start(tools.java() or "java", jars.fetch(), folder, preferred_port=port)
    ending.callback(children.stop, broker.child)
    return broker.bootstrap, broker.log


def _start_redis(ending: contextlib.ExitStack, folder: Path, port: int) -> tuple[str, Path]:
    server = redis.start(tools.redis_server() or "redis-server", folder, preferred_port=port)
    ending.callback(children.stop, server.child)
    return server.url, server.log
