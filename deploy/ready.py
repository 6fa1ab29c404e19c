"""How a role tells its supervisor that it can work: "1" and the address of its numbers on a pipe it inherited.

A role that runs alone has no such pipe and says so in its log only. Other orchestrators ask `/readyz` of the
roles that serve HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import os

log = logging.getLogger(__name__)

VARIABLE = "TIDINGS_READY_FD"
URL_MOST_BYTES = 4096


def tell(metrics_url: str = "") -> None:
    """Called by each role when it can do its work: partitions assigned, tables recovered, ports open.

    metrics_url: where its numbers are served; "" = nowhere. Only the first call of a process tells; later ones, e.g.
    after a rebalance, do nothing.
    """
    handle = os.environ.pop(VARIABLE, "")
    log.info("process.ready")
    if handle:
        os.write(int(handle), b"1" + metrics_url.encode())
        os.close(int(handle))


class Pipe:
    """The supervisor's side. give: the end the child inherits, closed here once the child runs.

    metrics_url: what the child told with its word.
    """

    def __init__(self) -> None:
        self._read, self.give = os.pipe()
        os.set_blocking(self._read, False)
        self._done = asyncio.Event()
        self.is_ready = False
        self.metrics_url = ""
        asyncio.get_running_loop().add_reader(self._read, self._heard)

    def environment(self) -> dict[str, str]:
        return {VARIABLE: str(self.give)}

    def started(self) -> None:
        os.close(self.give)

    async def wait(self) -> bool:
        """True once the child is ready, False when it ended without a word."""
        await self._done.wait()
        return self.is_ready

    def _heard(self) -> None:
        asyncio.get_running_loop().remove_reader(self._read)
        told = os.read(self._read, URL_MOST_BYTES).decode()
        self.is_ready, self.metrics_url = told.startswith("1"), told[1:]
        os.close(self._read)
        self._done.set()
