"""What is seen while a blast runs: progress, rates, the oldest age of each lane. Live on a terminal, else in lines."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from deploy.blast.plan import LARGE_ID, SMALL, SMALL_ID, Plan
from deploy.blast.watching import Watch
from deploy.demo.judge import percentile
from deploy.demo.narrating import Narrator

EVERY_S = 15.0
BAR_WIDTH = 40


class View:
    """Called with each look."""

    def __init__(self, plan: Plan, narrator: Narrator) -> None:
        self._plan = plan
        self._narrator = narrator
        self._live: Live | None = None
        self._said_s = time.monotonic()

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Live as long as it is entered, where there is a terminal."""
        if not self._narrator.console.is_terminal:
            yield
            return
        with Live(console=self._narrator.console, refresh_per_second=2, transient=True) as self._live:
            yield
        self._live = None

    def __call__(self, watch: Watch) -> None:
        if self._live is not None:
            self._live.update(Group(bars(self._plan, watch), numbers(watch)))
        elif time.monotonic() - self._said_s >= EVERY_S:
            self._said_s = time.monotonic()
            self._narrator.say(line(watch))


def bars(plan: Plan, watch: Watch) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, came, whole in ((LARGE_ID, watch.large, plan.recipients), (SMALL_ID, watch.small, SMALL)):
        status = watch.told.get(name, {}).get("status", "")
        bar = ProgressBar(total=whole, completed=came.distinct, width=BAR_WIDTH)
        table.add_row(f"  {name}", bar, f"{came.distinct:,}/{whole:,}", f"{watch.sends_per_s(came):,.0f}/s", status)
    return table


def numbers(watch: Watch) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("  login codes, last 10 s", _codes(watch))
    for lane, age_s in sorted(watch.ages_s.items()):
        table.add_row(f"  oldest in {lane}", f"{age_s:.1f} s")
    table.add_row("  largest process", _largest(watch))
    return table


def line(watch: Watch) -> str:
    """All of it in one line."""
    sends = f"{watch.large.distinct:,} sent, {watch.sends_per_s(watch.large):,.0f}/s"
    ages = ", ".join(f"{lane} {age_s:.1f} s" for lane, age_s in sorted(watch.ages_s.items()))
    return f"{sends}; login codes {_codes(watch)}; oldest: {ages}; {_largest(watch)}"


def _codes(watch: Watch) -> str:
    p50, p99 = (percentile([wait_s for _, wait_s in watch.code.waits], share) * 1000 for share in (0.5, 0.99))
    return f"p50 {p50:.0f} ms, p99 {p99:.0f} ms"


def _largest(watch: Watch) -> str:
    role, peak_mb = max(watch.peaks_mb.items(), key=lambda pair: pair[1], default=("", 0.0))
    return f"{role} {peak_mb:.0f} MB"
