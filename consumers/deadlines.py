"""The hard end of a call. All calls of a lane have the same time, so they end in the order they began: one timer
for all of them costs a sixth of an `asyncio.timeout` for each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Any


class Deadlines:
    """For the calls of one event loop. seconds: what each of them has."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: deque[Deadline] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> Deadline:
        """To be used as a context manager by the task that asks: raises TimeoutError in it when the time is up."""
        loop = asyncio.get_running_loop()
        deadline = Deadline(asyncio.current_task(loop), loop.time() + self._seconds, self._ended)
        self._running.append(deadline)
        if self._timer is None:
            self._timer = loop.call_at(deadline.ends_s, self._look, loop)
        return deadline

    def _ended(self) -> None:
        running = self._running
        while running and running[0].task is None:
            running.popleft()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancels whose time is up, and comes back for the next."""
        self._timer = None
        now_s = loop.time()
        for deadline in self._running:
            if deadline.ends_s > now_s:
                self._timer = loop.call_at(deadline.ends_s, self._look, loop)
                return
            deadline.expire()


class Deadline:
    """One call's. task: None once it ended."""

    __slots__ = ("_before", "_expired", "_on_end", "ends_s", "task")

    def __init__(self, task: asyncio.Task[Any] | None, ends_s: float, on_end: Any) -> None:
        assert task is not None
        self.task: asyncio.Task[Any] | None = task
        self.ends_s = ends_s
        self._before = task.cancelling()
        self._expired = False
        self._on_end = on_end

    def expire(self) -> None:
        if self.task is not None and not self._expired:
            self._expired = True
            self.task.cancel()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self.task = self.task, None
        self._on_end()
        # As asyncio.timeout: whoever else cancelled the task meanwhile is not robbed of it.
        if self._expired and task is not None and task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error
