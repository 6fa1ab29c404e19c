"""Logs: JSON lines for machines, short lines on a terminal. Fields come from `extra`; bodies and addresses never do."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import Any, TextIO

from schemas.errors import TidingsError

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
CAUSES_MOST = 10
"""Errors of one chain, and of one group, that are told."""
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
            line["trace"] = trace(record.exc_info[1])
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
        return f"{line}\n{trace(record.exc_info[1])}" if record.exc_info else line


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller put into `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD and not name.startswith("_")}


def trace(error: BaseException | None) -> str:
    """Where an unexpected error came from, its causes first.

    Of what a library says only the kind is told: its text may hold an address, a token or a whole message.
    """
    told: list[str] = []
    while error is not None and len(told) < CAUSES_MOST:
        where = "".join(traceback.format_tb(error.__traceback__))
        told.append(f"{where}{_kind(error)}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\nwhich led to\n".join(reversed(told))


def _kind(error: BaseException) -> str:
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    if isinstance(error, BaseExceptionGroup):
        return "\n".join([f"{name} of", *(trace(one) for one in error.exceptions[:CAUSES_MOST])])
    return f"{name}: {error}" if isinstance(error, TidingsError) else name
