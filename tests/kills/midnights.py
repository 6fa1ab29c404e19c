"""Time zones in which a day ends when a test wants it to: no place on earth has a midnight every few minutes."""

from __future__ import annotations

import os
import struct
import zoneinfo
from datetime import UTC, datetime, timedelta
from pathlib import Path

VARIABLE = "PYTHONTZPATH"
"""Where Python looks for zones: set before any process of the deployment is started."""
_DAY_S = 86_400


def path(folder: Path) -> str:
    """The value of that variable: this folder, then where zones are otherwise."""
    return os.pathsep.join([str(folder), *zoneinfo.TZPATH])


def zone(folder: Path, midnight: datetime) -> str:
    """The name of a new zone, in this folder, whose next day begins at this moment; it has no clock changes."""
    begins_s = int(midnight.astimezone(UTC).timestamp()) % _DAY_S
    ahead_s = -begins_s if begins_s <= _DAY_S // 2 else _DAY_S - begins_s
    name = f"Midnight{midnight:%H%M%S}"
    (folder / name).write_bytes(_file(ahead_s))
    return name


def _file(ahead_s: int) -> bytes:
    """A zone of one offset, as `tzfile(5)` has it: version 2 repeats the data, and ends with a rule."""
    header = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, 0, 1, 4)
    block = header + struct.pack(">lBB4s", ahead_s, 0, 0, b"TST\0")
    behind = timedelta(seconds=abs(ahead_s))
    return block + block + f"\n<TST>{'-' if ahead_s > 0 else ''}{behind}\n".encode()
