"""One Redis as a child process: append-only file, nothing evicted."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import redis

from deploy import children
from deploy.local import places
from schemas.errors import Misconfigured

START_TIMEOUT_S = 30.0
_RECHECK_S = 0.05


@dataclass(frozen=True, slots=True)
class Server:
    """A running Redis. log: what it printed."""

    child: subprocess.Popen[bytes]
    url: str
    log: Path


def start(program: str, folder: Path, preferred_port: int = 0) -> Server:
    """A server whose data live in `folder`, answering when this returns.

    Raises Misconfigured with the end of its log when it does not come up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = places.free_port(preferred_port)
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    command += ["--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"]
    log = folder / "redis.log"
    server = Server(children.spawn(command, log), f"redis://127.0.0.1:{port}/0", log)
    _await_answer(server)
    return server


def _await_answer(server: Server) -> None:
    ends = time.monotonic() + START_TIMEOUT_S
    with redis.Redis.from_url(server.url) as client:
        while time.monotonic() < ends:
            try:
                client.ping()
                return
            except redis.RedisError:  # refused, or still loading its file
                if children.ended_within(server.child, _RECHECK_S):
                    break
    children.stop(server.child)
    raise Misconfigured(f"Redis did not start; the end of {server.log}:\n{places.tail(server.log)}")
