"""`tidings simulate`: one process with the HTTP provider, the mail server and their common ledger."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from deploy.simulators.callbacks import Callbacks, Target
from deploy.simulators.control import Control
from deploy.simulators.faults import Board, Faults
from deploy.simulators.http_provider import HttpProvider, World
from deploy.simulators.ledger import Ledger
from deploy.simulators.smtp_server import MailOptions, SmtpServer
from deploy.simulators.status_api import StatusApi

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
    """Both servers, listening; closed on the way out."""
    loop = asyncio.get_running_loop()
    ledger, board = Ledger(), Board(options.faults)
    callbacks = Callbacks(options.callbacks, ledger)
    counter = itertools.count(1)

    def next_id() -> str:
        return f"{options.id_prefix}-{next(counter):08d}"

    statuses = StatusApi(ledger, board)
    world = World(ledger, board, callbacks, next_id, statuses.remember, Control(ledger, board, statuses))
    http = await loop.create_server(
        lambda: HttpProvider(world), options.host, options.http_port, backlog=BACKLOG, ssl=options.tls
    )
    smtp = await loop.create_server(
        lambda: SmtpServer(ledger, board, options.mail, next_id), options.host, options.smtp_port, backlog=BACKLOG
    )
    posting = asyncio.create_task(callbacks.run())
    try:
        yield Running(_port(http), _port(smtp), ledger, board)
    finally:
        posting.cancel()
        http.close()
        smtp.close()
        with contextlib.suppress(asyncio.CancelledError):
            await posting


def _port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])
