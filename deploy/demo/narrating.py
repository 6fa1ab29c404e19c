"""What is told on the terminal while a story runs, and what is shown of the logs when it ends badly."""

from __future__ import annotations

import time

from rich.console import Console

from deploy.demo.place import Place
from deploy.local import places


class Narrator:
    """Tells the story on the terminal, with the seconds since its beginning."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began_s = time.monotonic()

    def say(self, text: str) -> None:
        self.console.print(f"{time.monotonic() - self._began_s:5.0f} s  {text}", highlight=False, markup=False)


def show_logs(chosen: Place, console: Console) -> None:
    """The end of what the supervisor said, and of every process that complained."""
    for log in (chosen.folder / "up.log", *sorted(chosen.logs.glob("*.log"))):
        lines = [line for line in places.tail(log, 400).splitlines() if '"error"' in line or "Traceback" in line]
        if lines or log.name == "up.log":
            console.print(f"--- {log.name}\n{places.tail(log, 12)}", highlight=False, markup=False)
