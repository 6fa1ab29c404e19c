"""`tidings local up|down`: Kafka and Redis to develop against, kept running by a process in the background."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from deploy.local import places, stack
from schemas.errors import Misconfigured

START_TIMEOUT_S = 1200
"""The first start may install Java and fetch Kafka."""


def folder() -> Path:
    return places.home() / "local"


def up() -> stack.Stack:
    """Starts the stack unless it runs; where it answers. Raises Misconfigured with the keeper's own words."""
    folder().mkdir(exist_ok=True)
    running = where()
    if running is not None:
        return running
    read, write = os.pipe()
    keeper = subprocess.Popen(
        [sys.executable, "-m", "deploy.cli", "local", "keep", "--tell", str(write)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(write,),
        start_new_session=True,
    )
    os.close(write)
    with open(read, "rb") as told:
        told.read(1)  # one byte when it answers, the end of the pipe when the keeper ended
    running = where()
    if running is None:
        _, words = keeper.communicate(timeout=30)
        raise Misconfigured(words.decode(errors="replace").strip() or "the local stack did not start")
    return running


def keep(tell: int, environ: Mapping[str, str]) -> None:
    """The process in the background: holds the lock, starts both servers, waits for SIGTERM."""
    told_to_stop = {signal.SIGTERM, signal.SIGINT}
    with _lock_held(), stack.running(folder(), environ, usual_ports=True) as running:
        signal.pthread_sigmask(signal.SIG_BLOCK, told_to_stop)
        state = {"pid": os.getpid(), **running.environment()}
        unfinished = folder() / "stack.json.part"
        unfinished.write_text(json.dumps(state))
        unfinished.replace(folder() / "stack.json")
        os.write(tell, b"1")
        os.close(tell)
        sys.stderr.close()
        signal.sigwait(told_to_stop)


def taken(running: stack.Stack, environ: Mapping[str, str]) -> list[str]:
    """A sentence for each server of ours that found its usual port taken: tidings.toml may name whoever took it."""
    servers = (
        ("Kafka", "KAFKA_BOOTSTRAP", stack.KAFKA_PORT, running.kafka_bootstrap),
        ("Redis", "REDIS_URL", stack.REDIS_PORT, urlsplit(running.redis_url).netloc),
    )
    return [
        f"port {port} was taken, so this {name} answers at {address}; paste its export, which wins over tidings.toml"
        for name, variable, port, address in servers
        if not environ.get(variable) and not address.endswith(f":{port}")
    ]


def down() -> bool:
    """Stops the stack and waits for its end; False when none ran."""
    if where() is None:
        return False
    os.kill(int(_state()["pid"]), signal.SIGTERM)
    with places.only_one(folder() / "lock"):
        (folder() / "stack.json").unlink(missing_ok=True)
    return True


def where() -> stack.Stack | None:
    """Where the running stack answers; None when none runs. The lock tells: a process id may be another's by now."""
    with (folder() / "lock").open("a") if folder().is_dir() else contextlib.nullcontext() as handle:
        if handle is None:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            state = _state()
            return stack.Stack(state["KAFKA_BOOTSTRAP"], state["REDIS_URL"]) if state else None
        return None


def _state() -> dict[str, str]:
    try:
        state: dict[str, str] = json.loads((folder() / "stack.json").read_text())
    except (OSError, ValueError):
        return {}
    return state


@contextlib.contextmanager
def _lock_held() -> Iterator[None]:
    with (folder() / "lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Misconfigured("the local stack is starting or stopping just now; try again") from None
        (folder() / "stack.json").unlink(missing_ok=True)
        yield
