"""Round trips to Redis: the port, whether what is found there can be trusted, and all that needs no client.

A store adds commands to a trip and reads the replies in the same order, so several stores share one trip.
`deploy/redis_trips.py` is the body, the one place that talks to the server; every room is handed its trips.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from schemas import keys
from schemas.errors import StoreDown


class Script:
    """A Lua script, named by the hash under which the server keeps it. It touches one hash tag."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


def script_beside(module_file: str, *names: str) -> Script:
    """The Lua files of these names beside the module, joined in order (shared parts come first)."""
    folder = Path(module_file).parent
    return Script("\n".join((folder / name).read_text(encoding="utf-8") for name in names))


class Trip(Protocol):
    """One round trip in the making. Replies are bytes, integers and lists; that of HGETALL is a dict."""

    def execute_command(self, *args: Any) -> None: ...

    def run(self, script: Script, touched: Sequence[str | bytes], *args: Any) -> None:
        """Calls a script. touched: its keys."""
        ...

    async def execute(self) -> list[Any]:
        """The replies in order; a command's own failure stands in its place as an exception.

        Raises StoreDown when the server could not be asked or is not fit to be: any of it may have been done.
        """
        ...


class Trips(Protocol):
    """Opens round trips."""

    def begin(self) -> Trip: ...


Ask = Callable[[Trip], None]
"""Adds commands to a trip."""


class Epoch:
    """Whether Redis's content can be trusted: the key `epoch` holds the run_id its rebuild was made for.

    run_id is set by the connection callback of the process's Redis client on every (re)connect.
    """

    def __init__(self) -> None:
        self.run_id = b""

    def ask(self, trip: Trip) -> None:
        trip.execute_command("GET", keys.REDIS_EPOCH)

    def holds(self, reply: bytes | None) -> bool:
        """Whether the content was rebuilt for the server now running."""
        return reply is not None and reply == self.run_id

    def check(self, reply: bytes | None) -> None:
        """Raises StoreDown when it does not hold."""
        if not self.holds(reply):
            raise StoreDown("Redis was emptied or restarted; waiting for `tidings route recipients` to rebuild it")


async def asked(trips: Trips, ask: Ask) -> list[Any]:
    """The replies to what `ask` adds. Raises StoreDown also when one of the commands was refused."""
    trip = trips.begin()
    ask(trip)
    return _all_done(await trip.execute())


async def trusted(trips: Trips, epoch: Epoch, ask: Ask) -> list[Any]:
    """As `asked`, but raises StoreDown also when what was found there cannot be trusted."""
    trip = trips.begin()
    ask(trip)
    epoch.ask(trip)
    *replies, last = _all_done(await trip.execute())
    epoch.check(last)
    return replies


def _all_done(replies: list[Any]) -> list[Any]:
    refused = next((reply for reply in replies if isinstance(reply, Exception)), None)
    if refused is not None:
        raise StoreDown(f"Redis refuses a command: {refused}")
    return replies
