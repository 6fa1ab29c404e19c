"""Where a setting comes from, as whoever must change it is told: a line of the file, or a variable."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFIX, WITHIN = "TIDINGS_", "__"
SHORT_NAMES = {"KAFKA_BOOTSTRAP": ("kafka", "bootstrap"), "REDIS_URL": ("redis", "url")}
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Origins:
    """file: of which `text` was read; None: there is none. environ: wins over it."""

    file: Path | None
    text: str
    environ: Mapping[str, str]

    def told(self, path: tuple[str, ...]) -> str:
        """`VARIABLE: ` or `file:line: ` of a setting; of its section when neither names it; else ""."""
        if variable := self._variable(path):
            return f"{variable}: "
        line = find_line(self.text, path)
        return f"{self.file}:{line}: " if self.file is not None and line else ""

    def _variable(self, path: tuple[str, ...]) -> str:
        """The one that sets `path`, by itself or in the JSON of all that is around it; the nearest wins."""
        found = [
            (len(named), variable not in SHORT_NAMES, variable)
            for variable, value in self.environ.items()
            if value and (named := path_of(variable)) and _begins(path, named) and _holds(value, path[len(named) :])
        ]
        return max(found)[-1] if found else ""


def path_of(variable: str) -> tuple[str, ...]:
    """("api", "listen") of TIDINGS_API__LISTEN; () when it is no setting's name."""
    if variable.upper().startswith(PREFIX):
        return tuple(variable.lower().removeprefix(PREFIX.lower()).split(WITHIN))
    return SHORT_NAMES.get(variable, ())


def _begins(path: tuple[str, ...], named: tuple[str, ...]) -> bool:
    return tuple(part.lower() for part in path[: len(named)]) == named


def _holds(value: str, path: tuple[str, ...]) -> bool:
    """Whether this text is the setting, or JSON that has it within."""
    if not path:
        return True
    try:
        inside: Any = json.loads(value)
    except ValueError:
        return False
    for part in path:
        if isinstance(inside, list):
            inside = dict(enumerate(inside)).get(int(part) if part.isdecimal() else -1, _ABSENT)
        else:
            inside = inside.get(part, _ABSENT) if isinstance(inside, dict) else _ABSENT
    return inside is not _ABSENT


def find_line(text: str, path: tuple[str, ...]) -> int:
    """The line that sets `path`, or the longest beginning of it that the text names; 0 when it names none."""
    best, best_length = 0, 0
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            table = tuple(part.strip(" \"'") for part in header.group(1).split("."))
            named = table
        elif pair := re.match(r"\s*([A-Za-z0-9_.\"' -]+?)\s*=", line):
            named = (*table, *(part.strip(" \"'") for part in pair.group(1).split(".")))
        else:
            continue
        if named == path[: len(named)] and len(named) > best_length:
            best, best_length = number, len(named)
    return best
