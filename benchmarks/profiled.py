"""A role of Tidings with a sampler beside it: where its main thread spends CPU time, by part of a send.

Between a first and a second SIGUSR1 the stack is looked at every two milliseconds of the process's CPU time; the
innermost frame that belongs to a part decides. What other threads cost (librdkafka's, the Kafka side of the engine) is
for whoever asks to read from /proc, by the thread's name.
usage: python -m benchmarks.profiled RESULT.json WORDS… (as after `tidings`). It is written when the role ends.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from deploy import cli

EVERY_S = 0.002
PARTS = (
    ("consumers/render", "render"),
    ("consumers/sandbox", "render"),
    ("jinja2/", "render"),
    ("templates/", "render"),
    ("consumers/providers/", "HTTP client"),
    ("redis/", "Redis round trips"),
    ("deploy/redis_trips", "Redis round trips"),
    ("schemas/trips", "Redis round trips"),
    ("schemas/shared_trips", "Redis round trips"),
    ("consumers/claims", "claim"),
    ("consumers/guarding", "cap and look-alikes"),
    ("consumers/caps", "cap and look-alikes"),
    ("consumers/lookalikes", "cap and look-alikes"),
    ("schemas/local_times", "cap and look-alikes"),
    ("consumers/limits", "Redis round trips"),
    ("consumers/breaker", "Redis round trips"),
    ("consumers/settling", "settle"),
    ("consumers/verdicts", "settle"),
    ("consumers/judging", "settle"),
    ("consumers/telling", "status"),
    ("consumers/loop/outbox", "status"),
    ("consumers/loop/batches", "status"),
    ("producers/publisher", "status"),
    ("consumers/loop/", "poll and decode"),
    ("consumers/engine", "poll and decode"),
    ("schemas/codec.py:Codec.decode", "poll and decode"),
    ("consumers/", "the story of a send"),
    ("asyncio/", "event loop"),
)
"""Beginnings of paths (":" and a function may follow) and the part they are; the first that fits the innermost frame
that has one."""
REST = "rest"
FUNCTIONS = 25


class Sampler:
    """Counts samples by part, and by function for whoever wants to know more."""

    def __init__(self) -> None:
        self.parts: Counter[str] = Counter()
        self.functions: Counter[str] = Counter()
        self._known: dict[CodeType, str] = {}
        self._every_s = 0.0

    def stand_by(self) -> None:
        """Waits for the signals."""
        signal.signal(signal.SIGPROF, self._look)
        signal.signal(signal.SIGUSR1, self._turn)

    def _turn(self, number: int, frame: FrameType | None) -> None:
        self._every_s = EVERY_S - self._every_s
        signal.setitimer(signal.ITIMER_PROF, self._every_s, self._every_s)

    def _look(self, number: int, frame: FrameType | None) -> None:
        if frame is not None:
            self.functions[f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}"] += 1
        while frame is not None:
            part = self._part(frame.f_code)
            if part:
                self.parts[part] += 1
                return
            frame = frame.f_back
        self.parts[REST] += 1

    def _part(self, code: CodeType) -> str:
        found = self._known.get(code)
        if found is None:
            found = self._known[code] = part_of(f"{code.co_filename}:{code.co_qualname}")
        return found


def part_of(place: str) -> str:
    """The part that a place ("file:function") belongs to; "" when its caller decides."""
    return next((part for beginning, part in PARTS if f"/{beginning}" in place), "")


def main(result: Path, *words: str) -> None:
    """Runs the role and writes down what was seen."""
    sampler = Sampler()
    sampler.stand_by()
    sys.argv = ["tidings", *words]
    try:
        cli.main()
    finally:
        seen = {"parts": sampler.parts, "functions": dict(sampler.functions.most_common(FUNCTIONS))}
        result.write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
