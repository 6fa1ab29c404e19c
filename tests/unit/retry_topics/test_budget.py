"""The retry budget: a tenth of the sends, and a few where there is hardly any traffic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retry_topics.budget import RetryBudget


@given(st.integers(0, 10**7), st.integers(0, 10**7))
def test_retries_never_exceed_a_tenth_of_the_sends_or_ten(sends: int, retries: int) -> None:
    if RetryBudget().allows(sends, retries):
        assert retries + 1 <= max(10, sends / 10)


def test_a_quiet_provider_may_be_retried() -> None:
    assert RetryBudget().allows(sends=0, retries=9)
    assert not RetryBudget().allows(sends=0, retries=10)


def test_a_busy_provider_is_retried_for_a_tenth_of_its_sends() -> None:
    assert RetryBudget().allows(sends=10_000, retries=999)
    assert not RetryBudget().allows(sends=10_000, retries=1_000)
