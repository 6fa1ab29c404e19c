"""What processes cost, from /proc (Linux): CPU time, memory, and who listens on a port."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
LISTENING = "0A"


def cpu_s(pid: int) -> float:
    """CPU time of a process up to now, of all its threads; 0.0 once it is gone."""
    return _ticks(Path(f"/proc/{pid}/stat")) / TICKS


def threads_s(pid: int) -> dict[str, float]:
    """The same by the name of the thread; threads of one name are summed."""
    found: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            name = re.sub(r"[\d/]+$", "", (task / "comm").read_text().strip())
            name = "main" if task.name == str(pid) else name
            found[name] = found.get(name, 0.0) + _ticks(task / "stat") / TICKS
    return found


def peak_mb(pid: int) -> float:
    """The most memory the process ever had resident; 0.0 once it is gone."""
    with suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0
    return 0.0


def children(pid: int) -> list[int]:
    """The processes it started that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def listener(port: int) -> int | None:
    """The process that listens on this port of the machine; None when that is not ours to see."""
    inodes = set(_listening(port))
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(os.readlink(link) in inodes for link in (folder / "fd").iterdir()):
                return int(folder.name)
    return None


def is_running(pid: int) -> bool:
    """False also for one that ended and whose parent has not looked yet."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class Meter:
    """CPU times of some processes by name, read again and again."""

    def __init__(self, pids: Mapping[str, int | None]) -> None:
        self.pids = {name: pid for name, pid in pids.items() if pid is not None}

    def read(self) -> dict[str, float]:
        return {name: cpu_s(pid) for name, pid in self.pids.items()}

    def ended(self) -> list[str]:
        """Those that do not run any more."""
        return [name for name, pid in self.pids.items() if not is_running(pid)]


def _ticks(stat: Path) -> int:
    """User and system time, without children."""
    with suppress(OSError):
        fields = stat.read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    return 0


def _listening(port: int) -> Iterator[str]:
    """The sockets that listen on this port, as links in a process's folder show them."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield f"socket:[{fields[9]}]"
