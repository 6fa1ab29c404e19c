"""Logs: JSON lines for machines, short lines on a terminal. Fields come from `extra`; bodies and addresses never do."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NOISY = {"aiokafka": logging.WARNING, "faust": logging.WARNING, "mode": logging.WARNING, "asyncio": logging.WARNING}


def set_up(role: str, stream: TextIO = sys.stderr, level: int = logging.INFO) -> None:
    """Called once by every process, before its first event. role: e.g. "work push.bulk"."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ShortLines(role) if stream.isatty() else JsonLines(role))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for library, least in _NOISY.items():
        logging.getLogger(library).setLevel(least)


class JsonLines(logging.Formatter):
    """One object a line: time, level, role, event, then the fields of `extra`."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            **fields(record),  # first: one of the same name must not hide when or what
            "at": f"{at}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "role": self._role,
            "event": record.getMessage(),
            "logger": record.name,
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class ShortLines(logging.Formatter):
    """For a person: time, role, event and fields; the level only when it is above info."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname} " if record.levelno > logging.INFO else ""
        told = " ".join(f"{name}={value}" for name, value in fields(record).items())
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{at} {self._role:<20} {level}{record.getMessage()} {told}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller put into `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD and not name.startswith("_")}
