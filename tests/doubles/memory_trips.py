"""Round trips in memory: same port, same answers (`tests/contract/test_trips.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas import keys
from schemas.errors import StoreDown
from schemas.trips import Script, Trip

RUN_ID = b"memory"


class MemoryTrips:
    """Knows GET and SET; any other command is a function. down: trips fail; epoch None: it was emptied.

    kept: key -> what was set and how.
    """

    def __init__(self) -> None:
        self.down = False
        self.epoch: bytes | None = RUN_ID
        self.made = 0
        self.kept: dict[Any, tuple[Any, ...]] = {}

    def begin(self) -> Trip:
        return MemoryTrip(self)

    def reply(self, name: Any, *args: Any) -> Any:
        """The answer to one command; a command's own failure is an exception in its place."""
        if callable(name):
            return name()
        match name, args:
            case "GET", (keys.REDIS_EPOCH,):
                return self.epoch
            case "GET", (key,):
                value = self.kept.get(key, (None,))[0]
                return value if value is None or isinstance(value, bytes) else str(value).encode()
            case "SET", (key, *given):
                return self._set(key, given)
        return ValueError(f"unknown command {name}")

    def _set(self, key: Any, given: Sequence[Any]) -> Any:
        before = self.reply("GET", key)
        is_kept = "NX" in given and before is not None
        if not is_kept:
            self.kept[key] = tuple(given)
        if "GET" in given:
            return before
        return None if is_kept else b"OK"


class MemoryTrip:
    def __init__(self, trips: MemoryTrips) -> None:
        self._trips = trips
        self._commands: list[tuple[Any, ...]] = []

    def execute_command(self, *args: Any) -> None:
        self._commands.append(args)

    def run(self, script: Script, touched: Sequence[str | bytes], *args: Any) -> None:
        raise NotImplementedError("scripts run on Redis alone")

    async def execute(self) -> list[Any]:
        if self._trips.down:
            raise StoreDown("the memory store is told to be away")
        self._trips.made += 1
        return [self._trips.reply(*command) for command in self._commands]
