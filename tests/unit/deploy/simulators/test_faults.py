"""Faults come as ordered: in the shares asked for, the same in every run, and only for as long as asked."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.simulators import faults
from deploy.simulators.ledger import short_hash


def test_errors_hangs_and_dropped_replies_come_in_their_shares() -> None:
    ordered = faults.parse({"errors": {"500": 0.2}, "refusals": {"dead_address": 0.1}, "hang": 0.05, "drop_reply": 0.1})
    fates = Counter(ordered.fate(short_hash(f"key {n}"), 1) for n in range(20_000))
    shares = {fate: round(count / 20_000, 2) for fate, count in fates.items()}
    assert shares == {"": 0.55, "500": 0.2, "dead_address": 0.1, "hang": 0.05, "drop_reply": 0.1}


@given(st.integers(0, 2**64 - 1), st.integers(1, 1000), st.integers(0, 1000))
def test_a_call_meets_the_same_fate_in_every_run(key: int, call: int, seed: int) -> None:
    ordered = faults.Faults(seed=seed, errors={"500": 0.5})
    assert ordered.fate(key, call) == ordered.fate(key, call)
    assert 0 <= faults.chance(seed, key, call) < 1


def test_a_retry_of_the_same_key_draws_again() -> None:
    ordered = faults.Faults(errors={"500": 0.5})
    assert {ordered.fate(short_hash("one"), call) for call in range(1, 30)} == {"", "500"}


@pytest.mark.parametrize(
    ("ordered", "named"),
    [({"errros": {}}, "errros"), ({"errors": 3}, "errors"), ({"hang": "x"}, "hang"), ({"retry_after_form": 1}, "form")],
)
def test_a_mistyped_fault_is_refused_by_name(ordered: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        faults.parse(ordered)


def test_retry_after_is_told_in_seconds_or_as_a_date() -> None:
    now = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
    assert faults.Faults(retry_after_s=7).retry_after(now) == "7"
    told = faults.Faults(retry_after_s=7, retry_after_form="date").retry_after(now)
    assert (parsedate_to_datetime(told) - now).total_seconds() == 7


def test_faults_ordered_for_some_calls_end_by_themselves() -> None:
    board = faults.Board()
    board.set("/send", faults.Faults(errors={"500": 1}, calls=2))
    fates = [board.for_call("/send").fate(1, n) for n in range(4)]
    assert fates == ["500", "500", "", ""]
    assert board.for_call("/sms").fate(1, 1) == ""
