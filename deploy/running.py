"""Runs one role in this process until it ends or is told to: logs set up, signals answered."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Set
from typing import Any

import uvloop

from deploy import logs
from schemas.errors import Misconfigured

log = logging.getLogger(__name__)

FAILED = 1
MISCONFIGURED = 78
TRY_LATER = 75
SAYS = "tidings: "
"""So begins what a process tells people as it ends; the lines of its log do not."""
STOP_WITHIN_S = 20.0
END_WITHIN_S = 5.0
"""After a failure there is nothing left to tidy up that is worth more than being started again."""
Main = Callable[[], Coroutine[Any, Any, None]]
COLLECT_EVERY = (20_000, 20, 20)
"""Cyclic garbage is rare here and a look for it costs a tenth of a busy worker at Python's own (700, 10, 10)."""


def run(role: str, main: Main, stop_within_s: float = STOP_WITHIN_S) -> None:
    """Runs `main` on uvloop. SIGTERM and SIGINT cancel it once; it tidies up as it is cancelled.

    A role that is not done so long after a signal is left where it is: the log and the leases cover it.
    """
    logs.set_up(role)
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)
    before = set(threading.enumerate())
    code = 0
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(until_told(main, stop_within_s))
    except BaseException as error:
        code = MISCONFIGURED if isinstance(error, Misconfigured) else FAILED
        raise
    finally:
        _end_threads(before, code)


def _end_threads(before: Set[threading.Thread], code: int) -> None:
    """Ends the process by force when a library's thread does not end.

    Python would wait for it for ever, and Faust's, left alone, keeps its place in the group: nobody would get the
    partitions, and nobody would start the process again.
    """
    ends_s = time.monotonic() + END_WITHIN_S
    left = [thread for thread in threading.enumerate() if not thread.daemon and thread not in before]
    for thread in left:
        thread.join(max(0.0, ends_s - time.monotonic()))
    if alive := [thread.name for thread in left if thread.is_alive()]:
        log.error("process.threads_did_not_end", extra={"threads": alive})
        os._exit(code)


async def until_told(main: Main, stop_within_s: float) -> None:
    """Awaits `main`; returns quietly when a signal ended it. What it raises is raised.

    Whoever failed ends: tasks that a library does not let go of cannot keep the process from being started again.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(main())
    told = False

    def stop() -> None:
        nonlocal told
        if not told:
            told = True
            log.info("process.stopping")
            loop.call_later(stop_within_s, _give_up, stop_within_s)
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    except Exception as error:
        log.error("process.failing", extra={"error": repr(error)})
        loop.call_later(END_WITHIN_S, _give_up, END_WITHIN_S)
        raise
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    log.info("process.stopped")


def _give_up(after_s: float) -> None:
    """Says where each task still waits: whoever reads it must find what kept the process."""
    waiting = [_where(task) for task in asyncio.all_tasks()]
    log.error("process.stop_took_too_long", extra={"after_s": after_s, "waiting": waiting})
    os._exit(FAILED)


def _where(task: asyncio.Task[Any]) -> str:
    """The functions in which a task waits, outermost first."""
    names: list[str] = []
    inner: Any = task.get_coro()
    while (frame := getattr(inner, "cr_frame", None)) is not None:
        names.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        inner = inner.cr_await
    return " > ".join(names)
