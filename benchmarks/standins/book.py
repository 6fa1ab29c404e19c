"""What arrived, by key and by time, and the door through which the bench asks for it: one JSON line each way."""

from __future__ import annotations

import asyncio
import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any


class Book:
    """Counts calls. A call is whatever carries a key; one whose key is known already is a repeat."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.keys: dict[bytes, int] = {}
        self.calls = array("d")
        self.firsts = array("d")
        self.waits_s: list[float] = []
        self.in_flight = self.most_in_flight = 0

    def call(self, key: bytes, now_s: float) -> None:
        """One call was read. It is in flight until `end`."""
        self.calls.append(now_s)
        known = self.keys.get(key)
        if known is None:
            self.firsts.append(now_s)
        self.keys[key] = (known or 0) + 1
        self.in_flight += 1
        if self.in_flight > self.most_in_flight:
            self.most_in_flight = self.in_flight

    def end(self) -> None:
        self.in_flight -= 1

    def answer(self, asked: dict[str, Any]) -> Any:
        """The answer to one question of the bench."""
        match asked["ask"]:
            case "reset":
                return self.reset()
            case "totals":
                return self._totals()
            case "first_arrivals":
                return [self.firsts[number - 1] for number in asked["numbers"]]
            case "waits":
                return self.waits_s
            case "between":
                return self._between(asked["from_s"], asked["to_s"])
            case "containing":
                word = asked["word"].encode()
                return sum(1 for key in self.keys if word in key)
        raise ValueError(asked)

    def _totals(self) -> dict[str, float]:
        distinct, calls = len(self.keys), len(self.calls)
        return {
            "calls": calls,
            "distinct": distinct,
            "repeats": calls - distinct,
            "most_in_flight": self.most_in_flight,
            "last_new_s": self.firsts[-1] if distinct else 0.0,
        }

    def _between(self, from_s: float, to_s: float) -> dict[str, int]:
        """Calls in this time, and the most in any second of it."""
        times = self.calls[bisect_left(self.calls, from_s) : bisect_right(self.calls, to_s)]
        most, first = 0, 0
        for last, at in enumerate(times):
            while times[first] <= at - 1.0:
                first += 1
            most = max(most, last - first + 1)
        return {"calls": len(times), "most_in_a_second": most}


async def serve(answer: Callable[[dict[str, Any]], Any], port: int) -> asyncio.Server:
    """Answers questions on this port of the machine."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(json.dumps(answer(json.loads(line))).encode() + b"\n")
        writer.close()

    return await asyncio.start_server(talk, "127.0.0.1", port, limit=1 << 20)
