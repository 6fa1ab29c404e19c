"""A way to a provider that can be cut: connections through it are lost, and new ones refused, until it is mended."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from tests.acceptance.deployment import free_ports

READ_BYTES = 65_536


class Relay:
    """On a thread of its own, since tests have an event loop each. port: where callers come in."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._to_port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    def start(self, to_port: int) -> None:
        self._to_port = to_port
        self._thread.start()
        self.mend()

    def stop(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def mend(self) -> None:
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def cut(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=1024)

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
            ends = {writer, far_writer}
            self._open |= ends
            await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
            self._open -= ends


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.contextmanager
def relay() -> Iterator[Relay]:
    """`start` it once it is known where to."""
    made = Relay(free_ports(1)[0])
    try:
        yield made
    finally:
        if made._thread.is_alive():
            made.stop()
