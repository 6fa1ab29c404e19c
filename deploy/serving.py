"""Opens a role's HTTP port and serves an application on it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from deploy import ready
from schemas.errors import Misconfigured

EVERY_ADDRESS = ("0.0.0.0", "::")

log = logging.getLogger(__name__)
_http = logging.getLogger(f"{__name__}.http")
"""What the server itself has to say."""


async def serve(app: web.Application, listen: str, setting: str) -> None:
    """Serves the application until the process is told to stop. setting: what says where, like `[api] listen`."""
    with bound(listen, setting) as door:
        async with serving(app, door):
            ready.tell(f"{url_of(door)}/metrics")
            await asyncio.Event().wait()


@contextmanager
def bound(listen: str, setting: str) -> Iterator[socket.socket]:
    """The listening socket of "host:port" (port 0: any free one). Raises Misconfigured when it is taken.

    setting: what says where, for whoever has to change it.
    """
    host, _, port = listen.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((host.strip("[]"), int(port)))
        except OSError as error:
            why = f"cannot listen on {listen}: {error.strerror}; free it or change {setting}"
            raise Misconfigured(why) from None
        yield door


def url_of(door: socket.socket, advertise: str = "") -> str:
    """Where others on the network reach the socket: at the host of `advertise`, else at the one it listens on.

    Every address of the machine is no address to go to: then at the machine's own.
    """
    host, port = door.getsockname()[:2]
    host = advertise or (_own_host() if host in EVERY_ADDRESS else host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _own_host() -> str:
    """The address of this machine's name; the name itself where it stands for the loopback only."""
    name = os.uname().nodename
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return name
    return name if ipaddress.ip_address(address).is_loopback else address


@asynccontextmanager
async def serving(app: web.Application, door: socket.socket) -> AsyncIterator[None]:
    """Serves the application on the socket."""
    runner = web.AppRunner(app, logger=_http, access_log=None, shutdown_timeout=5.0)
    await runner.setup()
    try:
        await web.SockSite(runner, door).start()
        log.info("http.listening", extra={"url": url_of(door)})
        yield
    finally:
        await runner.cleanup()


def _is_no_callers_fault(record: logging.LogRecord) -> bool:
    """False for what is no HTTP, is not encoded as announced or breaks off: anybody may send it, at any rate."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (HttpProcessingError, web.RequestPayloadError, ConnectionResetError))


_http.addFilter(_is_no_callers_fault)
