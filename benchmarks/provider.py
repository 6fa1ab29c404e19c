"""The stand-ins as the bench sees them: started, asked, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme

from benchmarks import programs
from benchmarks.programs import NotMeasured
from deploy import cost
from deploy.local import places

LOOK_S = 0.02
ANSWER_MOST_BYTES = 1 << 26
STILL_S = 60.0
"""Without anything new for so long, a run is given up."""


@dataclass(slots=True)
class Provider:
    """A running stand-in. ca: the authority to trust, "" for plain text."""

    url: str
    pid: int
    ca: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, what: str, **more: Any) -> Any:
        self.writer.write(json.dumps({"ask": what, **more}).encode() + b"\n")
        return json.loads(await self.reader.readline())

    async def totals(self) -> dict[str, float]:
        found: dict[str, float] = await self.ask("totals")
        return found

    async def distinct(self) -> int:
        return int((await self.totals())["distinct"])

    async def reached(self, count: int, meter: cost.Meter | None = None) -> int:
        """Returns once so many different keys have come; how many they are by now.

        Raises NotMeasured when nothing moves, or one of the processes that are measured has ended.
        """
        last, moved_s = -1, time.monotonic()
        while (now := await self.distinct()) < count:
            if now != last:
                last, moved_s = now, time.monotonic()
            if meter is not None and (ended := meter.ended()):
                raise NotMeasured(f"{', '.join(ended)} ended when {now} of {count} had arrived")
            if time.monotonic() - moved_s > STILL_S:
                raise NotMeasured(f"nothing arrived for {STILL_S:g} s; {now} of {count} had")
            await asyncio.sleep(LOOK_S)
        return now

    async def first_arrivals(self, numbers: Sequence[int]) -> list[float]:
        """When the first, the n-th different key came, in seconds since 1970."""
        found: list[float] = await self.ask("first_arrivals", numbers=list(numbers))
        return found

    async def waits_ms(self) -> list[float]:
        """From the wish to the provider, of the texts that say when they were wished for."""
        return [wait_s * 1000 for wait_s in await self.ask("waits")]


@contextlib.asynccontextmanager
async def http(folder: Path, answer_ms: float, is_secure: bool = False) -> AsyncIterator[Provider]:
    """A gateway."""
    certificate = _certificate(folder) if is_secure else ()
    ca = str(folder / "ca.pem") if is_secure else ""
    scheme = "https" if is_secure else "http"
    module, port = "benchmarks.standins.http_provider", places.free_port()
    words = (module, str(port), f"{answer_ms:g}", *certificate)
    async with _running(folder, words, f"{scheme}://127.0.0.1:{port}/send", ca) as provider:
        yield provider


@contextlib.asynccontextmanager
async def smtp(folder: Path) -> AsyncIterator[Provider]:
    """A mail server."""
    port = places.free_port()
    async with _running(folder, ("benchmarks.standins.smtp_server", str(port)), f"smtp://127.0.0.1:{port}") as provider:
        yield provider


@contextlib.asynccontextmanager
async def _running(folder: Path, words: Sequence[str], url: str, ca: str = "") -> AsyncIterator[Provider]:
    module, port, *more = words
    control = places.free_port()
    name = module.rpartition(".")[2]
    async with (
        programs.running(name, (module, port, str(control), *more), folder) as program,
        asked(url, program.pid, control, ca) as provider,
    ):
        yield provider


@contextlib.asynccontextmanager
async def asked(url: str, pid: int, control_port: int, ca: str = "") -> AsyncIterator[Provider]:
    """A book that is there already, and whose it is."""
    reader, writer = await asyncio.open_connection("127.0.0.1", control_port, limit=ANSWER_MOST_BYTES)
    try:
        yield Provider(url, pid, ca, reader, writer)
    finally:
        writer.close()


def _certificate(folder: Path) -> tuple[str, str]:
    """Files of a certificate for this machine, and of its key; its authority is put beside them."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "certificate.pem"))
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    return str(folder / "certificate.pem"), str(folder / "key.pem")
