"""The ladder: every answer of a provider leads to one verdict, and the climb always ends."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry_topics import ladder
from schemas.messages import Channel, EventKind
from schemas.outcomes import Kind, Outcome
from schemas.policies import OnUnknown
from schemas.reasons import ParkReason, Reason
from schemas.topics import TIERS

NOW = 1_796_000_000_000
DAY = 86_400_000
FIRST = ladder.Attempt(Channel.PUSH, call=1, tries=0, expires_at_ms=NOW + DAY, on_unknown=OnUnknown.RISK_REPEAT)
COUNTED = (Kind.RETRY, Kind.UNKNOWN)
UNCOUNTED = (Kind.NOT_PROCESSED, Kind.THROTTLE, Kind.AUTH_CONFIG)

attempts = st.builds(
    ladder.Attempt,
    channel=st.sampled_from(list(Channel)),
    call=st.integers(1, 500),
    tries=st.integers(0, ladder.DEFAULT.tries_most),
    expires_at_ms=st.integers(NOW - DAY, NOW + 21 * DAY),
    on_unknown=st.sampled_from(list(OnUnknown)),
)
outcomes = st.builds(
    Outcome,
    kind=st.sampled_from(list(Kind)),
    retry_after_ms=st.none() | st.integers(0, 3_600_000),
)


@given(outcomes, attempts, st.randoms(use_true_random=False), st.booleans())
def test_every_answer_has_a_verdict_and_no_wait_reaches_past_the_expiry(
    outcome: Outcome, attempt: ladder.Attempt, rng: Random, over_budget: bool
) -> None:
    verdict = ladder.judge(outcome, attempt, NOW, rng, over_budget=over_budget)
    if verdict.kind in (EventKind.RETRYING, EventKind.HELD):
        assert NOW <= verdict.until_ms < attempt.expires_at_ms
        assert verdict.until_ms - NOW >= (outcome.retry_after_ms or 0)
    else:
        assert verdict.until_ms == 0
        assert not verdict.tier


@given(outcomes, attempts, st.randoms(use_true_random=False), st.booleans())
def test_a_waiting_delivery_lies_in_the_tier_whose_range_covers_its_wait(
    outcome: Outcome, attempt: ladder.Attempt, rng: Random, over_budget: bool
) -> None:
    verdict = ladder.judge(outcome, attempt, NOW, rng, over_budget=over_budget)
    if verdict.kind is EventKind.RETRYING:
        shortest, longest = ladder.DEFAULT.range_ms(verdict.tier)
        assert shortest <= verdict.until_ms - NOW <= longest
    if verdict.kind is EventKind.HELD:
        assert verdict.until_ms - NOW > max(TIERS.values())


@given(st.sampled_from(COUNTED), st.randoms(use_true_random=False))
def test_the_climb_ends_after_eight_counted_tries(kind: Kind, rng: Random) -> None:
    attempt, calls = FIRST, 0
    while True:
        calls += 1
        verdict = ladder.judge(Outcome(kind), attempt, NOW, rng)
        if verdict.kind is not EventKind.RETRYING:
            break
        attempt = replace(attempt, call=attempt.call + 1, tries=verdict.tries)
    assert calls == ladder.DEFAULT.tries_most == verdict.tries
    assert (verdict.kind, verdict.reason) == (EventKind.FAILED, Reason.TRIES_USED_UP)
    assert verdict.park == ParkReason.TRIES_USED_UP


def test_the_ceilings_double_from_one_second_to_five_minutes() -> None:
    assert [ladder.DEFAULT.ceiling_ms(n) // 1000 for n in range(1, 12)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert ladder.DEFAULT.ceiling_ms(10_000) == 300_000


@given(st.integers(0, 6), st.randoms(use_true_random=False))
def test_full_jitter_stays_below_its_ceiling(tries: int, rng: Random) -> None:
    verdict = ladder.judge(Outcome(Kind.RETRY), replace(FIRST, tries=tries), NOW, rng)
    assert 0 <= verdict.until_ms - NOW <= 1_000 * 2**tries


def test_full_jitter_uses_the_whole_range_so_that_a_burst_does_not_come_back_as_a_burst() -> None:
    rng = Random(7)
    waits = [ladder.judge(Outcome(Kind.RETRY), replace(FIRST, tries=5), NOW, rng).until_ms - NOW for _ in range(500)]
    assert min(waits) < 2_000
    assert max(waits) > 30_000


@pytest.mark.parametrize("kind", UNCOUNTED)
def test_a_message_the_provider_never_looked_at_loses_no_try(kind: Kind) -> None:
    verdict = ladder.judge(Outcome(kind), replace(FIRST, tries=7, call=30), NOW, Random(1))
    assert (verdict.kind, verdict.tries) == (EventKind.RETRYING, 7)


@pytest.mark.parametrize("kind", [*COUNTED, *UNCOUNTED])
def test_the_providers_own_wish_is_respected(kind: Kind) -> None:
    verdict = ladder.judge(Outcome(kind, retry_after_ms=480_000), FIRST, NOW, Random(1))
    assert (verdict.tier, verdict.until_ms) == ("10m", NOW + 480_000)


def test_a_wish_beyond_the_longest_tier_goes_to_hold() -> None:
    verdict = ladder.judge(Outcome(Kind.RETRY, retry_after_ms=600_001), FIRST, NOW, Random(1))
    assert (verdict.kind, verdict.until_ms) == (EventKind.HELD, NOW + 600_001)


def test_a_delivery_that_would_come_back_too_late_expires_now() -> None:
    soon = replace(FIRST, expires_at_ms=NOW + 5_000)
    verdict = ladder.judge(Outcome(Kind.THROTTLE, retry_after_ms=5_000), soon, NOW, Random(1))
    assert (verdict.kind, verdict.reason) == (EventKind.EXPIRED, Reason.EXPIRED)


def test_an_unknown_outcome_is_repeated_and_said_to_be_unknown() -> None:
    verdict = ladder.judge(Outcome(Kind.UNKNOWN), FIRST, NOW, Random(1))
    assert (verdict.kind, verdict.reason, verdict.is_unknown) == (EventKind.RETRYING, Reason.UNKNOWN_OUTCOME, True)


def test_an_unknown_outcome_of_the_last_try_fails_and_is_said_to_be_unknown() -> None:
    verdict = ladder.judge(Outcome(Kind.UNKNOWN), replace(FIRST, tries=7), NOW, Random(1))
    assert (verdict.kind, verdict.reason, verdict.is_unknown) == (EventKind.FAILED, Reason.TRIES_USED_UP, True)


def test_an_unknown_outcome_that_can_no_longer_be_repeated_stays_unconfirmed_and_is_not_told_as_unsent() -> None:
    last_moment = replace(FIRST, expires_at_ms=NOW + 1)
    verdict = ladder.judge(Outcome(Kind.UNKNOWN, retry_after_ms=5), last_moment, NOW, Random(1))
    assert (verdict.kind, verdict.reason) == (EventKind.UNCONFIRMED, Reason.UNKNOWN_OUTCOME)


def test_an_unknown_outcome_stays_unconfirmed_where_a_repeat_is_worse_than_a_loss() -> None:
    verdict = ladder.judge(Outcome(Kind.UNKNOWN), replace(FIRST, on_unknown=OnUnknown.RISK_LOSS), NOW, Random(1))
    assert (verdict.kind, verdict.is_unknown) == (EventKind.UNCONFIRMED, False)


def test_over_budget_a_retry_waits_in_the_next_longer_tier_and_loses_no_try() -> None:
    for seed in range(50):
        verdict = ladder.judge(Outcome(Kind.RETRY), replace(FIRST, tries=7), NOW, Random(seed), over_budget=True)
        assert (verdict.kind, verdict.tries) == (EventKind.RETRYING, 7)
        assert verdict.tier == "10m" or verdict.until_ms - NOW > 10_000


@pytest.mark.parametrize(
    ("kind", "channel", "reason", "park", "suppress"),
    [
        (Kind.DROP, Channel.SMS, Reason.REFUSED_BY_PROVIDER, ParkReason.REFUSED, False),
        (Kind.DEAD_ADDRESS, Channel.PUSH, Reason.DEAD_DEVICE, "", False),
        (Kind.DEAD_ADDRESS, Channel.EMAIL, Reason.ADDRESS_REFUSED, "", False),
        (Kind.SOFT_BOUNCE, Channel.EMAIL, Reason.ADDRESS_REFUSED, "", False),
        (Kind.SUPPRESS, Channel.EMAIL, Reason.ADDRESS_REFUSED, "", True),
        (Kind.BLOCKED, Channel.EMAIL, Reason.BLOCKED_BY_PROVIDER, "", False),
    ],
)
def test_a_refusal_is_an_end_with_its_reason(
    kind: Kind, channel: Channel, reason: Reason, park: str, suppress: bool
) -> None:
    verdict = ladder.judge(Outcome(kind), replace(FIRST, channel=channel), NOW, Random(1))
    assert (verdict.kind, verdict.reason, verdict.park, verdict.suppress) == (
        EventKind.FAILED,
        reason,
        park,
        suppress,
    )


def test_an_accepted_message_is_sent() -> None:
    assert ladder.judge(Outcome(Kind.DONE), FIRST, NOW, Random(1)).kind is EventKind.SENT


OTHER = ladder.LadderOptions(tries_most=3, base_ms=20, cap_ms=50, tiers={"10s": 15, "1m": 30, "10m": 60})


@given(outcomes, attempts, st.randoms(use_true_random=False), st.booleans())
def test_a_deployment_with_other_waits_has_them_in_the_same_tiers(
    outcome: Outcome, attempt: ladder.Attempt, rng: Random, over_budget: bool
) -> None:
    verdict = ladder.judge(outcome, attempt, NOW, rng, OTHER, over_budget=over_budget)
    if verdict.kind is EventKind.RETRYING:
        shortest, longest = OTHER.range_ms(verdict.tier)
        assert shortest <= verdict.until_ms - NOW <= longest
    if verdict.kind is EventKind.HELD:
        assert verdict.until_ms - NOW > 60


def test_a_deployment_may_allow_fewer_tries_and_shorter_waits() -> None:
    assert [OTHER.ceiling_ms(number) for number in (1, 2, 3, 4)] == [20, 40, 50, 50]
    last = ladder.judge(Outcome(Kind.RETRY), replace(FIRST, tries=2), NOW, Random(1), OTHER)
    assert (last.kind, last.reason) == (EventKind.FAILED, Reason.TRIES_USED_UP)
