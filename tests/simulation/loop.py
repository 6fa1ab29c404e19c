"""An event loop without waiting: time jumps to the next timer, and processes live, stand still and die in it.

A process is a context: what its code schedules runs in it, in its own order; the processes of one moment take turns
in an order that the seed chooses. A dead process is simply not run any more, as after SIGKILL; one that stands still
finds everything that came meanwhile when it goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

LONG_TURNS = 20_000
"""So many handles at one moment are a loop that never waits."""


class Killed(BaseException):
    """Ends the running step of a process that dies in it; nothing catches it."""


class Process:
    """What runs in one context. dies_at_step, stops_at_step: steps that are not run any more, or not yet: before that
    one it dies, or `stop` is called, which lets it stand still.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.still = False
        self.steps = 0
        self.dies_at_step = 0
        self.stops_at_step = 0
        self.stop: Callable[[], None] = lambda: None
        self.stalled: deque[Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []
        self.on_death: list[Callable[[], None]] = []
        self.on_wake: list[Callable[[], None]] = []
        self.context = contextvars.copy_context()
        self.context.run(_process.set, self)

    def die(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self.stalled.clear()
        for told in self.on_death:
            told()


_process: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


def current() -> Process:
    """Whose code is running."""
    return _process.get()


class Handle:
    """A call to come."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "process", "when_s")

    def __init__(
        self, when_s: float, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context
    ) -> None:
        self.when_s = when_s
        self.callback = callback
        self.args = args
        self.context = context
        self.process: Process = context[_process]
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s


class VirtualLoop(asyncio.AbstractEventLoop):  # only what tasks, futures and time-outs ask of a loop
    """Runs until told to stop. rng orders the processes of one moment; errors gathers what nobody awaited."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._now_s = 0.0
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._order = 0
        self._stopping = False
        self._closed = False
        self._processes: list[Process] = []
        self.errors: list[tuple[str, BaseException | str]] = []
        self.world = self.process("world")

    def process(self, name: str) -> Process:
        made = Process(name)
        self._processes.append(made)
        return made

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self._now_s

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        context = context or contextvars.copy_context()
        process: Process = context[_process]
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name="", context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        tasks = process.tasks
        tasks.append(task)
        if len(tasks) > 200 and not len(tasks) % 200:
            process.tasks = [one for one in tasks if not one.done()]
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        handle = Handle(self._now_s, callback, args, context or contextvars.copy_context())
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        when_s = self._now_s + delay
        handle = Handle(when_s, callback, args, context or contextvars.copy_context())
        self._order += 1
        heapq.heappush(self._timers, (when_s, self._order, handle))
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        handle = Handle(when, callback, args, context or contextvars.copy_context())
        self._order += 1
        heapq.heappush(self._timers, (when, self._order, handle))
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            self.errors.append((current().name, context.get("exception") or context["message"]))

    # Running.

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Runs `main` as the world's own, and everything else until it ends. Raises what it raised."""
        asyncio.events._set_running_loop(self)
        try:
            task = self.world.context.run(self.create_task, main)
            while not task.done():
                self._turn()
            task.result()
        finally:
            self._close()
            asyncio.events._set_running_loop(None)

    def stall(self, process: Process) -> None:
        """It stands still, as after SIGSTOP."""
        process.still = True

    def wake(self, process: Process) -> None:
        process.still = False
        told, process.on_wake = process.on_wake, []
        for call in told:
            call()
        if process.alive:
            self._ready.extend(process.stalled)
        process.stalled.clear()

    def _turn(self) -> None:
        """Everything that is ready now; when nothing is, the next moment at which something will be."""
        ready = self._ready
        if not ready:
            self._jump()
        if len(ready) == 1:  # most turns
            self._run_one(ready.popleft())
            return
        batch = self._in_seeded_order(list(ready))
        ready.clear()
        for handle in batch:
            self._run_one(handle)

    def _in_seeded_order(self, batch: list[Handle]) -> list[Handle]:
        """Processes in random order, each one's own calls in theirs."""
        first = batch[0].process
        if all(handle.process is first for handle in batch):
            return batch
        by_process: dict[int, list[Handle]] = {}
        for handle in batch:
            by_process.setdefault(id(handle.process), []).append(handle)
        groups = list(by_process.values())
        self._rng.shuffle(groups)
        return [handle for group in groups for handle in group]

    def _jump(self) -> None:
        timers, pop, add = self._timers, heapq.heappop, self._ready.append
        while timers and timers[0][2].is_cancelled:
            pop(timers)
        assert timers, "nothing will ever happen any more"
        now_s = self._now_s = max(self._now_s, timers[0][0])
        while timers and timers[0][0] <= now_s:
            add(pop(timers)[2])

    def _run_one(self, handle: Handle) -> None:
        process = handle.process
        if handle.is_cancelled or not process.alive:
            return
        if process.still:
            process.stalled.append(handle)
            return
        process.steps += 1
        if process.steps == process.dies_at_step:
            process.die()
            return
        if process.steps == process.stops_at_step:
            process.stop()
            process.stalled.append(handle)
            return
        try:
            handle.context.run(handle.callback, *handle.args)
        except Killed:
            pass
        except Exception as error:
            self.errors.append((process.name, error))

    def _close(self) -> None:
        """Whatever is still waiting is dropped without a word: most of it belongs to the dead."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        for process in self._processes:
            for task in process.tasks:
                if not task.done() and (coroutine := task.get_coro()) is not None:
                    with contextlib.suppress(BaseException):
                        process.context.run(coroutine.close)
        self._ready.clear()
        self._timers.clear()
