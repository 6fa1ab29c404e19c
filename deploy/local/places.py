"""Where the local stack keeps its things: one ignored folder of the checkout, or of the current directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[2]
_LISTENERS = range(20_000, 32_000)
_TAIL_BYTES = 64 << 10
_LINE_BYTES = 1 << 10


def home() -> Path:
    """`.tidings` of the checkout this file lives in; of the current directory when installed elsewhere."""
    base = _CHECKOUT if (_CHECKOUT / "pyproject.toml").exists() else Path.cwd()
    folder = base / ".tidings"
    folder.mkdir(exist_ok=True)
    return folder


def kafka_pom() -> Path:
    """The pinned list of Kafka's jars."""
    return Path(__file__).resolve().parents[1] / "kafka" / "pom.xml"


def free_port(preferred: int = 0) -> int:
    """A port nobody listens on: the preferred one when it is free.

    Else below those that the system gives to outgoing connections: one of these could take it before it is bound.
    """
    for port in (preferred or secrets.choice(_LISTENERS), *secrets.SystemRandom().sample(_LISTENERS, 100)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise OSError("no free port on 127.0.0.1")


@contextlib.contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Holds the file's lock; waits while another process holds it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def tail(log: Path, lines: int = 30) -> str:
    """The last lines of a log, of which a very long one may lack its beginning; "" when there is none.

    Costs the same however long the log is.
    """
    if not log.exists():
        return ""
    with log.open("rb") as text:
        begin = text.seek(0, os.SEEK_END) - max(_TAIL_BYTES, lines * _LINE_BYTES)
        text.seek(max(0, begin))
        return "\n".join(text.read().decode(errors="replace").splitlines()[-lines:])
