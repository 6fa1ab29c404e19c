"""Traps: a test names a role and one of its gaps, and the next process of that role to pass it ends or stops there.

A trap is a file, so it is set while all processes run. The process that springs it leaves another file with its id.
`role.py` has every process of the deployment look for traps; the product knows nothing of them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from schemas.gaps import AT_STAKE


class Fate(StrEnum):
    """killed: SIGKILL. stopped: SIGSTOP, until the test wakes it. bereft: killed, its folder gone. noted: no harm."""

    KILLED = "killed"
    STOPPED = "stopped"
    BEREFT = "bereft"
    NOTED = "noted"


@dataclass(frozen=True, slots=True)
class Trap:
    """passing: which passing of the gap springs it. folder: what is taken from a process that is bereft."""

    gap: str
    fate: Fate = Fate.KILLED
    passing: int = 1
    folder: str = ""


class Traps:
    """The traps of one deployment, as the test sets them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def set(self, role: str, trap: Trap) -> None:
        """role: the words of its command, joined by "-"; of several such processes the first to come springs it."""
        assert trap.gap in AT_STAKE, f"no gap is called {trap.gap}"
        _sprung(self._folder, role).unlink(missing_ok=True)
        unfinished = self._folder / f"{role}.part"
        unfinished.write_text(json.dumps(asdict(trap)))
        unfinished.replace(_set(self._folder, role))

    def sprung_by(self, role: str) -> int | None:
        """The process that went into it; None as long as nobody did."""
        try:
            return int(_sprung(self._folder, role).read_text())
        except FileNotFoundError:
            return None

    def clear(self) -> None:
        for file in self._folder.iterdir():
            file.unlink()


class Watcher:
    """In a process: the `Gap` that looks for a trap of its role."""

    def __init__(self, folder: Path, role: str) -> None:
        self._folder = folder
        self._path = _set(folder, role)
        self._role = role
        self._passed = 0

    def __call__(self, gap: str) -> None:
        try:
            trap = Trap(**json.loads(self._path.read_text()))
        except FileNotFoundError:
            self._passed = 0
            return
        if trap.gap != gap:
            return
        self._passed += 1
        if self._passed >= trap.passing and self._springs():
            self._meet(trap)

    def _springs(self) -> bool:
        """Only one process does: the file can be taken away once."""
        own = self._folder / f"{self._role}.{os.getpid()}"
        try:
            self._path.rename(own)
        except FileNotFoundError:
            return False
        own.write_text(str(os.getpid()))
        own.rename(_sprung(self._folder, self._role))
        return True

    def _meet(self, trap: Trap) -> None:
        if trap.fate == Fate.BEREFT:
            shutil.rmtree(trap.folder)
        if trap.fate != Fate.NOTED:
            os.kill(os.getpid(), signal.SIGSTOP if trap.fate == Fate.STOPPED else signal.SIGKILL)


def _set(folder: Path, role: str) -> Path:
    return folder / f"{role}.set"


def _sprung(folder: Path, role: str) -> Path:
    return folder / f"{role}.sprung"
