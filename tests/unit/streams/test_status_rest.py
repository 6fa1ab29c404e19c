"""When `streams status` gathers more events before it merges again, and when it must not."""

from __future__ import annotations

from schemas.records import Record
from streams.agents import BATCH_RECORDS, REST_S, rest_s


def records(count: int, value_bytes: int) -> list[Record]:
    return [Record("delivery.status", 0, offset, b"row", b"v" * value_bytes, (), 0) for offset in range(count)]


def test_the_status_of_single_notifications_is_merged_as_it_comes() -> None:
    assert rest_s(records(20, 100)) == 0


def test_while_a_campaign_runs_more_events_are_gathered_before_rows_are_written_again() -> None:
    assert rest_s(records(2, 6_000)) == REST_S


def test_what_heaped_up_is_worked_off_without_a_pause() -> None:
    assert rest_s(records(BATCH_RECORDS, 6_000)) == 0
