"""How a provider that says "too much" is slowed down for, and how the pace comes back; never above its rate.

On the double of Redis, which `tests/contract/test_scripts.py` holds against the real scripts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers import limits, throttles
from consumers.throttles import LANE, Throttle
from schemas import keys
from schemas.messages import Channel
from schemas.outcomes import Kind, Outcome, Scope
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_redis import MemoryRedis

RATE, BURST, RESERVED, LIFE_MS = 50.0, 20, 0.3, 200
ADA, BOB = "ada@example.org", "bob@example.org"


@dataclass
class Provider:
    """Its buckets and throttles, workers that ask for tokens, and what they got when."""

    clock: ManualClock = field(default_factory=ManualClock)
    granted: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.redis = MemoryRedis(self.clock, is_strict=True)
        self.throttle = Throttle("gateway")

    def take(self, worker: str, kind: str, wanted: int) -> int:
        """Tokens for calls made at once: none is held on."""
        words = (f"{worker}/{kind}", kind, 0, wanted, RATE, BURST, RESERVED, LIFE_MS, "email", 0)
        count, _ = self.redis.run(limits.TAKE, (keys.redis_bucket("gateway"),), *words)
        self.granted.append((round(self.clock.steady_s() * 1000), count))
        return int(count)

    def says(self, scope: Scope = Scope.LANE, wait_ms: int | None = None, address: str = ADA) -> None:
        """To one worker, which tells the others."""
        self.throttle.note(Outcome(Kind.THROTTLE, retry_after_ms=wait_ms, scope=scope), Channel.EMAIL, address)
        self.throttle.ask_record(self)  # type: ignore[arg-type]

    def run(self, script: Any, touched: Any, *args: Any) -> None:
        self.redis.run(script, touched, *args)

    def paused(self) -> throttles.Paused:
        return self.throttle.read(self.redis.reply("HGETALL", keys.redis_throttles("gateway")), self.clock.now_ms())

    def factor(self) -> float:
        reply = self.redis.reply("HMGET", keys.redis_bucket("gateway"), "f", "ft")
        return self.throttle.read_factor(reply, self.clock.now_ms())

    def drained(self, ms: int, every_ms: int = 20) -> int:
        """What a greedy worker gets in so long a time."""
        got = 0
        for _ in range(ms // every_ms):
            self.clock.advance(every_ms)
            got += self.take("greedy", "transactional", 100)
        return got


steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 3_000)),
        st.tuples(st.just("take"), st.sampled_from(["a", "b"]), st.sampled_from(["bulk", "transactional"])),
        st.tuples(st.just("say"), st.sampled_from([None, 1_000, 4_000])),
        st.tuples(st.just("set back"), st.integers(1, 3_600_000)),
    ),
    max_size=60,
)


@given(steps)
def test_no_window_holds_more_than_rate_times_time_and_the_burst_whatever_the_provider_says(
    steps: list[tuple[Any, ...]],
) -> None:
    provider = Provider()
    for step in steps:
        match step:
            case ("wait", ms):
                provider.clock.advance(ms)
            case ("take", worker, kind):
                provider.take(worker, kind, 15)
            case ("say", wait_ms):
                provider.says(wait_ms=wait_ms)
            case ("set back", ms):
                provider.clock.jump(-ms)
    for first, (since_ms, _) in enumerate(provider.granted):
        total = 0
        for at_ms, count in provider.granted[first:]:
            total += count
            assert total <= RATE * (at_ms - since_ms) / 1000 + BURST


@given(st.integers(1, 5), st.integers(0, 20_000))
def test_after_being_told_the_pace_is_halved_and_climbs_back_no_faster_than_a_twentieth_a_second(
    times: int, ms: int
) -> None:
    provider = Provider()
    for _ in range(times):
        provider.clock.advance(2_000)
        provider.says()
    low = provider.factor()
    got, seconds = provider.drained(ms), ms / 1000
    assert got <= RATE * seconds * min(1.0, low + 0.05 * seconds) + 1
    assert provider.factor() == pytest.approx(min(1.0, low + 0.05 * (ms // 20 * 20) / 1000), abs=0.001)


def test_many_calls_that_say_the_same_together_are_one_step_down() -> None:
    provider = Provider()
    for _ in range(50):
        provider.says()
        provider.clock.advance(10)
    assert 0.5 <= provider.factor() < 0.53


def test_a_provider_that_says_it_all_the_time_still_gets_a_part_of_its_rate() -> None:
    provider = Provider()
    for _ in range(30):
        provider.says()
        provider.clock.advance(1_000)
    assert 0.1 <= provider.factor() <= 0.3
    provider.clock.advance(20_000)
    assert provider.factor() == 1.0


def test_until_the_time_it_named_nothing_goes_there_at_all() -> None:
    provider = Provider()
    assert provider.take("a", "bulk", 5)
    provider.says(wait_ms=10_000)
    assert provider.paused() == {LANE: 10_000}
    assert provider.drained(9_980) == 0
    assert provider.drained(1_000) > 0
    assert provider.paused() == {}


def test_a_later_and_shorter_wish_does_not_end_a_longer_one() -> None:
    provider = Provider()
    provider.says(wait_ms=10_000)
    provider.says(wait_ms=1_000)
    assert provider.paused() == {LANE: 10_000}
    assert provider.drained(9_000) == 0


HOUR_MS = 3_600_000


class TestAServerWhoseClockIsSetBack:
    """By an hour, as somebody finds that it was wrong."""

    def test_a_provider_goes_on_at_its_rate(self) -> None:
        provider = Provider()
        assert provider.drained(2_000) > 0
        provider.clock.jump(-HOUR_MS)
        assert provider.drained(2_000) >= 0.9 * RATE * 2

    def test_what_a_dead_worker_held_does_not_count_until_the_clock_is_there_again(self) -> None:
        provider = Provider()
        words = ("dead/bulk", "bulk", 0, 7, RATE, BURST, RESERVED, LIFE_MS, "email", 0)
        assert provider.redis.run(limits.TAKE, (keys.redis_bucket("gateway"),), *words)[0] == 7
        provider.clock.jump(-HOUR_MS)
        provider.take("a", "bulk", 10)
        provider.clock.advance(1_100)
        assert provider.take("a", "bulk", 10) == 7, "all that bulk may hold"

    def test_a_slowed_down_provider_climbs_back_as_before(self) -> None:
        provider = Provider()
        provider.take("a", "bulk", 5)
        provider.says()
        provider.clock.jump(-HOUR_MS)
        assert provider.drained(20_000) > 0
        assert provider.factor() == 1.0

    def test_a_pause_lasts_for_as_long_as_it_was_asked_for(self) -> None:
        provider = Provider()
        assert provider.take("a", "bulk", 5)
        provider.says(wait_ms=10_000)
        provider.clock.jump(-HOUR_MS)
        assert provider.drained(9_980) == 0
        assert provider.drained(1_000) > 0

    def test_a_pause_that_an_older_release_wrote_is_kept(self) -> None:
        """It knows nothing of the field by which a clock that was set back is noticed, and leaves it as it is."""
        provider = Provider()
        assert provider.take("a", "bulk", 5)
        free_us = (provider.clock.now_ms() + 10_000) * 1000
        provider.redis.reply("HSET", keys.redis_bucket("gateway"), "a", 0, "b", 0, "t", free_us)
        assert provider.drained(9_980) == 0
        assert provider.drained(1_000) > 0


def test_one_recipient_or_domain_waits_and_the_pace_of_all_stays() -> None:
    provider = Provider()
    provider.says(Scope.RECIPIENT, 60_000, ADA)
    paused = provider.paused()
    assert throttles.left_ms(paused, Channel.EMAIL, ADA) == 60_000
    assert throttles.left_ms(paused, Channel.EMAIL, BOB) == 0
    provider.says(Scope.DOMAIN, 30_000, "carl@EXAMPLE.org")
    paused = provider.paused()
    assert throttles.left_ms(paused, Channel.EMAIL, BOB) == 30_000
    assert throttles.left_ms(paused, Channel.EMAIL, "mia@example.com") == 0
    assert not any("@" in name for name in paused), "no address lies there"
    assert provider.factor() == 1.0


def test_the_limit_of_our_only_sender_is_the_providers() -> None:
    provider = Provider()
    provider.says(Scope.SENDER, 5_000)
    assert provider.paused() == {LANE: 5_000} and provider.factor() == 0.5


def test_what_thousands_of_recipients_want_less_of_is_kept_for_a_thousand() -> None:
    provider = Provider()
    for number in range(1_500):
        provider.says(Scope.RECIPIENT, 60_000, f"user{number}@example.org")
    assert len(provider.paused()) == 1_000
    provider.clock.advance(60_001)
    provider.says(Scope.RECIPIENT, 60_000, ADA)
    assert len(provider.paused()) == 1, "those that are over make room"
