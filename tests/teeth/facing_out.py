"""What consumers promise, broken one by one: the loop, the claim, the rate, the checks before a call, the call."""

from __future__ import annotations

from tests.teeth.patch import Patch

_CLAIMS = "tests/contract/test_claims.py::"
_DECISIONS = "tests/unit/consumers/test_send_decisions.py::"
_WORKER = "tests/unit/consumers/test_lane_worker.py::"

LOOP = (
    Patch(
        name="lets go of a record before what it led to is in the log",
        promise=1,
        file="consumers/loop/outbox.py",
        old="            await self._publish(self._outgoing(entries))\n        except",
        new="            self._on_finished(entries)\n"
        "            await self._publish(self._outgoing(entries))\n        except",
        test="tests/integration/engine/test_engine.py::test_the_commit_never_passes_what_is_not_published_yet",
        suffers="A worker killed at the wrong moment has committed a request that became nothing.",
    ),
    Patch(
        name="commits past a record that is still in work",
        promise=1,
        file="consumers/loop/tracker.py",
        old="        self.finished += 1\n",
        new="        self.finished += 1\n        self.watermark = max(self.watermark, offset + 1)\n",
        test="tests/unit/consumers/loop/test_tracker.py::test_a_slow_record_keeps_the_watermark_while_others_finish",
        suffers="The one slow message of a batch is lost when its worker is killed.",
    ),
    Patch(
        name="reads a partition no more that was paused when it was taken away",
        promise=1,
        file="consumers/loop/kafka_side.py",
        old="        consumer.resume([TopicPartition(t.topic, t.partition) for t in trackers])\n",
        new="",
        test="tests/integration/engine/test_rebalance.py::test_a_pause_does_not_outlive_its_assignment",
        suffers="After a rolling restart one tier stands still, and nobody sees why.",
    ),
    Patch(
        name="parks a record because the world around it is unwell",
        promise=1,
        file="consumers/loop/batches.py",
        old="        except Transient as error:\n            self._put_off(batch, batch.unanswered(), error)",
        new="        except Transient as error:\n            await self._one_by_one(batch, error)",
        test="tests/unit/consumers/loop/test_batches.py"
        "::test_an_unwell_world_puts_off_what_is_not_answered_yet_and_parks_nothing",
        suffers="A minute without Redis fills the dead letter topics with good messages.",
    ),
    Patch(
        name="never finds the record that kills its process",
        promise=10,
        file="consumers/loop/starts.py",
        old="SUSPICIOUS_STARTS = 3",
        new="SUSPICIOUS_STARTS = 3_000",
        test="tests/integration/engine/test_crashes.py::test_a_record_that_kills_its_process_is_found_and_parked",
        suffers="One record keeps a lane down for a night, restart after restart.",
    ),
)

CLAIM = (
    Patch(
        name="takes a claim although somebody else is sending",
        promise=2,
        file="consumers/claim_take.lua",
        old="  if open and e.lease_end > now then return 'L' .. raw end",
        new="  if open and e.lease_end < 0 then return 'L' .. raw end",
        test=_CLAIMS + "test_of_many_workers_exactly_one_gets_the_claim",
        suffers="Two workers with one record during a rebalance: everybody in their hands gets it twice.",
    ),
    Patch(
        name="takes the first claim of a delivery from whoever has it",
        promise=2,
        file="consumers/claims.py",
        old='"EX", self._keep_s, "NX", "GET")',
        new='"EX", self._keep_s)',
        test="tests/integration/test_lane_worker.py::test_two_workers_with_the_same_records_make_one_call_each",
        suffers="Two workers with one record during a rebalance: everybody in their hands gets it twice.",
    ),
    Patch(
        name="forgets at the claim that it was sent",
        promise=2,
        file="consumers/claim_take.lua",
        old="  if (e.verdict == 1 and not redrive) or (equal and e.verdict > 0) then return 'F' .. raw end",
        new="  if e.verdict > 3 then return 'F' .. raw end",
        test=_CLAIMS + "test_what_was_sent_is_never_sent_again_except_by_a_forced_redrive",
        suffers="Whatever is read twice is sent twice.",
    ),
    Patch(
        name="does not look again at the profile before the call",
        promise=3,
        file="consumers/claim_take.lua",
        old="if (redis.call('HGET', KEYS[2], 'v') or '0') ~= ARGV[7] or ",
        new="if ",
        test=_CLAIMS + "test_a_profile_written_after_it_was_read_sends_the_record_back_to_the_checks",
        suffers="An opt-out is confirmed to somebody whose message goes out a moment later.",
    ),
    Patch(
        name="does not look again at the profile before the first call",
        promise=3,
        file="consumers/bidding.py",
        old="        if known.read_version(version) != sending.version or ",
        new="        if ",
        test=_DECISIONS + "TestClaims::test_an_opt_out_answered_before_the_claim_stops_the_call",
        suffers="An opt-out is confirmed to somebody whose message goes out a moment later.",
    ),
    Patch(
        name="settles a claim that somebody else has taken over",
        promise=2,
        file="consumers/claim_settle.lua",
        old="if string.sub(raw, 11, 14) ~= ARGV[1] then return 'L' end",
        new="if raw == '' then return 'L' end",
        test=_CLAIMS + "test_only_the_holder_may_settle_and_a_late_one_learns_it",
        suffers="A worker that slept through its lease turns what the second one was told: sent and failed at once.",
    ),
    Patch(
        name="tells what a call came to before the claim knows",
        promise=2,
        file="consumers/telling.py",
        old="        self._settling.add(Settlement(",
        new="        self._publish(sending, verdict, sending.held_claim().call, b'')\n"
        "        self._settling.add(Settlement(",
        test="tests/unit/consumers/test_settling.py::test_what_a_call_came_to_is_in_the_claim_before_anybody_is_told",
        suffers="A crash right there leaves a record committed and its claim open: a replay sends it again.",
    ),
    Patch(
        name="calls for a delivery that has killed three workers",
        promise=10,
        file="consumers/bidding.py",
        old="        if entry.takeovers >= MAX_TAKEOVERS:",
        new="        if entry.takeovers > MAX_TAKEOVERS:",
        test=_DECISIONS + "TestClaims::test_a_delivery_that_kills_three_workers_is_parked",
        suffers="One message takes a worker down every thirty seconds, for ever.",
    ),
    Patch(
        name="does not count a call whose worker died with it",
        promise=2,
        file="consumers/verdicts.py",
        old="    for call in numbers.lapsed:",
        new="    for call in numbers.lapsed[:0]:",
        test=_DECISIONS + "TestClaims::test_a_dead_workers_delivery_is_taken_over_and_counted_as_possible_duplicate",
        suffers="People got a message twice, and the report says that it cannot have happened.",
    ),
    Patch(
        name="begins a call that may outlive its lease",
        promise=2,
        file="consumers/calling.py",
        old=" < self._lease_least_s:",
        new=" < 0:",
        test=_DECISIONS + "TestPace::test_a_claim_with_too_little_lease_left_makes_no_call",
        suffers="A worker that was frozen wakes up and sends what another one is sending by now.",
    ),
)

CHECKS = (
    Patch(
        name="sends what has expired",
        promise=3,
        file="consumers/send_checks.py",
        old="    if 0 < delivery.expires_at_ms <= now_ms:",
        new="    if 0 < delivery.expires_at_ms <= 0:",
        test=_DECISIONS + "test_nothing_is_sent_and_the_reason_named",
        suffers="Yesterday's code arrives today.",
    ),
    Patch(
        name="sends what was cancelled",
        promise=3,
        file="consumers/send_checks.py",
        old="    if seen.cancelled:",
        new="    if seen.cancelled is None:",
        test=_DECISIONS + "test_nothing_is_sent_and_the_reason_named",
        suffers="The shop cancelled the reminder, was told so, and the customer gets it.",
    ),
    Patch(
        name="sends to whom has opted out",
        promise=3,
        file="consumers/send_checks.py",
        old="    if profile.opt_outs and ",
        new="    if not profile.opt_outs and ",
        test="tests/acceptance/test_stops.py"
        "::test_whoever_may_not_be_written_to_any_more_is_not_although_the_message_is_in_the_lane",
        suffers="Whoever unsubscribed gets the messages that were in the lane already.",
    ),
    Patch(
        name="sends although the address is suppressed",
        promise=3,
        file="consumers/bidding.py",
        old="        if cause:",
        new="        if cause is None:",
        test=_DECISIONS + "test_nothing_is_sent_and_the_reason_named",
        suffers="Who complained is written to again, and the provider closes the account.",
    ),
    Patch(
        name="goes on with a campaign that was stopped while its claim was taken",
        promise=3,
        file="consumers/send_checks.py",
        old="    if order is CampaignOrder.CANCELLED:",
        new="    if order is None:",
        test=_DECISIONS + "TestCampaignOrders::test_a_paused_campaign_waits_and_a_cancelled_one_ends",
        suffers="A cancelled campaign is sent to the end.",
    ),
    Patch(
        name="lets a later resume undo a cancel",
        promise=3,
        file="consumers/controls.py",
        old="                self._paused.discard(campaign)",
        new="                self._paused.discard(campaign)\n                self._cancelled.discard(campaign)",
        test="tests/unit/consumers/test_controls.py::test_a_cancel_is_never_undone_by_a_later_pause_or_resume",
        suffers="Somebody presses resume in another window, and the campaign that was called off goes out.",
    ),
    Patch(
        name="drops a delivery that cannot be read",
        promise=10,
        file="consumers/lane_worker.py",
        old="            answer(record, self._letters.parked(record, error.reason, error.text))",
        new="            from schemas.records import Done\n\n            answer(record, Done())",
        test=_WORKER + "TestBadInput::test_undecodable_bytes_are_parked_as_they_are_and_the_neighbours_sent",
        suffers="After a roll-back the deliveries of the newer release are gone for good.",
    ),
)

PACE = (
    Patch(
        name="gives every worker a rate of its own",
        promise=8,
        file="consumers/limits.py",
        old="        self._key = keys.redis_bucket(provider)",
        new="        self._key = keys.redis_bucket(provider + worker)",
        test="tests/integration/test_limits.py::test_64_workers_never_exceed_the_rate_plus_burst_in_any_second",
        suffers="Twice the workers, twice the contract's rate: the provider throttles or bills it.",
    ),
    Patch(
        name="lets bulk have all of a provider's rate",
        promise=4,
        file="consumers/limits_take.lua",
        old="  tokens, own_rate, room = math.min(all, bulk), rate * (1 - reserved), half * (1 - reserved)",
        new="  tokens, own_rate, room = all, rate, half",
        test="tests/integration/test_limits.py::test_bulk_alone_never_takes_the_part_reserved_for_transactional",
        suffers="While a campaign runs, a code waits for a token as long as any newsletter.",
    ),
    Patch(
        name="never opens a breaker",
        promise=8,
        file="consumers/breaker_record.lua",
        old="failures(ring) * 2 > #ring then",
        new="failures(ring) > #ring then",
        test="tests/integration/test_breaker.py::test_failures_of_several_workers_together_open_it",
        suffers="A provider that is down is called at full rate, and each message loses a try each time.",
    ),
)

CALL = (
    Patch(
        name="forgets the hop of a retry",
        promise=7,
        file="consumers/verdicts.py",
        old="hop=delivery.hop + 1 if verdict.kind is EventKind.RETRYING else 0",
        new="hop=0",
        test=_WORKER + "TestOutcomes::test_a_failure_waits_in_a_tier_and_counts_a_try",
        suffers="A status says queued for hours although its message waits for the provider.",
    ),
    Patch(
        name="tries a template's mistake for ever",
        promise=10,
        file="consumers/calling.py",
        old="            self._teller.failed(sending, error)",
        new="            self._teller.stop(sending, send_checks.Wait(self._clock.now_ms() + 1_000))",
        test=_WORKER + "TestBadInput::test_a_value_the_template_needs_and_nobody_gave_parks_one_record",
        suffers="A campaign with one recipient without a first name never ends.",
    ),
    Patch(
        name="puts names into html as they are",
        promise=10,
        file="consumers/render.py",
        old="Sandbox(loader, autoescape=True)",
        new="Sandbox(loader, autoescape=False)",
        test="tests/unit/consumers/test_render.py::test_a_name_is_plain_in_subject_and_text_and_escaped_in_html",
        suffers="Somebody calls themselves <script>, and it runs in a colleague's mailbox.",
    ),
    Patch(
        name="takes silence after the request left for a refusal",
        promise=2,
        file="consumers/providers/http.py",
        old="            return Outcome(Kind.UNKNOWN, detail=str(error)[:DETAIL_MAX])",
        new="            return Outcome(Kind.NOT_PROCESSED, detail=str(error)[:DETAIL_MAX])",
        test="tests/contract/test_http_provider.py::test_a_request_that_left_without_an_answer_may_have_arrived",
        suffers="A repeat after a lost answer is not counted, and a template that wants no repeat gets one.",
    ),
    Patch(
        name="writes into the log whom it wrote to",
        promise=10,
        file="consumers/calling.py",
        old='            log.exception("call.failed", extra={"provider": seat.provider.name})',
        new='            log.exception("call.failed", extra={"provider": seat.provider.name, "to": call.to})',
        test="tests/unit/consumers/test_log_lines.py::test_a_senders_log_names_nobody_and_says_nothing_of_the_message",
        suffers="Addresses lie in a log store that forty people may search, for a year.",
    ),
    Patch(
        name="writes into the log what a library says of a message",
        promise=10,
        file="deploy/logs.py",
        old='    return f"{name}: {error}" if isinstance(error, TidingsError) else name',
        new='    return f"{name}: {error}"',
        test="tests/unit/deploy/test_logs.py::test_what_an_unexpected_error_says_stays_out_of_the_log",
        suffers="An encoder that fails over a letter writes the letter into a log store that forty people may search.",
    ),
)

PATCHES: tuple[Patch, ...] = (*LOOP, *CLAIM, *CHECKS, *PACE, *CALL)
