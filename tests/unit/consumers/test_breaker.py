"""What a worker makes of the breaker it shares with others; how it opens and closes is tested on Redis."""

from __future__ import annotations

import pytest

from consumers.breaker import Breaker, BreakerOptions, Gate
from schemas import metrics
from schemas.outcomes import Kind


@pytest.mark.parametrize(
    ("reply", "gate", "shown"),
    [
        ((None, None, None, None), Gate.CLOSED, 0),
        ((b"open", b"900", b"failures", None), Gate.HALF_OPEN, 1),
        ((b"open", b"1500", b"failures", None), Gate.OPEN, 2),
    ],
)
def test_the_state_that_a_worker_acts_on_is_the_one_that_dashboards_show(
    reply: tuple[bytes | None, ...], gate: Gate, shown: int
) -> None:
    assert Breaker("gateway", BreakerOptions()).read(reply, now_ms=1_000).gate is gate
    assert metrics.REGISTRY.get_sample_value("tidings_breaker_state", {"provider": "gateway"}) == shown


def noted(breaker: Breaker, kind: Kind, calls: int) -> Breaker:
    for _ in range(calls):
        breaker.note(kind, is_probe=False)
    return breaker


def test_a_worker_whose_own_calls_fail_makes_no_more_before_it_is_told() -> None:
    """It may be long until it hears what its telling came to: a busy worker made hundreds of calls more."""
    breaker = noted(Breaker("gateway", BreakerOptions()), Kind.DONE, 200)
    assert not noted(breaker, Kind.RETRY, 50).is_open
    assert noted(breaker, Kind.RETRY, 1).is_open


def test_a_few_failures_of_its_own_say_nothing() -> None:
    assert not noted(Breaker("gateway", BreakerOptions()), Kind.RETRY, 19).is_open


def test_what_all_workers_see_together_counts_more_than_what_one_sees() -> None:
    breaker = noted(Breaker("gateway", BreakerOptions()), Kind.RETRY, 20)
    assert breaker.is_open
    breaker.read_record([b"", 1_000, 20, 100, 0, b""])
    assert not breaker.is_open
