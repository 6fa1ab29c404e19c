"""Logs can be read by machines and by people, and carry the fields of their event."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from deploy import logs
from schemas.errors import StoreDown


def _record(level: int = logging.INFO, with_error: bool = False) -> logging.LogRecord:
    try:
        raise ValueError("boom")
    except ValueError:
        trace = sys.exc_info() if with_error else None
    extra = {"delivery_key": "k", "attempt": 2, "at": 1}
    return logging.getLogger("consumers.lane_worker").makeRecord(
        "consumers.lane_worker", level, "f.py", 1, "delivery.sent", (), trace, extra=extra
    )


def test_machines_get_one_json_object_a_line() -> None:
    line = json.loads(logs.JsonLines("work push.bulk").format(_record(with_error=True)))
    told = ("event", "role", "level", "delivery_key", "attempt")
    assert [line[name] for name in told] == ["delivery.sent", "work push.bulk", "info", "k", 2]
    assert "ValueError" in line["trace"] and "test_logs.py" in line["trace"] and line["at"].endswith("Z")


def test_people_get_a_short_line_with_the_level_only_when_it_matters() -> None:
    short = logs.ShortLines("api")
    assert short.format(_record()).endswith("delivery.sent delivery_key=k attempt=2 at=1")
    assert "WARNING delivery.sent" in short.format(_record(logging.WARNING))


@pytest.mark.parametrize("lines", [logs.JsonLines("work push.bulk"), logs.ShortLines("work push.bulk")])
def test_what_an_unexpected_error_says_stays_out_of_the_log(lines: logging.Formatter) -> None:
    """A library's words may hold whom and what was written to; ours never do."""
    address, letter = "@".join(("ada", "example.org")), "Dear " + "Ada"
    try:
        try:
            raise ExceptionGroup(address, [UnicodeEncodeError("ascii", letter, 2, 3, address)])
        except ExceptionGroup as error:
            raise StoreDown("Redis does not answer") from error
    except StoreDown:
        record = logging.makeLogRecord(
            {"msg": "call.failed", "levelno": 40, "levelname": "ERROR", "exc_info": sys.exc_info()}
        )
    line = lines.format(record)
    assert address not in line and letter not in line
    assert line.index("UnicodeEncodeError") < line.index("StoreDown: Redis does not answer")
