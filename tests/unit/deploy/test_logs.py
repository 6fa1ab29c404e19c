"""Logs can be read by machines and by people, and carry the fields of their event."""

from __future__ import annotations

import json
import logging
import sys

from deploy import logs


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
    assert "boom" in line["trace"] and line["at"].endswith("Z")


def test_people_get_a_short_line_with_the_level_only_when_it_matters() -> None:
    short = logs.ShortLines("api")
    assert short.format(_record()).endswith("delivery.sent delivery_key=k attempt=2 at=1")
    assert "WARNING delivery.sent" in short.format(_record(logging.WARNING))
