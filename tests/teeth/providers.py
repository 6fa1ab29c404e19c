"""What is promised of sick, slow and wrongly set up providers, broken one by one."""

from __future__ import annotations

from tests.teeth.patch import Patch

_STANDBY = "tests/unit/consumers/test_standby.py::"
_THROTTLES = "tests/unit/consumers/test_throttles.py::"
_BREAKER = "tests/integration/test_breaker.py::"
_OUTCOMES = "tests/contract/test_outcomes.py::"
_MAIL = "tests/contract/test_smtp_provider.py::"

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
        old="        return self._numbers.get(name)\n",
        new="        return None\n",
        test=_STANDBY + "TestCallsInDoubt::test_is_repeated_where_it_was_made_though_another_provider_is_well",
        suffers="Whoever's answer was lost gets the message from both providers, though the first knows its key.",
    ),
    Patch(
        name="uses a mail connection again that was left in the middle",
        promise=1,
        file="consumers/providers/smtp_connection.py",
        old='            self.abandon("left in the middle")\n',
        new="",
        test=_MAIL + "test_the_answer_to_a_mail_given_up_is_not_taken_for_that_of_the_next_one",
        suffers="A mail counts as sent by the answer to another one, and nobody ever gets it.",
    ),
    Patch(
        name="forgets why a mail was refused when the server closes",
        promise=3,
        file="consumers/providers/smtp_connection.py",
        old="        except NoAnswer:\n            self._keep = False\n",
        new="        except NoAnswer:\n            raise\n",
        test=_MAIL + "test_a_refusal_counts_although_the_server_closes_after_it",
        suffers="An address that does not exist is written to until the message expires, and never suppressed.",
    ),
    Patch(
        name="lets a call last as long as its deadline",
        promise=1,
        file="deploy/senders.py",
        old="min(given.timeout_s, settings.sending.longest_call_s)",
        new="given.timeout_s",
        test="tests/contract/test_stalls.py::test_a_stall_before_the_content_is_no_possible_duplicate_and_no_loss",
        suffers="What a stalled server cannot have taken counts as perhaps sent, and is lost where that is the choice.",
    ),
    Patch(
        name="passes on what a record says its trace is",
        promise=10,
        file="consumers/calling.py",
        old="traces.carried(sending.record.header(traces.HEADER))",
        new='(sending.record.header(traces.HEADER) or b"").decode("ascii", "replace")',
        test="tests/unit/consumers/test_lane_worker.py::test_a_publishers_trace_cannot_add_a_header_to_the_call",
        suffers="Whoever may publish an event writes headers of its own into the calls of a provider.",
    ),
    Patch(
        name="does not know where a dead worker called",
        promise=2,
        file="consumers/bidding.py",
        old="ask_first(trip, bid, server_ms, seat)",
        new="ask_first(trip, bid, server_ms)",
        test=_STANDBY + "TestCallsOfDeadWorkers::test_are_repeated_where_they_were_made_whoever_is_well_by_then",
        suffers="A worker dies in an outage, and what the standby had sent comes again from the first provider.",
    ),
    Patch(
        name="forgets after the next try that a dead worker had called",
        promise=2,
        file="consumers/looking.py",
        old="doubted_at=name, doubted_at_ms=since_ms)",
        new="doubted_at=sending.delivery.doubted_at)",
        test=_STANDBY + "TestCallsOfDeadWorkers::test_are_repeated_where_they_were_made_whoever_is_well_by_then",
        suffers="A worker dies in an outage, and what the standby had sent comes again from the first provider.",
    ),
    Patch(
        name="repeats a call in doubt at another provider while Redis is away",
        promise=2,
        file="consumers/without_redis.py",
        old=" or self._is_tied(delivery, now_ms):",
        new=":",
        test="tests/unit/consumers/test_without_redis.py::test_a_call_in_doubt_is_not_repeated_at_another_provider",
        suffers="A login code comes from two providers, though the first one knows its key.",
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
