"""Ways to write to somebody too often, or the same thing twice under two keys."""

from __future__ import annotations

from tests.teeth.patch import Patch

_BODIES = "tests/contract/test_guards.py::"
_DAYS = "tests/unit/consumers/test_caps.py::"
_SENDS = "tests/unit/consumers/test_guarding.py::"
_ORDERS = "tests/unit/streams/test_hold_orders.py::"

PATCHES = (
    Patch(
        name="takes a reserved place under a cap for a free one",
        promise=3,
        file="consumers/caps_reserve.lua",
        old="if counted[group] == nil and held >= most then",
        new="if counted[group] == nil and sent >= most then",
        test=_BODIES + "test_sixty_four_workers_at_once_never_exceed_a_cap_and_use_it_up",
        suffers="Three a day, says the template; ten came while ten workers were at it.",
    ),
    Patch(
        name="frees the place of a call that nobody heard of",
        promise=3,
        file="consumers/caps_reserve.lua",
        old="if ends <= now or ends == math.huge then",
        new="if ends == math.huge then",
        test=_BODIES + "TestPlaces::test_a_call_that_nobody_heard_of_counts_and_is_never_given_back",
        suffers="A worker dies after its call, and its user gets one message too many.",
    ),
    Patch(
        name="lets a late worker free the place of the next one",
        promise=3,
        file="consumers/caps_free.lua",
        old="if redis.call('GETRANGE', KEYS[1], 10, 13) == ARGV[1] then",
        new="if true then",
        test=_BODIES + "TestPlaces::test_who_lost_the_claim_gives_nothing_back",
        suffers="A message goes out while another has its place.",
    ),
    Patch(
        name="forgets under the cap what may have arrived",
        promise=3,
        file="consumers/guarding.py",
        old="        is_sent = verdict.is_unknown or verdict.kind in",
        new="        is_sent = verdict.kind in",
        test=_SENDS + "TestCaps::test_a_call_that_may_have_arrived_counts_once_with_its_repeat",
        suffers="In the hour in which a provider's answers get lost everybody gets one message more.",
    ),
    Patch(
        name="counts every device of a push",
        promise=3,
        file="consumers/caps.py",
        old="keys.delivery_key(delivery.intent, delivery.channel), _GROUP_BYTES",
        new="keys.delivery_key(delivery.intent, delivery.channel, delivery.device), _GROUP_BYTES",
        test=_SENDS + "TestCaps::test_a_push_to_three_devices_counts_once",
        suffers="Who has three telephones gets one message a day, on one of them.",
    ),
    Patch(
        name="counts everybody's day by Greenwich",
        promise=3,
        file="consumers/caps.py",
        old="        date = local_times.local_date(self._zone(delivery.tenant, time_zone), now_ms)",
        new='        date = local_times.local_date("UTC", now_ms)',
        test=_DAYS + "test_the_day_is_the_one_on_the_users_own_calendar",
        suffers="In Auckland the day's three messages are counted anew at lunch.",
    ),
    Patch(
        name="sends the same under another key",
        promise=2,
        file="consumers/lookalikes.py",
        old="    return InTheWay(there[begins:ends], there[ends:].decode())",
        new="    return None",
        test=_SENDS + "TestLookalikes::test_of_two_at_once_exactly_one_is_sent",
        suffers="A job was run twice, and everybody has paid their bill twice.",
    ),
    Patch(
        name="holds what looks like a message that was never sent",
        promise=2,
        file="consumers/guarding.py",
        old="        if not is_sent and not goes_on:",
        new="        if is_sent and goes_on:",
        test=_SENDS + "TestLookalikes::test_one_like_a_message_that_was_never_sent_goes_out",
        suffers="The mended invoice waits for an operator, though the first one was refused.",
    ),
    Patch(
        name="holds what looks like a message that was stopped before it was sent",
        promise=2,
        file="consumers/settling.py",
        old="            self._guards.ask_left(trip, sending, mark)\n",
        new="            pass\n",
        test=_SENDS + "TestLookalikes::test_one_like_a_message_that_was_stopped_after_a_refused_call_goes_out",
        suffers="The wrong invoice was cancelled in time, and the right one waits for an operator.",
    ),
    Patch(
        name="takes back the mark of a message that another worker sends",
        promise=2,
        file="consumers/lookalike_withdraw.lua",
        old="redis.call('GETRANGE', KEYS[1], 10, 13) == ARGV[1] and ",
        new="",
        test=_BODIES + "TestMarks::test_a_mark_is_taken_back_by_the_holder_of_the_claim_alone",
        suffers="A cancel comes in the moment of a retry; the retry went out, and so does the next alike.",
    ),
    Patch(
        name="takes an earlier call in doubt for one that was not taken",
        promise=2,
        file="consumers/guarding.py",
        old="bool(sending.lapsed or delivery.doubted_at_ms or ",
        new="bool(sending.lapsed or ",
        test=_SENDS + "TestLookalikes::test_one_like_a_message_of_which_an_earlier_call_may_have_arrived_is_held",
        suffers="The first try arrived, the second was refused; a job that ran twice brings it again.",
    ),
    Patch(
        name="counts the ten minutes of a look-alike from the call of a dead worker",
        promise=2,
        file="consumers/guarding.py",
        old="mark is not None and sending.mark_is_older:",
        new="mark is not None and (mark.is_forced or sending.delivery.call > 1):",
        test=_SENDS + "TestLookalikes"
        "::test_they_begin_with_the_repeat_of_a_dead_workers_call_however_long_that_had_to_wait",
        suffers="A reminder is repeated at 9:09, as a worker died at 9:00; the job's second run brings it at 9:11.",
    ),
    Patch(
        name="forgets on the next channel that the first may have brought it",
        promise=2,
        file="consumers/verdicts.py",
        old="verdict.at_ms if may_have_gone else 0",
        new="0",
        test=_SENDS + "TestLookalikes"
        "::test_one_like_a_message_that_was_refused_on_its_second_channel_goes_by_what_became_of_the_first",
        suffers="The push arrived, the mail behind it bounced; a job that ran twice brings the push again.",
    ),
    Patch(
        name="asks again about a look-alike that an operator let go",
        promise=2,
        file="streams/letting_go.py",
        old="    later = replace(later, force=True) if one.held.reason == Reason.LOOKALIKE else later",
        new="    later = replace(later, force=False)",
        test=_ORDERS + "test_a_lookalike_waits_for_an_order_and_goes_by_it_past_the_check",
        suffers="Released, held, released, held.",
    ),
    Patch(
        name="forgets an order about what it has not read yet",
        promise=10,
        file="streams/hold_orders.py",
        old="                over += [hold_id] if now_ms - order.at_ms > FORGOTTEN_AFTER_MS else []",
        new="                over += [hold_id]",
        test=_ORDERS + "test_an_order_read_before_its_delivery_is_obeyed_when_that_comes",
        suffers="The operator was told that it would go, and it waits until it expires.",
    ),
)
