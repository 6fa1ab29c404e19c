"""What is promised of sick, slow and wrongly set up providers, broken one by one."""

from __future__ import annotations

from tests.teeth.patch import Patch

_STANDBY = "tests/unit/consumers/test_standby.py::"
_THROTTLES = "tests/unit/consumers/test_throttles.py::"
_BREAKER = "tests/integration/test_breaker.py::"
_OUTCOMES = "tests/contract/test_outcomes.py::"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="forgets with each round of probes which of them succeeded",
        promise=1,
        file="consumers/breaker_probe.lua",
        old="string.format('%.0f', now + (is_hold and stored[4] or ARGV[2])))",
        new="string.format('%.0f', now + (is_hold and stored[4] or ARGV[2])), 'good', 0)",
        test="tests/integration/test_breaker.py::"
        "test_probes_that_succeed_one_by_one_close_it_too_and_none_waits_for_the_next_round",
        suffers="After an outage codes by SMS go one in three seconds for hours, as never three come at once.",
    ),
    Patch(
        name="never tests the first provider while the second is well",
        promise=4,
        file="consumers/standby.py",
        old="            if health.state.gate is Gate.HALF_OPEN and not self._is_paused(health):",
        new="            if health.state.gate is Gate.HALF_OPEN and number and not self._is_paused(health):",
        test=_STANDBY + "test_a_provider_that_may_be_back_is_tested_though_another_one_is_well",
        suffers="After a minute's outage all goes through the dearer provider for ever.",
    ),
    Patch(
        name="draws the standby's share anew at each try",
        promise=2,
        file="consumers/standby.py",
        old="        return zlib.crc32(sending.bid.delivery_key.encode()) < self._drawn_below",
        new="        return zlib.crc32(str(sending.record.offset).encode()) < self._drawn_below",
        test=_STANDBY + "test_the_same_delivery_goes_to_the_same_provider_whoever_sends_it",
        suffers="The call of a dead worker is repeated at a provider that does not know its key: two login codes.",
    ),
    Patch(
        name="repeats a call in doubt at whatever provider is well",
        promise=2,
        file="consumers/standby.py",
        old="        return self._numbers.get(delivery.doubted_at)\n",
        new="        return None\n",
        test=_STANDBY + "TestCallsInDoubt::test_is_repeated_where_it_was_made_though_another_provider_is_well",
        suffers="Whoever's answer was lost gets the message from both providers, though the first knows its key.",
    ),
    Patch(
        name="gives a throttled provider all of its rate at once again",
        promise=8,
        file="consumers/limits_factor.lua",
        old="/ 1000000 * 0.05)",
        new="/ 1000000 * 50)",
        test="tests/integration/test_limits.py"
        "::test_told_that_it_is_too_much_all_workers_slow_down_at_once_and_come_back_step_by_step",
        suffers="A provider that says 429 is called as fast as before, until it blocks the account.",
    ),
    Patch(
        name="hands out tokens while the provider wants to be left alone",
        promise=8,
        file="consumers/throttles_note.lua",
        old="    from, filled = math.max(from, free), math.max(filled, free)",
        new="    from, filled = math.max(from, free), math.max(filled, now_us)",
        test="tests/integration/test_limits.py::test_told_to_wait_no_worker_calls_until_then",
        suffers="Retry-After is kept by the one message that heard it; all others go on knocking.",
    ),
    Patch(
        name="goes on calling a provider that was found to be down",
        promise=8,
        file="consumers/calling.py",
        old="        has_opened = seat.breaker.is_open and not sending.is_probe",
        new="        has_opened = False",
        test="tests/unit/consumers/test_send_decisions.py"
        "::TestBreaker::test_what_was_looked_at_before_it_opened_is_not_called_after_that",
        suffers="A provider that is down gets a thousand calls more from every worker, and each of them a retry.",
    ),
    Patch(
        name="believes every dead token",
        promise=2,
        file="consumers/breaker.py",
        old="        return dead > self._options.dead_most * max(self._options.least, known)",
        new="        return known < 0",
        test=_BREAKER + "TestDeadTokens::test_when_more_than_a_fifth_look_dead_they_are_doubted_by_every_worker",
        suffers="One wrong app id in the settings, and every push token of the company is deleted.",
    ),
    Patch(
        name="lets calls close what a person opened",
        promise=3,
        file="consumers/breaker_record.lua",
        old="if is_open and reason == 'operator' then",
        new="if is_open and reason == 'nobody' then",
        test=_BREAKER + "test_what_a_person_opened_only_a_person_closes",
        suffers="The provider that was taken out by hand is called again by itself.",
    ),
    Patch(
        name="stops a whole provider for what one mail domain did not want",
        promise=5,
        file="consumers/providers/smtp_replies.py",
        old="        scope, wait_ms = Scope.DOMAIN, ALONE_MS",
        new="        scope, wait_ms = Scope.LANE, ALONE_MS",
        test=_OUTCOMES + "test_each_class_of_answers_has_its_decision",
        suffers="One large mailbox provider is slow for an hour, and nobody anywhere gets mail.",
    ),
)
