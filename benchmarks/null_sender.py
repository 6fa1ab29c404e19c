"""The whole sender, but for the provider: one that is in the process and costs nothing.

It keeps a stand-in's book, which the bench asks. usage: python -m benchmarks.null_sender LANE CONTROL_PORT CONFIG
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.standins.book import Book, serve
from consumers.providers.contract import Call, Way
from deploy import ground as grounds
from deploy import running, senders, settings
from schemas.messages import Channel, Priority
from schemas.outcomes import Kind, Outcome

DONE = Outcome(Kind.DONE, provider_id="1-1")


class NullProvider:
    """Takes every call at once."""

    carries_reference = True

    def __init__(self, name: str, book: Book) -> None:
        self.name = name
        self._book = book

    async def reach(self) -> Way | Outcome:
        return self

    def leave(self) -> None:
        return None

    async def send(self, call: Call) -> Outcome:
        self._book.call(call.delivery_key.encode(), time.time())
        self._book.end()
        return DONE

    async def close(self) -> None:
        pass


async def work(chosen: settings.Settings, channel: Channel, priority: Priority, control_port: int) -> None:
    """As `deploy.processes.facing_out.work`, for one lane."""
    book = Book()
    door = await serve(book.answer, control_port)
    async with door, grounds.watched(chosen) as ground:
        await senders.lane(ground, channel, priority, lambda ground, name, publisher: NullProvider(name, book))


def main(lane: str, control_port: str, config: str) -> None:
    """Until it is ended."""
    channel, _, priority = lane.partition(".")
    chosen = settings.load(Path(config), {})
    running.run(f"work {lane}", lambda: work(chosen, Channel(channel), Priority(priority), int(control_port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
