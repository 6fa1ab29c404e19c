"""What a worker makes of the breaker it shares with others; how it opens and closes is tested on Redis."""

from __future__ import annotations

import pytest

from consumers.breaker import Breaker, BreakerOptions, Gate
from schemas import metrics


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
