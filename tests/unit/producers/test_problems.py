"""What a caller is told when something is away."""

from __future__ import annotations

import orjson
import pytest

from producers.api import problems
from schemas.errors import StoreDown, Transient


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StoreDown("connection refused by 10.0.0.7"), "Redis does not answer"),
        (Transient("the owner of the status of n/1 does not answer"), "a part of Tidings is unavailable"),
    ],
)
def test_a_caller_hears_what_is_away_and_that_nothing_was_lost(error: Exception, said: str) -> None:
    answer = problems.of(error, "r-1")
    assert isinstance(answer.body, bytes)
    told = orjson.loads(answer.body)
    assert answer.status == 503 and answer.headers["Retry-After"]
    assert told["detail"].startswith(said) and told["detail"].endswith("nothing was lost, try again")
    assert str(error) not in told["detail"]
