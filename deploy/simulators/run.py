"""`tidings simulate`: one process with the HTTP provider, the mail server and their common ledger."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from deploy.simulators.callbacks import Callbacks, Target
from deploy.simulators.control import Control
from deploy.simulators.faults import Board, Faults
from deploy.simulators.http_provider import HttpProvider, World
from deploy.simulators.ledger import Ledger
from deploy.simulators.smtp_server import MailOptions, SmtpServer
from deploy.simulators.status_api import StatusApi
from schemas.errors import Misconfigured

BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Options:
    """Ports 0 are chosen by the system. callbacks: service (an HTTP path) -> where its webhooks go.

    id_prefix makes message ids differ between runs. tls: the HTTP provider speaks TLS.
    """

    host: str = "127.0.0.1"
    http_port: int = 9000
    smtp_port: int = 2525
    callbacks: Mapping[str, Target] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    mail: MailOptions = field(default_factory=MailOptions)
    tls: ssl.SSLContext | None = None
    id_prefix: str = "sim"


@dataclass(frozen=True, slots=True)
class Running:
    """Where they listen, and the book itself for tests in the same process."""

    http_port: int
    smtp_port: int
    ledger: Ledger
    board: Board


@contextlib.asynccontextmanager
async def running(options: Options) -> AsyncIterator[Running]:
    """Both servers, listening; closed on the way out. Raises Misconfigured when a port is taken."""
    ledger, board = Ledger(), Board(options.faults)
    callbacks = Callbacks(options.callbacks, ledger)
    counter = itertools.count(1)

    def next_id() -> str:
        return f"{options.id_prefix}-{next(counter):08d}"

    statuses = StatusApi(ledger, board)
    world = World(ledger, board, callbacks, next_id, statuses.remember, Control(ledger, board, statuses))
    gateway, mail = partial(HttpProvider, world), partial(SmtpServer, ledger, board, options.mail, next_id)
    with (
        contextlib.closing(await _listening(gateway, options, options.http_port, options.tls)) as http,
        contextlib.closing(await _listening(mail, options, options.smtp_port)) as smtp,
    ):
        posting = asyncio.create_task(callbacks.run())
        try:
            yield Running(_port(http), _port(smtp), ledger, board)
        finally:
            posting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await posting


async def _listening(
    protocol: Callable[[], asyncio.BaseProtocol], options: Options, port: int, tls: ssl.SSLContext | None = None
) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(protocol, options.host, port, backlog=BACKLOG, ssl=tls)
    except OSError as error:
        why = f"cannot listen on {options.host}:{port}: {error.strerror}"
        raise Misconfigured(f"{why}; free it, or let the provider's url name another port") from None


def _port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])
