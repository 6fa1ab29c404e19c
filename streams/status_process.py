"""`streams status`, composed: the merging application with its heartbeat, counts, reads, sweep and watch beside it.

`deploy` builds one of these, serves `view` on `url` and runs `run` until it ends. A process that failed must exit
with a non-zero code: another owner, or its own next start, goes on where the log says.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Awaitable, Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aiohttp import web

from schemas import keys
from schemas.clock import Clock
from schemas.errors import Misconfigured, Transient
from schemas.gaps import Gap
from schemas.records import LogReader, Publisher
from schemas.topics import Topics
from schemas.trips import Trips
from streams import agents
from streams.share_tally import ShareTally
from streams.status_flow import FlowOptions, StatusFlow
from streams.status_rivals import Fence, Rivals
from streams.status_sweep import Sweep
from streams.status_table import Park, StatusTable
from streams.status_view import Owner, StatusView
from streams.status_watch import Watch

BEAT_S = 1.0
PROGRESS_S = 1.0
SHARES_S = 1.0
SWEEP_S = 5.0
WATCH_S = 10.0
RIVALS_S = 1.0
LAST_LOOK_S = 2.0
FENCE_SHARE = 0.75
"""Of the session time-out: after the whole of it another process may own our partitions."""


@dataclass(frozen=True, slots=True)
class StatusOptions:
    """url: where other processes reach `view`. partition_count: of `delivery.status`."""

    faust: agents.FaustOptions
    url: str
    partition_count: int


class StatusProcess:
    """One member of the group that keeps the status rows. settled: set once its first rows are restored.

    reporting: providers whose delivery share is counted.
    """

    def __init__(
        self,
        topics: Topics,
        options: StatusOptions,
        ids: keys.Ids,
        park: Park,
        publisher: Publisher,
        reader: LogReader,
        trips: Trips,
        clock: Clock,
        gap: Gap | None = None,
        reporting: Set[str] = frozenset(),
    ) -> None:
        self._options = options
        tally = ShareTally(reporting)
        self._tell_shares = partial(tally.tell, trips, clock)
        fenced = FlowOptions(fence_s=options.faust.session_s * FENCE_SHARE)
        self._flow = StatusFlow(StatusTable(topics, ids, park, tally), publisher, topics, clock, fenced, gap)
        self._owner = Owner(self._flow, trips, topics.group("status"), options.url, clock)
        self._sweep = Sweep(self._flow, clock)
        self._rivals = Rivals(self._flow, reader, topics, clock)
        self._fence = Fence(clock, fenced.fence_s)
        self._flow.last_look = self._last_look
        self._faust = agents.merging(topics, options.faust, self._flow)
        self._watch = Watch(self._flow, reader, topics, clock, partial(self._faust.read_again, topics.status))
        self.settled = self._faust.settled
        self.view: web.Application = StatusView(self._flow, self._owner, options.partition_count).app()

    async def run(self) -> None:
        """Until `stop`; raises what ended it otherwise. Misconfigured when another process uses the data folder."""
        with data_dir_lock(self._options.faust.data_dir):
            await self._faust.run(
                every(BEAT_S, self._owner.beat, self._fence),
                every(PROGRESS_S, self._flow.publish_progress, self._fence),
                every(SHARES_S, self._tell_shares, self._fence),
                every(SWEEP_S, self._sweep.run_due, self._fence),
                every(WATCH_S, self._watch.check, self._fence),
                every(RIVALS_S, self._rivals.check, self._fence),
            )

    async def _last_look(self) -> None:
        """Who stood still has nothing to put right any more: the newer rows are those of others."""
        with contextlib.suppress(Transient, TimeoutError):
            self._fence.pass_through()
            async with asyncio.timeout(LAST_LOOK_S):
                await self._rivals.check()

    def stop(self) -> None:
        self._faust.stop()


async def every(pause_s: float, act: Callable[[], Awaitable[None]], fence: Fence) -> None:
    """Acts for ever, with a pause after each time. Raises Transient when the process stood still for too long."""
    while True:
        fence.pass_through()
        await act()
        await asyncio.sleep(pause_s)


@contextmanager
def data_dir_lock(data_dir: Path) -> Iterator[None]:
    """Holds the folder for this process. Raises Misconfigured when another one holds it."""
    data_dir.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(data_dir / "in-use", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Misconfigured(
                f"{data_dir} is in use by another process: every `tidings streams` process needs a folder of its own"
            ) from error
        yield
    finally:
        os.close(descriptor)
