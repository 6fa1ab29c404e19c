"""Reading callbacks of in-house gateways: one report or many, and whatever else they may hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from producers.callbacks.http_provider import read
from retry_topics.dead_letters import STOPPING
from schemas.errors import Poison
from schemas.messages import EventKind, RawCallback

RECEIVED_MS = 1_796_000_000_000


def raw(body: Any) -> RawCallback:
    return RawCallback("", "gateway", body if isinstance(body, bytes) else json.dumps(body).encode(), {}, RECEIVED_MS)


def test_one_report_and_a_list_of_them_are_read_alike() -> None:
    item = {"type": "delivered", "reference": "r1", "id": "m1", "at": "2026-11-01T08:00:00Z", "detail": "x" * 500}
    [report] = read(raw(item))
    assert read(raw([item, item])) == [report, report]
    assert (report.kind, report.reference, report.message_id) == (EventKind.DELIVERED, "r1", "m1")
    assert report.at_ms == 1793520000000
    assert len(report.detail) == 200


@pytest.mark.parametrize(
    ("kind", "suppresses"), [("delivered", False), ("undelivered", False), ("bounced", True), ("complained", True)]
)
def test_only_a_bounce_and_a_complaint_suppress_the_address(kind: str, suppresses: bool) -> None:
    [report] = read(raw({"type": kind, "reference": "r1"}))
    assert report.suppress == suppresses


def test_an_invented_kind_is_skipped_and_its_neighbours_are_read() -> None:
    reports = read(raw([{"type": "teleported", "reference": "r1"}, 7, None, {"type": "delivered", "reference": "r2"}]))
    assert [report.reference for report in reports] == ["r2"]


@pytest.mark.parametrize(
    "at", [None, "yesterday", "2026-11-01T08:00:00", 12, "2999-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"]
)
def test_an_odd_or_future_time_counts_as_the_time_it_was_received(at: Any) -> None:
    [report] = read(raw({"type": "delivered", "reference": "r1", "at": at}))
    assert report.at_ms == RECEIVED_MS


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"type": "\xff"}'])
def test_a_body_that_is_not_json_is_the_providers_fault_and_no_reason_to_stop(body: bytes) -> None:
    with pytest.raises(Poison) as poison:
        read(raw(body))
    assert poison.value.reason not in STOPPING


@pytest.mark.parametrize("body", [[], {}, 7, "x", None])
def test_json_that_reports_nothing_reports_nothing(body: Any) -> None:
    assert read(raw(body)) == []
